#include "engine/storage.h"

#include <algorithm>
#include <bit>
#include <new>

#include "engine/device.h"
#include "kernels/base/check.h"

// Under AddressSanitizer, what a block has beyond the bytes asked for, and a block that waits to be
// handed out again, are out of bounds: rounding sizes up and caching would hide both mistakes.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ROUNDOFF_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define ROUNDOFF_ASAN 1
#endif
#if defined(ROUNDOFF_ASAN)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace roundoff {

std::string_view name(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::parameters:
      return "parameters";
    case MemoryCategory::optimizer:
      return "optimizer";
    case MemoryCategory::gradients:
      return "gradients";
    case MemoryCategory::activations:
      return "activations";
    case MemoryCategory::workspace:
      return "workspace";
  }
  return "?";
}

namespace detail {

namespace {
constexpr std::size_t kAlignment = 64;
// Size classes: eight a power of two, so that at most 1/8 of a block is unused.
constexpr int kSteps = 8;
constexpr std::size_t kClasses = 64 * kSteps;
// The class of a block that is not kept.
constexpr std::size_t kExact = kClasses;

std::size_t class_of(std::size_t bytes) {
  const std::size_t units = std::max<std::size_t>((bytes + kAlignment - 1) / kAlignment, 1);
  if (units <= kSteps) return units - 1;
  const auto power = static_cast<std::size_t>(std::bit_width(units - 1)) - 1;  // >= 3
  const std::size_t step = std::size_t{1} << (power - 3);
  const std::size_t index = (units - 1 - (std::size_t{1} << power)) / step;
  return (power - 2) * kSteps + index;
}

std::size_t class_capacity(std::size_t size_class) {
  if (size_class < kSteps) return (size_class + 1) * kAlignment;
  const std::size_t power = size_class / kSteps + 2;
  const std::size_t step = std::size_t{1} << (power - 3);
  return ((std::size_t{1} << power) + (size_class % kSteps + 1) * step) * kAlignment;
}
}  // namespace

struct Pool {
  std::shared_ptr<DeviceQueue> queue;  // null: the host's memory
  bool exact = false;
  std::array<Block*, kClasses> free{};
  MemoryStats stats;
  std::string_view node = "";
  AllocationObserver* observer = nullptr;
  std::size_t margin = 0;
  std::int64_t live = 0;
  bool orphaned = false;

  void account(MemoryCategory category, std::int64_t bytes) {
    const auto c = static_cast<std::size_t>(category);
    stats.current[c] += bytes;
    stats.total += bytes;
    if (stats.current[c] > stats.peak[c]) {
      stats.peak[c] = stats.current[c];
      if (category == MemoryCategory::activations) stats.activation_peak_node = node;
    }
    stats.total_peak = std::max(stats.total_peak, stats.total);
  }
};

namespace {
// Whether AddressSanitizer is told what of a block may be used: not of a device's memory, which is
// not the host's to use at all, and not of what an observer looks after.
bool poisons(const Pool& pool) { return pool.queue == nullptr && pool.observer == nullptr; }

void destroy(Block* block) {
  if (block->pool->queue != nullptr) {
    block->pool->queue->runtime().free(block->base);
  } else {
    ASAN_UNPOISON_MEMORY_REGION(block->data, block->capacity);
    ::operator delete[](block->base, std::align_val_t{kAlignment});
  }
  delete block;
}

std::byte* obtain(const Pool& pool, std::size_t bytes) {
  if (pool.queue != nullptr) return static_cast<std::byte*>(pool.queue->runtime().allocate(bytes));
  return static_cast<std::byte*>(
      ::operator new[](bytes, std::align_val_t{kAlignment}, std::nothrow));
}

Allocation described(const Block& block) {
  return {block.data, block.bytes, block.capacity, block.category, block.pool->node};
}
}  // namespace

void release(Block* block) {
  Pool* pool = block->pool;
  if (pool->observer != nullptr) pool->observer->released(described(*block));
  pool->account(block->category, -static_cast<std::int64_t>(block->bytes));
  --pool->live;
  if (!pool->orphaned && block->size_class != kExact) {
    block->next_free = pool->free[block->size_class];
    pool->free[block->size_class] = block;
    if (poisons(*pool)) ASAN_POISON_MEMORY_REGION(block->data, block->capacity);
    return;
  }
  destroy(block);
  if (pool->orphaned && pool->live == 0) delete pool;
}

DeviceQueue* queue_of(const Block& block) { return block.pool->queue.get(); }

}  // namespace detail

