#include "kernels/simt/emulator/shared.h"

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/monitor.h"

namespace roundoff::simt {

namespace {
// Between variables, so that an index that runs over meets nobody's memory. Only where it is looked
// for: it takes room that a kernel at the limit needs.
constexpr std::size_t kGap = 64;
}  // namespace

void* static_shared(const void* tag, std::size_t bytes, std::size_t alignment, const char* name) {
  Block& b = *current()->block;
  for (const SharedVariable& v : b.variables)
    if (v.tag == tag) return b.window + v.offset;
  Cluster& cluster = *b.cluster;
  const std::size_t gap = cluster.monitor != nullptr ? kGap : 0;
  const std::size_t unit = alignment < 16 ? 16 : alignment;
  const std::size_t offset = (b.shared_used + gap + unit - 1) / unit * unit;
  const std::size_t limit = cluster.config.max_shared + gap * (b.variables.size() + 2);
  if (offset + bytes > limit || offset + bytes > kSharedWindow)
    fault(name, ": ", offset + bytes, " bytes of shared memory, ", cluster.config.max_shared,
          " are there");
  b.variables.push_back({tag, offset});
  b.shared_used = offset + bytes;
  if (cluster.monitor != nullptr) cluster.monitor->shared_variable(b, offset, bytes, name);
  return b.window + offset;
}

void* dynamic_shared() { return current()->block->window; }

std::uint32_t shared_address(const void* p) {
  const Cluster& cluster = *current()->block->cluster;
  for (unsigned rank = 0; rank < cluster.blocks; ++rank) {
    const auto offset =
        static_cast<std::size_t>(static_cast<const char*>(p) - cluster.block[rank]->window);
    if (offset < kSharedWindow)
      return kSharedBase + static_cast<std::uint32_t>(offset) + (rank << kSharedRankShift);
  }
  fault("the address of shared memory is asked for a pointer to something else");
}

void* shared_pointer(std::uint32_t address) {
  const Cluster& cluster = *current()->block->cluster;
  const unsigned rank = address >> kSharedRankShift;
  const std::uint32_t offset = (address & ((1U << kSharedRankShift) - 1)) - kSharedBase;
  if (rank >= cluster.blocks || offset >= kSharedWindow)
    fault("0x", std::hex, address, " is not an address of shared memory");
  return cluster.block[rank]->window + offset;
}

}  // namespace roundoff::simt
