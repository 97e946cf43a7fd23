#include "kernels/simt/emulator/copy.h"

#include <cstring>

#include "kernels/simt/emulator/async.h"
#include "kernels/simt/emulator/fragments.h"
#include "kernels/simt/emulator/monitor.h"

namespace roundoff::simt {

namespace {

bool aligned(const void* p, std::size_t unit) {
  return reinterpret_cast<std::uintptr_t>(p) % unit == 0;
}

void land(Copy& c) {
  if (c.landed) return;
  c.landed = true;
  if (c.source_bytes == 16) {  // mostly
    std::memcpy(c.to, c.from, 16);
    return;
  }
  if (c.source_bytes != 0) std::memcpy(c.to, c.from, c.source_bytes);
  std::memset(static_cast<char*>(c.to) + c.source_bytes, 0,
              static_cast<std::size_t>(c.bytes - c.source_bytes));
}

// Waits for the groups before `group`.
void land_before(Thread& me, Copies& copies, std::uint64_t group) {
  Monitor* monitor = me.block->cluster->monitor;
  while (copies.waited < copies.items.size() && copies.items[copies.waited].group < group) {
    Copy& c = copies.items[copies.waited++];
    land(c);
    if (monitor != nullptr) monitor->copy_done(me, c.to, c.bytes);
  }
  if (copies.waited == copies.items.size()) {
    copies.items.clear();
    copies.waited = 0;
  }
}

Copies* copies_of(Thread& me) {
  AsyncState& state = *me.block->async;
  if (!state.used || state.copies.empty()) return nullptr;
  return &state.copies[me.linear];
}

}  // namespace

void cp_async(void* shared, const void* global, int bytes, int source_bytes, Site site) {
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  const auto size = static_cast<std::size_t>(bytes);
  if (source_bytes < 0 || source_bytes > bytes)
    fault_at(site, "cp.async: ", source_bytes, " source bytes, 0 to ", bytes, " expected");
  if (!aligned(shared, size) || (source_bytes != 0 && !aligned(global, size)))
    fault_at(site, "cp.async: an address is not aligned to ", bytes, " bytes");
  if (&block_of_shared(shared, size, "cp.async", site) != me.block)
    fault_at(site, "cp.async: the destination is another block's shared memory");
  AsyncState& state = async_state(*me.block);
  if (state.copies.empty()) state.copies.resize(kMaxThreads);
  Copies& copies = state.copies[me.linear];
  if (cluster.monitor != nullptr) {
    if (source_bytes != 0)
      cluster.monitor->access(me, global, static_cast<std::size_t>(source_bytes), Access::read,
                              nullptr, site);
    cluster.monitor->copy_begin(me, shared, size, site);
  }
  ++cluster.counters.cp_async;
  cluster.counters.cp_async_bytes += static_cast<std::uint64_t>(source_bytes);
  // Member by member, in place: a whole that is read back at once waits for its parts.
  Copy& copy = copies.items.emplace_back();
  copy.to = shared;
  copy.from = global;
  copy.bytes = static_cast<std::uint8_t>(bytes);
  copy.source_bytes = static_cast<std::uint8_t>(source_bytes);
  copy.landed = false;
  copy.group = copies.closed;
  const Async when = cluster.config.async;
  if (when == Async::eager || (when == Async::random && cluster.draw(2) == 0)) land(copy);
}

void cp_async_commit(Site) {
  if (Copies* copies = copies_of(*current())) ++copies->closed;
}

void cp_async_wait(unsigned pending, Site) {
  Thread& me = *current();
  Copies* copies = copies_of(me);
  if (copies != nullptr && copies->closed > pending)
    land_before(me, *copies, copies->closed - pending);
}

void cp_async_wait_all(Site) {
  Thread& me = *current();
  Copies* copies = copies_of(me);
  if (copies == nullptr) return;
  ++copies->closed;
  land_before(me, *copies, copies->closed);
}

void copies_thread_exit(Thread& thread) {
  // Hardware lets such a thread go; what it copied is nobody's to read.
  Copies* copies = copies_of(thread);
  if (copies == nullptr || copies->items.empty()) return;
  if (thread.block->cluster->monitor != nullptr)
    fault("a thread exits with cp.async copies that it has not waited for");
  land_before(thread, *copies, ~std::uint64_t{0});
}

namespace {

struct MatrixArgument {
  std::uint32_t* load;
  const std::uint32_t* store;
  void* const* rows;  // one for each of the sequence
};

using Matrix = std::uint16_t[8][8];

// One of the sequence: 1, 2 or 4 matrices, row i of matrix m being row[8 m + i]. Lane 4 g + t has
// the word t of row g, or of column g, of each in the registers from `first` on.
void load_matrices(const Collective& c, void* const* row, int count, bool transpose, int first) {
  alignas(16) Matrix element[4];
  for (int i = 0; i < 8 * count; ++i) std::memcpy(element[i / 8][i % 8], row[i], 16);
  if (transpose)
    for (int m = 0; m < count; ++m) transpose_elements(element[m]);
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    std::uint32_t* to = static_cast<MatrixArgument*>(c.argument[lane])->load + first;
    for (int m = 0; m < count; ++m)
      std::memcpy(to + m, reinterpret_cast<const char*>(element[m]) + 4 * lane, 4);
  }
}

void store_matrices(const Collective& c, void* const* row, int count, bool transpose, int first) {
  alignas(16) Matrix element[4];
  for (int m = 0; m < count; ++m) {
    auto* to = reinterpret_cast<char*>(element[m]);
    for (std::size_t lane = 0; lane < kWarp; ++lane)
      std::memcpy(to + 4 * lane, static_cast<MatrixArgument*>(c.argument[lane])->store + first + m,
                  4);
  }
  if (transpose)
    for (int m = 0; m < count; ++m) transpose_elements(element[m]);
  for (int i = 0; i < 8 * count; ++i) std::memcpy(row[i], element[i / 8][i % 8], 16);
}

// A sequence of `length` instructions at one meeting of the warp. A row is named by lanes
// 8 i .. 8 i + 7 for matrix i.
void matrices(MatrixArgument mine, int length, int count, bool transpose, Site site) {
  const bool is_load = mine.load != nullptr;
  const char* what = is_load ? "ldmatrix" : "stmatrix";
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  if (me.lane < count * 8) {
    for (int i = 0; i < length; ++i) {
      void* row = mine.rows[i];
      if (!aligned(row, 16)) fault_at(site, what, ": the row's address is not a multiple of 16");
      if (&block_of_shared(row, 16, what, site) != me.block)
        fault_at(site, what, ": the row lies in another block's shared memory");
      if (cluster.monitor != nullptr)
        cluster.monitor->touch(me, row, 16, is_load ? Access::read : Access::write, site);
    }
  }
  Collective* c = arrive(is_load ? Meeting::ldmatrix : Meeting::stmatrix, ~0U, &mine, site, true);
  if (c == nullptr) return;
  for (int i = 0; i < length; ++i) {
    void* row[kWarp];
    for (std::size_t lane = 0; lane < static_cast<std::size_t>(8 * count); ++lane)
      row[lane] = static_cast<MatrixArgument*>(c->argument[lane])->rows[i];
    (is_load ? load_matrices : store_matrices)(*c, row, count, transpose, i * count);
    if (cluster.monitor != nullptr)
      cluster.monitor->shared_request(me, row, static_cast<unsigned>(8 * count), 16,
                                      is_load ? Access::read : Access::write, site);
  }
  (is_load ? cluster.counters.ldmatrix : cluster.counters.stmatrix) +=
      static_cast<std::uint64_t>(length);
  release(c);
}

}  // namespace

void ldmatrix(std::uint32_t* values, const void* row, int count, bool transpose, Site site) {
  ldmatrix_tile(values, &row, 1, count, transpose, site);
}

void ldmatrix_tile(std::uint32_t* values, const void* const* rows, int length, int count,
                   bool transpose, Site site) {
  matrices({values, nullptr, const_cast<void* const*>(rows)}, length, count, transpose, site);
}

void stmatrix(void* row, const std::uint32_t* values, int count, bool transpose, Site site) {
  need_sm_90("stmatrix", site);
  matrices({nullptr, values, &row}, 1, count, transpose, site);
}

}  // namespace roundoff::simt
