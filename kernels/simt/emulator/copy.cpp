#include "kernels/simt/emulator/copy.h"

#include <cstring>

#include "kernels/simt/emulator/async.h"
#include "kernels/simt/emulator/monitor.h"

namespace roundoff::simt {

namespace {

bool aligned(const void* p, std::size_t unit) {
  return reinterpret_cast<std::uintptr_t>(p) % unit == 0;
}

void land(Copy& c) {
  if (c.landed) return;
  if (c.source_bytes != 0) std::memcpy(c.to, c.from, c.source_bytes);
  std::memset(static_cast<char*>(c.to) + c.source_bytes, 0,
              static_cast<std::size_t>(c.bytes - c.source_bytes));
  c.landed = true;
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
  Copy copy{shared,
            global,
            static_cast<std::uint8_t>(bytes),
            static_cast<std::uint8_t>(source_bytes),
            false,
            copies.closed};
  const Async when = cluster.config.async;
  if (when == Async::eager || (when == Async::random && cluster.draw(2) == 0)) land(copy);
  copies.items.push_back(copy);
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
  char* row;
};

// Both directions. A row is named by lanes 8 i .. 8 i + 7 for matrix i.
void matrix(MatrixArgument mine, int count, bool transpose, Site site) {
  const bool is_load = mine.load != nullptr;
  const char* what = is_load ? "ldmatrix" : "stmatrix";
  Thread& me = *current();
  Cluster& cluster = *me.block->cluster;
  if (me.lane < count * 8) {
    if (!aligned(mine.row, 16)) fault_at(site, what, ": the row's address is not a multiple of 16");
    if (&block_of_shared(mine.row, 16, what, site) != me.block)
      fault_at(site, what, ": the row lies in another block's shared memory");
    if (cluster.monitor != nullptr)
      cluster.monitor->touch(me, mine.row, 16, is_load ? Access::read : Access::write, site);
  }
  Collective* c = arrive(is_load ? Meeting::ldmatrix : Meeting::stmatrix, ~0U, &mine, site, true);
  if (c == nullptr) return;
  const auto argument = [&](int lane) -> MatrixArgument& {
    return *static_cast<MatrixArgument*>(c->argument[static_cast<std::size_t>(lane)]);
  };
  const void* addresses[kWarp];
  for (int m = 0; m < count; ++m) {
    std::uint16_t element[8][8];
    for (int i = 0; i < 8; ++i) {
      addresses[8 * m + i] = argument(8 * m + i).row;
      if (is_load) std::memcpy(element[i], addresses[8 * m + i], 16);
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, t = lane % 4 * 2;
      std::uint16_t& low = transpose ? element[t][g] : element[g][t];
      std::uint16_t& high = transpose ? element[t + 1][g] : element[g][t + 1];
      if (is_load) {
        argument(lane).load[m] = low | static_cast<std::uint32_t>(high) << 16;
      } else {
        low = static_cast<std::uint16_t>(argument(lane).store[m]);
        high = static_cast<std::uint16_t>(argument(lane).store[m] >> 16);
      }
    }
    if (!is_load)
      for (int i = 0; i < 8; ++i) std::memcpy(argument(8 * m + i).row, element[i], 16);
  }
  if (cluster.monitor != nullptr)
    cluster.monitor->shared_request(me, addresses, static_cast<unsigned>(8 * count), 16,
                                    is_load ? Access::read : Access::write, site);
  ++(is_load ? cluster.counters.ldmatrix : cluster.counters.stmatrix);
  release(c);
}

}  // namespace

void ldmatrix(std::uint32_t* values, const void* row, int count, bool transpose, Site site) {
  matrix({values, nullptr, static_cast<char*>(const_cast<void*>(row))}, count, transpose, site);
}

void stmatrix(void* row, const std::uint32_t* values, int count, bool transpose, Site site) {
  need_sm_90("stmatrix", site);
  matrix({nullptr, values, static_cast<char*>(row)}, count, transpose, site);
}

}  // namespace roundoff::simt
