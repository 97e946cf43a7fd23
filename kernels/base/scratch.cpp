#include "kernels/base/scratch.h"

#include <algorithm>
#include <new>

namespace roundoff {

namespace {
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFirstBlock = std::size_t{1} << 20;
}  // namespace

void Scratch::Free::operator()(std::byte* p) const {
  ::operator delete[](p, std::align_val_t{kAlignment});
}

void* Scratch::get_bytes(std::size_t bytes) {
  bytes = std::max<std::size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  while (block_ < blocks_.size() && blocks_[block_].size - used_ < bytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const std::size_t size = std::max({bytes, kFirstBlock, 2 * capacity()});
    auto* memory = static_cast<std::byte*>(::operator new[](size, std::align_val_t{kAlignment}));
    blocks_.push_back({std::unique_ptr<std::byte[], Free>(memory), size});
    used_ = 0;
  }
  std::byte* at = blocks_[block_].memory.get() + used_;
  used_ += bytes;
  return at;
}

std::size_t Scratch::capacity() const {
  std::size_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

}  // namespace roundoff
