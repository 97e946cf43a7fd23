#include "verify/guard.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"

namespace roundoff {

namespace {

// Sentinel bytes by block and place, so that neither a shifted copy nor another block's is taken
// for what should stand there.
std::byte sentinel(std::size_t salt, std::size_t place) {
  const std::size_t pattern = kSentinel + (salt + place / 2) % kSentinels;
  return static_cast<std::byte>((place & 1U) == 0 ? pattern & 0xFFU : pattern >> 8);
}

}  // namespace

MemoryAccess host_memory() {
  const auto copy = [](void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  };
  return {copy, copy};
}

// One copy a block each way: on a device every copy waits.
void MemoryGuard::write_block(const Block& block, bool poison) {
  const Allocation& b = block.allocation;
  const std::size_t after = b.capacity - b.bytes + kMargin;
  scratch_.resize(kMargin + b.bytes + after);
  for (std::size_t i = 0; i < kMargin; ++i) scratch_[i] = sentinel(block.salt, i);
  for (std::size_t i = 0; i < after; ++i)
    scratch_[kMargin + b.bytes + i] = sentinel(block.salt, b.bytes + i);
  if (poison) {
    std::fill_n(scratch_.begin() + kMargin, b.bytes, static_cast<std::byte>(kPoison & 0xFFU));
    access_.to_device(b.data - kMargin, scratch_.data(), scratch_.size());
    return;
  }
  access_.to_device(b.data - kMargin, scratch_.data(), kMargin);
  access_.to_device(b.data + b.bytes, scratch_.data() + kMargin + b.bytes, after);
}

void MemoryGuard::allocated(const Allocation& block) {
  constexpr std::size_t kStride = 5;  // coprime to kSentinels
  Block& b = live_[block.data];
  b = {block, "", std::string(block.node), kStride * blocks_++ % kSentinels};
  write_block(b, true);
}

void MemoryGuard::released(const Allocation& block) {
  const auto found = live_.find(block.data);
  if (found == live_.end()) return;
  inspect(found->second);
  live_.erase(found);
}

void MemoryGuard::name_buffer(const void* data, std::string name) {
  const auto* address = static_cast<const std::byte*>(data);
  auto next = live_.upper_bound(address);
  if (next == live_.begin()) return;
  Block& block = (--next)->second;
  if (address <= block.allocation.data + block.allocation.bytes) block.name = std::move(name);
}

void MemoryGuard::inspect(Block& block) {
  const Allocation& b = block.allocation;
  scratch_.resize(b.capacity + 2 * kMargin);
  access_.to_host(scratch_.data(), b.data - kMargin, scratch_.size());
  const auto look = [&](std::size_t from, std::size_t bytes, std::size_t place, const char* where,
                        bool after) {
    std::size_t wrong = 0, first = 0, last = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      if (scratch_[from + i] == sentinel(block.salt, place + i)) continue;
      if (wrong++ == 0) first = i;
      last = i;
    }
    if (wrong == 0) return;
    const std::string name = block.name.empty() ? std::string("a buffer") : block.name;
    const std::string distance =
        after ? concat("from ", first, " bytes after its end on")
              : concat("from ", kMargin - last, " bytes before its start on");
    found_.push_back(concat(name, " (", b.bytes, " bytes, ", roundoff::name(b.category),
                            block.node.empty() ? "" : ", made in ", block.node, "): ", wrong,
                            " bytes ", where, " were overwritten, ", distance));
  };
  look(0, kMargin, 0, "before it", false);
  look(kMargin + b.bytes, b.capacity - b.bytes + kMargin, b.bytes, "behind it", true);
}

std::vector<std::string> MemoryGuard::overruns() {
  for (auto& [data, block] : live_) {
    const std::size_t before = found_.size();
    inspect(block);
    if (found_.size() != before) write_block(block, false);  // told once
  }
  std::vector<std::string> lines;
  lines.swap(found_);
  return lines;
}

}  // namespace roundoff
