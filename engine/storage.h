// Memory of tensors: reference-counted blocks from a caching allocator that accounts for them by
// category. Freed blocks are kept by size and handed out again, so that a training step allocates
// nothing from the system after its first run. On a device that is safe without waiting: an
// allocator's blocks are used by the work of one stream (engine/device.h), which is in order.
// Not thread-safe: an allocator and its tensors belong to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "kernels/base/target.h"

namespace roundoff {

class DeviceQueue;

enum class MemoryCategory : unsigned char {
  parameters,   // masters, compute copies, buffers
  optimizer,    // moments
  gradients,    // of parameters
  activations,  // what backward keeps, and the gradients of activations
  workspace     // inputs, constants and everything else
};
inline constexpr std::size_t kMemoryCategories = 5;
std::string_view name(MemoryCategory category);

// Bytes, as asked for (not rounded up to block sizes).
struct MemoryStats {
  std::array<std::int64_t, kMemoryCategories> current{};
  std::array<std::int64_t, kMemoryCategories> peak{};
  std::int64_t total = 0;
  std::int64_t total_peak = 0;
  // The node that was running when activations peaked.
  std::string_view activation_peak_node = "";
  // Blocks that were asked of the system since the start (a test counts them).
  std::int64_t system_allocations = 0;
};

// A block as it is handed out, and as it is given back.
struct Allocation {
  std::byte* data = nullptr;  // device memory where the allocator is a device's
  std::size_t bytes = 0;      // as asked for
  std::size_t capacity = 0;   // from data on; what is beyond `bytes` belongs to nobody
  MemoryCategory category = MemoryCategory::workspace;
  std::string_view node = "";  // that was running
};

// Watches an allocator's blocks: guard zones and poisoned memory (verify/guard.h).
class AllocationObserver {
 public:
  virtual ~AllocationObserver() = default;
  // Every block has so many bytes more before data and beyond its capacity, for the observer; a
  // multiple of 64, the same on every call.
  virtual std::size_t margin() const { return 0; }
  virtual void allocated(const Allocation& block) = 0;
  virtual void released(const Allocation& block) = 0;
};

namespace detail {
struct Pool;

struct Block {
  Pool* pool;
  std::byte* base;  // as the system gave it; a margin before data
  std::byte* data;
  Block* next_free;
  std::size_t capacity;
  std::size_t bytes;
  std::uint32_t references;
  std::uint32_t size_class;
  MemoryCategory category;
};
void release(Block* block);
DeviceQueue* queue_of(const Block& block);
}  // namespace detail

// A counted reference to a block of memory, 64-byte aligned.
class Storage {
 public:
  Storage() = default;
  Storage(const Storage& other) : block_(other.block_) {
    if (block_ != nullptr) ++block_->references;
  }
  Storage(Storage&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Storage& operator=(Storage other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Storage() {
    if (block_ != nullptr && --block_->references == 0) detail::release(block_);
  }

  // On a device the host cannot dereference it.
  std::byte* data() const { return block_ == nullptr ? nullptr : block_->data; }
  std::size_t bytes() const { return block_ == nullptr ? 0 : block_->bytes; }
  // Bytes of the block that serves it; at most 64, or 1/8 of them, are more than was asked for.
  std::size_t capacity() const { return block_ == nullptr ? 0 : block_->capacity; }
  explicit operator bool() const { return block_ != nullptr; }
  // The queue of the device that holds the block; null where the host does.
  DeviceQueue* queue() const { return block_ == nullptr ? nullptr : detail::queue_of(*block_); }

 private:
  friend class Allocator;
  explicit Storage(detail::Block* block) : block_(block) {}
  detail::Block* block_ = nullptr;
};

class Allocator {
 public:
  // Of the host's memory.
  Allocator();
  // Of a device's memory, for work on its queue. `exact`: every block has the size that was asked
  // for and is not kept, so that a checker knows its bounds. A null queue stands for the host.
  explicit Allocator(std::shared_ptr<DeviceQueue> queue, bool exact = false);
  ~Allocator();  // blocks that tensors still hold live on
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Not initialised. Zero bytes give a valid, empty block. Throws Error where memory is short.
  Storage allocate(std::size_t bytes, MemoryCategory category);

  Device device() const;
  DeviceQueue* queue() const;
  const MemoryStats& stats() const;
  // Peaks start again from what is held now.
  void reset_peaks();
  // Names the node that runs from now on, for MemoryStats::activation_peak_node (static storage).
  void set_node(std::string_view node);
  // Gives cached free blocks back to the system.
  void trim();
  // Not owned; must outlive the allocator's blocks. Throws once something was allocated.
  void observe(AllocationObserver* observer);

  // Blocks for work that is repeated at the same addresses whenever a graph is launched: what is
  // freed between enter() and leave() is handed out between them only, until the reserve goes away.
  // The allocator outlives it.
  class Reserve {
   public:
    explicit Reserve(Allocator& allocator);
    ~Reserve();
    Reserve(const Reserve&) = delete;
    Reserve& operator=(const Reserve&) = delete;
    void enter();
    void leave();

   private:
    struct Free;
    detail::Pool* pool_;
    std::unique_ptr<Free> free_;  // the other blocks, while entered
    bool entered_ = false;
  };

 private:
  detail::Pool* pool_;
};

}  // namespace roundoff
