#include "kernels/simt/emulator/tma.h"

#include <algorithm>
#include <cstring>

#include "kernels/simt/emulator/async.h"
#include "kernels/simt/emulator/monitor.h"
#include "kernels/simt/emulator/tensor_box.h"

namespace roundoff::simt {

namespace {

constexpr const char* kTensor = "cp.async.bulk.tensor";
constexpr const char* kBulk = "cp.async.bulk";

bool aligned(const void* p, std::size_t unit) {
  return reinterpret_cast<std::uintptr_t>(p) % unit == 0;
}

// Moves a dense box to its swizzled place in shared memory, or back.
enum class Move : bool { in, out };
void move_box(Block& block, char* shared, Swizzle swizzle, char* dense, std::size_t bytes,
              Move move) {
  const auto copy = [&](char* there, char* here, std::size_t n) {
    if (move == Move::in) {
      std::memcpy(there, here, n);
    } else {
      std::memcpy(here, there, n);
    }
  };
  if (swizzle == Swizzle::none) {
    copy(shared, dense, bytes);
    return;
  }
  const auto offset = static_cast<std::uint32_t>(shared - block.window);
  for (std::size_t at = 0; at < bytes; at += 16) {
    const std::uint32_t address =
        swizzled(kSharedBase + offset + static_cast<std::uint32_t>(at), swizzle);
    copy(block.window + (address - kSharedBase), dense + at, 16);
  }
}

// One block that a load writes to.
struct Target {
  Block* block;
  char* shared;
  std::uint64_t* done;
  std::uint64_t phase;
};

// Where a load goes: to `shared`, or to the same place in every block of `ranks`.
std::vector<Target> targets(void* shared, std::size_t bytes, std::uint64_t* done,
                            const std::uint16_t* ranks, const char* what, Site site) {
  Block& own = *current()->block;
  Cluster& cluster = *own.cluster;
  Block& block = block_of_shared(shared, bytes, what, site);
  if (&block_of_shared(done, 8, what, site) != &block)
    fault_at(site, what, ": the destination and its mbarrier lie in different blocks");
  std::vector<Target> all;
  if (ranks == nullptr) {
    all.push_back({&block, static_cast<char*>(shared), done, phase_of(done, what, site)});
    return all;
  }
  if (&block != &own)
    fault_at(site, what, ": a multicast names the place by an address of its own block");
  if (*ranks == 0 || (*ranks >> cluster.blocks) != 0)
    fault_at(site, what, ": the mask 0x", std::hex, *ranks, " for a cluster of ", std::dec,
             cluster.blocks, " blocks");
  for (unsigned rank = 0; rank < cluster.blocks; ++rank) {
    if ((*ranks >> rank & 1U) == 0) continue;
    Block& other = *cluster.block[rank];
    char* to = other.window + (static_cast<char*>(shared) - own.window);
    auto* barrier = reinterpret_cast<std::uint64_t*>(other.window +
                                                     (reinterpret_cast<char*>(done) - own.window));
    all.push_back({&other, to, barrier, phase_of(barrier, what, site)});
  }
  return all;
}

// Device memory that a copy reads or writes, for the monitor.
struct Run {
  const char* begin;
  std::size_t bytes;
};
std::vector<Run> runs_of(const TensorMap& map, const std::vector<BoxRow>& rows) {
  std::vector<Run> runs;
  if (current()->block->cluster->monitor == nullptr) return runs;
  const std::size_t unit = size_of(map.dtype);
  for (const BoxRow& row : rows)
    if (row.last > row.first)
      runs.push_back({row.global + static_cast<std::size_t>(row.first) * unit,
                      static_cast<std::size_t>(row.last - row.first) * unit});
  return runs;
}

// Starts a load of `bytes` that `read` gathers.
void start_load(std::vector<Target> to, std::size_t bytes, Swizzle swizzle, std::vector<Run> runs,
                std::function<void(char* dense)> read, Site site) {
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  async_state(*me.block);
  ++cluster.counters.tma;
  cluster.counters.tma_bytes += bytes;
  const std::uint64_t operation =
      cluster.monitor != nullptr ? cluster.monitor->async_begin(me, 1, site) : 0;
  cluster.post([&cluster, bytes, swizzle, operation, to = std::move(to), runs = std::move(runs),
                read = std::move(read)] {
    std::vector<char> dense(bytes);
    read(dense.data());
    if (cluster.monitor != nullptr)
      for (const Run& run : runs)
        cluster.monitor->async_read(operation, *to[0].block, run.begin, run.bytes);
    for (const Target& t : to) {
      check_landing(*t.block, t.done, bytes, t.phase);
      move_box(*t.block, t.shared, swizzle, dense.data(), bytes, Move::in);
      if (cluster.monitor != nullptr)
        cluster.monitor->async_write(operation, *t.block, t.shared, bytes);
      land_bytes(*t.block, t.done, bytes, operation);
    }
  });
  preempt();
}

void check_map(const TensorMap* map, int rank, bool im2col, Site site) {
  need_sm_90(kTensor, site);
  if (!aligned(map, 64)) fault_at(site, kTensor, ": the tensor map is not aligned to 64 bytes");
  if (map->magic != kTensorMapMagic) fault_at(site, kTensor, ": no tensor map at that address");
  if (map->rank != rank)
    fault_at(site, kTensor, ": ", rank, " coordinates for a tensor of rank ",
             static_cast<int>(map->rank));
  if (map->im2col != im2col)
    fault_at(site, kTensor, ": the map was made for ", map->im2col ? "im2col" : "tiles");
  check_global(map->address, extent_bytes(*map), kTensor, site);
}

void check_box_place(const void* shared, Site site) {
  if (!aligned(shared, 128))
    fault_at(site, kTensor, ": the box's place in shared memory is not aligned to 128 bytes");
}

void load_box(void* shared, const TensorMap* map, const int* at, const std::uint16_t* offset,
              int rank, std::uint64_t* done, const std::uint16_t* ranks, Site site) {
  check_map(map, rank, offset != nullptr, site);
  check_box_place(shared, site);
  if (offset != nullptr && !starts_in_bounds(*map, at))
    fault_at(site, kTensor, ": the im2col copy starts outside its bounding box");
  const std::size_t bytes = box_bytes(*map);
  std::vector<BoxRow> rows = rows_of_box(*map, at, offset);
  std::vector<Run> runs = runs_of(*map, rows);
  start_load(
      targets(shared, bytes, done, ranks, kTensor, site), bytes, map->swizzle, std::move(runs),
      [map = *map, rows = std::move(rows)](char* dense) { read_box(map, rows, dense); }, site);
}

void check_run(const void* shared, const void* global, unsigned bytes, Site site) {
  need_sm_90(kBulk, site);
  if (!aligned(shared, 16) || !aligned(global, 16) || bytes % 16 != 0)
    fault_at(site, kBulk, ": both addresses and the size must be multiples of 16");
  check_global(global, bytes, kBulk, site);
}

void load_run(void* shared, const void* global, unsigned bytes, std::uint64_t* done,
              const std::uint16_t* ranks, Site site) {
  check_run(shared, global, bytes, site);
  start_load(
      targets(shared, bytes, done, ranks, kBulk, site), bytes, Swizzle::none,
      {{static_cast<const char*>(global), bytes}},
      [global, bytes](char* dense) { std::memcpy(dense, global, bytes); }, site);
}

// ---- stores

BulkStores& stores_of(Thread& me) { return async_state(*me.block).stores[me.linear]; }

void wake_waiting(Cluster& cluster, BulkStores& stores, Thread& thread) {
  if (!stores.waiting) return;
  stores.waiting = false;
  cluster.wake(thread);
}

// Starts a store of `bytes` that `write` scatters. It first reads shared memory, and writes later.
void start_store(const void* shared, std::size_t bytes, Swizzle swizzle, std::vector<Run> runs,
                 bool add, std::function<void(const char* dense)> write, const char* what,
                 Site site) {
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  Block& block = block_of_shared(shared, bytes, what, site);
  if (&block != me.block)
    fault_at(site, what, ": a store reads its own block's shared memory only");
  BulkStores& stores = stores_of(me);
  ++cluster.counters.tma;
  cluster.counters.tma_bytes += bytes;
  auto store = std::make_shared<BulkStore>();
  if (cluster.monitor != nullptr) store->operation = cluster.monitor->async_begin(me, 1, site);
  stores.open.push_back(store);
  char* from = static_cast<char*>(const_cast<void*>(shared));
  cluster.post([&cluster, &block, &stores, &me, store, from, bytes, swizzle, add,
                runs = std::move(runs), write = std::move(write)] {
    auto dense = std::make_shared<std::vector<char>>(bytes);
    move_box(block, from, swizzle, dense->data(), bytes, Move::out);
    if (cluster.monitor != nullptr)
      cluster.monitor->async_read(store->operation, block, from, bytes);
    store->read = true;
    wake_waiting(cluster, stores, me);
    cluster.post([&cluster, &block, &stores, &me, store, dense, add, runs, write] {
      write(dense->data());
      if (cluster.monitor != nullptr)
        for (const Run& run : runs)
          cluster.monitor->async_write(store->operation, block, const_cast<char*>(run.begin),
                                       run.bytes, add ? Access::strong_write : Access::write);
      store->written = true;
      wake_waiting(cluster, stores, me);
    });
  });
  preempt();
}

}  // namespace

void tma_load(void* shared, const TensorMap* map, const int* at, int rank, std::uint64_t* done,
              Site site) {
  load_box(shared, map, at, nullptr, rank, done, nullptr, site);
}
void tma_load_multicast(void* shared, const TensorMap* map, const int* at, int rank,
                        std::uint64_t* done, std::uint16_t ranks, Site site) {
  load_box(shared, map, at, nullptr, rank, done, &ranks, site);
}
void tma_load_im2col(void* shared, const TensorMap* map, const int* at, const std::uint16_t* offset,
                     int rank, std::uint64_t* done, Site site) {
  load_box(shared, map, at, offset, rank, done, nullptr, site);
}
void tma_load_im2col_multicast(void* shared, const TensorMap* map, const int* at,
                               const std::uint16_t* offset, int rank, std::uint64_t* done,
                               std::uint16_t ranks, Site site) {
  load_box(shared, map, at, offset, rank, done, &ranks, site);
}

void bulk_load(void* shared, const void* global, unsigned bytes, std::uint64_t* done, Site site) {
  load_run(shared, global, bytes, done, nullptr, site);
}
void bulk_load_multicast(void* shared, const void* global, unsigned bytes, std::uint64_t* done,
                         std::uint16_t ranks, Site site) {
  load_run(shared, global, bytes, done, &ranks, site);
}

void tma_store(const TensorMap* map, const int* at, int rank, const void* shared, bool add,
               Site site) {
  check_map(map, rank, false, site);
  check_box_place(shared, site);
  std::vector<BoxRow> rows = rows_of_box(*map, at, nullptr);
  std::vector<Run> runs = runs_of(*map, rows);
  start_store(
      shared, box_bytes(*map), map->swizzle, std::move(runs), add,
      [map = *map, rows = std::move(rows), add](const char* dense) {
        write_box(map, rows, dense, add);
      },
      kTensor, site);
}

void bulk_store(void* global, const void* shared, unsigned bytes, Site site) {
  check_run(shared, global, bytes, site);
  start_store(
      shared, bytes, Swizzle::none, {{static_cast<const char*>(global), bytes}}, false,
      [global, bytes](const char* dense) { std::memcpy(global, dense, bytes); }, kBulk, site);
}

void bulk_commit(Site site) {
  need_sm_90(kBulk, site);
  BulkStores& stores = stores_of(*current());
  stores.groups.push_back(std::move(stores.open));
  stores.open.clear();
}

void bulk_wait(unsigned pending, bool reads, Site site) {
  need_sm_90(kBulk, site);
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  BulkStores& stores = stores_of(me);
  const auto is_done = [reads](const std::shared_ptr<BulkStore>& s) {
    return reads ? s->read : s->written;
  };
  for (;;) {
    bool all = true;
    for (std::size_t g = 0; g + pending < stores.groups.size() && all; ++g)
      all = std::all_of(stores.groups[g].begin(), stores.groups[g].end(), is_done);
    if (all) break;
    stores.waiting = true;
    wait(reads ? "cp.async.bulk.wait_group.read" : "cp.async.bulk.wait_group", pending, site);
  }
  for (std::size_t g = 0; g + pending < stores.groups.size(); ++g)
    for (const std::shared_ptr<BulkStore>& s : stores.groups[g])
      if (cluster.monitor != nullptr) cluster.monitor->async_join(s->operation, me, 1);
  if (reads) return;
  while (stores.groups.size() > pending) stores.groups.pop_front();
}

void tma_prefetch(const TensorMap* map, Site site) { check_map(map, map->rank, map->im2col, site); }

void fence_proxy_async(Site site) {
  need_sm_90("fence.proxy.async", site);
  Thread& me = *current();
  if (Monitor* monitor = me.block->cluster->monitor) monitor->proxy_fence(me);
}

void stores_thread_exit(Thread& thread) {
  const auto& all = thread.block->async->stores;
  const auto found = all.find(thread.linear);
  if (found == all.end()) return;
  const auto unread = [](const std::shared_ptr<BulkStore>& s) { return !s->read; };
  bool any = std::any_of(found->second.open.begin(), found->second.open.end(), unread);
  for (const auto& group : found->second.groups)
    any = any || std::any_of(group.begin(), group.end(), unread);
  if (any)
    fault(
        "a thread exits while a bulk store of its still reads shared memory "
        "(cp.async.bulk.wait_group.read)");
}

}  // namespace roundoff::simt
