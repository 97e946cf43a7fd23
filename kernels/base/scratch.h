// Workspace for kernels: memory that is handed out in stack order and kept between calls, so that a
// training step allocates nothing after its first run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/check.h"

namespace roundoff {

// Where a device's workspace comes from: memory that the host may not be able to read.
class ScratchSource {
 public:
  virtual ~ScratchSource() = default;
  // 64-byte aligned; throws where memory is short.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void free(void* memory) noexcept = 0;
};

class Scratch {
 public:
  // Of the host's memory, or of what `source` gives. `exact`: every piece is an allocation of its
  // own, freed with its Frame, so that a checker knows its bounds.
  explicit Scratch(std::shared_ptr<ScratchSource> source = nullptr, bool exact = false)
      : source_(std::move(source)), exact_(exact) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // n >= 0 elements of T, 64-byte aligned, not initialised, valid until the enclosing Frame ends.
  template <class T>
  T* get(std::int64_t n) {
    ROUNDOFF_CHECK(n >= 0 && n <= std::numeric_limits<std::int64_t>::max() / 2 /
                                      static_cast<std::int64_t>(sizeof(T)),
                   "scratch", n, " elements asked for");
    return static_cast<T*>(get_bytes(static_cast<std::size_t>(n) * sizeof(T)));
  }

  // Everything got after the construction of a Frame is given back at its end.
  class Frame {
   public:
    explicit Frame(Scratch& scratch)
        : scratch_(scratch), block_(scratch.block_), used_(scratch.used_) {}
    ~Frame() { scratch_.go_back(block_, used_); }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Scratch& scratch_;
    std::size_t block_;
    std::size_t used_;
  };

  // Bytes held from the system.
  std::size_t capacity() const;

 private:
  struct Block {
    std::byte* memory = nullptr;
    std::size_t size = 0;
  };
  void* get_bytes(std::size_t bytes);
  std::byte* add(std::size_t size);
  void drop_last() noexcept;
  void go_back(std::size_t block, std::size_t used) noexcept {
    block_ = block;
    used_ = used;
    while (exact_ && blocks_.size() > block_) drop_last();
  }

  std::shared_ptr<ScratchSource> source_;
  bool exact_ = false;
  std::vector<Block> blocks_;
  std::size_t block_ = 0;  // the block that is being filled; where exact: how many there are
  std::size_t used_ = 0;   // bytes used of it
};

}  // namespace roundoff
