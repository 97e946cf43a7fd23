#include "kernels/base/scratch.h"

#include <algorithm>
#include <new>

namespace roundoff {

namespace {
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kFirstBlock = std::size_t{1} << 20;
}  // namespace

std::byte* Scratch::add(std::size_t size) {
  blocks_.reserve(blocks_.size() + 1);
  void* memory = source_ != nullptr ? source_->allocate(size)
                                    : ::operator new[](size, std::align_val_t{kAlignment});
  blocks_.push_back({static_cast<std::byte*>(memory), size});
  return blocks_.back().memory;
}

void Scratch::drop_last() noexcept {
  if (source_ != nullptr)
    source_->free(blocks_.back().memory);
  else
    ::operator delete[](blocks_.back().memory, std::align_val_t{kAlignment});
  blocks_.pop_back();
}

Scratch::~Scratch() {
  while (!blocks_.empty()) drop_last();
}

void* Scratch::get_bytes(std::size_t bytes) {
  if (exact_) {
    std::byte* memory = add(bytes);
    block_ = blocks_.size();
    return memory;
  }
  bytes = std::max<std::size_t>((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  while (block_ < blocks_.size() && blocks_[block_].size - used_ < bytes) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    add(std::max({bytes, kFirstBlock, 2 * capacity()}));
    used_ = 0;
  }
  std::byte* at = blocks_[block_].memory + used_;
  used_ += bytes;
  return at;
}

std::size_t Scratch::capacity() const {
  std::size_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

}  // namespace roundoff
