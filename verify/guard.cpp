#include "verify/guard.h"

#include <cstring>

#include "kernels/base/check.h"

namespace roundoff {

namespace {

// Sentinel bytes by their place, so that a shifted copy of one is not taken for another.
std::byte sentinel(std::size_t place) {
  return static_cast<std::byte>((place & 1U) == 0 ? kSentinel & 0xFFU : kSentinel >> 8);
}

}  // namespace

MemoryAccess host_memory() {
  const auto copy = [](void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
  };
  return {copy, copy};
}

void MemoryGuard::lay_sentinels(const Allocation& b) {
  // Before data; after its last byte up to the end of the block's margin.
  const std::size_t after = b.capacity - b.bytes + kMargin;
  std::vector<std::byte> pattern(std::max(kMargin, after));
  for (std::size_t i = 0; i < kMargin; ++i) pattern[i] = sentinel(i);
  access_.to_device(b.data - kMargin, pattern.data(), kMargin);
  for (std::size_t i = 0; i < after; ++i) pattern[i] = sentinel(b.bytes + i);
  access_.to_device(b.data + b.bytes, pattern.data(), after);
}

void MemoryGuard::allocated(const Allocation& block) {
  live_[block.data] = {block, "", std::string(block.node)};
  lay_sentinels(block);
  scratch_.assign(block.bytes, static_cast<std::byte>(kPoison & 0xFFU));
  access_.to_device(block.data, scratch_.data(), block.bytes);
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
  const auto look = [&](const std::byte* from, std::size_t bytes, std::size_t place,
                        const char* where, bool after) {
    scratch_.resize(bytes);
    access_.to_host(scratch_.data(), from, bytes);
    std::size_t wrong = 0, first = 0, last = 0;
    for (std::size_t i = 0; i < bytes; ++i) {
      if (scratch_[i] == sentinel(place + i)) continue;
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
  look(b.data - kMargin, kMargin, 0, "before it", false);
  look(b.data + b.bytes, b.capacity - b.bytes + kMargin, b.bytes, "behind it", true);
}

std::vector<std::string> MemoryGuard::overruns() {
  for (auto& [data, block] : live_) {
    const std::size_t before = found_.size();
    inspect(block);
    if (found_.size() != before) lay_sentinels(block.allocation);  // told once
  }
  std::vector<std::string> lines;
  lines.swap(found_);
  return lines;
}

}  // namespace roundoff
