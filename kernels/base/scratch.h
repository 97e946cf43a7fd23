// Workspace for kernels: memory that is handed out in stack order and kept between calls, so that a
// training step allocates nothing after its first run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/base/check.h"

namespace roundoff {

class Scratch {
 public:
  Scratch() = default;
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
    ~Frame() {
      scratch_.block_ = block_;
      scratch_.used_ = used_;
    }
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
  struct Free {
    void operator()(std::byte* p) const;
  };
  struct Block {
    std::unique_ptr<std::byte[], Free> memory;
    std::size_t size = 0;
  };
  void* get_bytes(std::size_t bytes);

  std::vector<Block> blocks_;
  std::size_t block_ = 0;  // the block that is being filled
  std::size_t used_ = 0;   // bytes used of it
};

}  // namespace roundoff