Allocator::Allocator() : pool_(new detail::Pool) {}

Allocator::Allocator(std::shared_ptr<DeviceQueue> queue, bool exact) : Allocator() {
  pool_->queue = std::move(queue);
  pool_->exact = exact;
}

Allocator::~Allocator() {
  trim();
  pool_->orphaned = true;
  if (pool_->live == 0) delete pool_;
}

Storage Allocator::allocate(std::size_t bytes, MemoryCategory category) {
  // A size that no machine has must not reach the arithmetic of size classes.
  ROUNDOFF_CHECK(bytes <= (std::size_t{1} << 46), "memory", "cannot allocate ", bytes, " bytes");
  const std::size_t size_class = pool_->exact ? detail::kExact : detail::class_of(bytes);
  detail::Block* block = pool_->exact ? nullptr : pool_->free[size_class];
  if (block != nullptr) {
    pool_->free[size_class] = block->next_free;
  } else {
    const std::size_t capacity = pool_->exact ? bytes : detail::class_capacity(size_class);
    const std::size_t room = capacity + 2 * pool_->margin;
    std::byte* base = nullptr;
    try {
      base = detail::obtain(*pool_, room);
    } catch (const Error&) {
      trim();  // a device may have room for one large block where it had none beside the small ones
      base = detail::obtain(*pool_, room);
    }
    ROUNDOFF_CHECK(base != nullptr, "memory", "cannot allocate ", bytes, " bytes for ",
                   name(category));
    block = new detail::Block{};
    block->base = base;
    block->data = base + pool_->margin;
    block->capacity = capacity;
    block->size_class = static_cast<std::uint32_t>(size_class);
    block->pool = pool_;
    ++pool_->stats.system_allocations;
  }
  if (detail::poisons(*pool_)) {
    ASAN_UNPOISON_MEMORY_REGION(block->data, bytes);
    ASAN_POISON_MEMORY_REGION(block->data + bytes, block->capacity - bytes);
  }
  block->bytes = bytes;
  block->category = category;
  block->references = 1;
  ++pool_->live;
  pool_->account(category, static_cast<std::int64_t>(bytes));
  if (pool_->observer != nullptr) pool_->observer->allocated(detail::described(*block));
  return Storage(block);
}

void Allocator::observe(AllocationObserver* observer) {
  ROUNDOFF_CHECK(pool_->stats.system_allocations == 0, "memory",
                 "an allocator is observed from its first block on, or not at all");
  pool_->observer = observer;
  pool_->margin = observer == nullptr ? 0 : observer->margin();
  ROUNDOFF_CHECK(pool_->margin % detail::kAlignment == 0, "memory", "a margin of ", pool_->margin,
                 " bytes; a multiple of ", detail::kAlignment, " expected");
}

DeviceQueue* Allocator::queue() const { return pool_->queue.get(); }

Device Allocator::device() const {
  return pool_->queue == nullptr ? Device::cpu : pool_->queue->device();
}

const MemoryStats& Allocator::stats() const { return pool_->stats; }

void Allocator::reset_peaks() {
  pool_->stats.peak = pool_->stats.current;
  pool_->stats.total_peak = pool_->stats.total;
  pool_->stats.activation_peak_node = "";
}

void Allocator::set_node(std::string_view node) { pool_->node = node; }

void Allocator::trim() {
  for (detail::Block*& head : pool_->free) {
    while (head != nullptr) {
      detail::Block* next = head->next_free;
      detail::destroy(head);
      head = next;
    }
  }
}

struct Allocator::Reserve::Free {
  std::array<detail::Block*, detail::kClasses> lists{};
};

Allocator::Reserve::Reserve(Allocator& allocator)
    : pool_(allocator.pool_), free_(std::make_unique<Free>()) {}

Allocator::Reserve::~Reserve() {
  leave();
  for (std::size_t i = 0; i < detail::kClasses; ++i) {
    detail::Block*& to = pool_->free[i];
    while (detail::Block* block = free_->lists[i]) {
      free_->lists[i] = block->next_free;
      block->next_free = to;
      to = block;
    }
  }
}

void Allocator::Reserve::enter() {
  if (entered_) return;
  pool_->free.swap(free_->lists);
  entered_ = true;
}

void Allocator::Reserve::leave() {
  if (!entered_) return;
  pool_->free.swap(free_->lists);
  entered_ = false;
}

}  // namespace roundoff
