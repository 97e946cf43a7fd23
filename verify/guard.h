// Sentinels around every buffer, and poison in it: what a kernel writes beside its output shows,
// what it leaves out shows as NaN, and what it reads beside its operands is NaN too.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/storage.h"

namespace roundoff {

// How the host reaches the memory of a device; plain copies on a cpu. Both wait until it is done.
struct MemoryAccess {
  std::function<void(void* device, const void* host, std::size_t bytes)> to_device;
  std::function<void(void* host, const void* device, std::size_t bytes)> to_host;
};
MemoryAccess host_memory();

// Watches one allocator from its first block on; must outlive the blocks.
class MemoryGuard : public AllocationObserver {
 public:
  // Bytes before and after every block; a kernel's tile that is one row or one vector off lands in
  // it.
  static constexpr std::size_t kMargin = 1024;

  explicit MemoryGuard(MemoryAccess access) : access_(std::move(access)) {}

  std::size_t margin() const override { return kMargin; }
  void allocated(const Allocation& block) override;
  void released(const Allocation& block) override;

  // What messages call the buffer that holds `data`; for as long as it lives.
  void name_buffer(const void* data, std::string name);
  // Every sentinel that was overwritten so far, one line each: "y (260 bytes, activations, node
  // softmax): 4 bytes after its end were overwritten, from byte 260 on". Each is told once.
  std::vector<std::string> overruns();

 private:
  struct Block {
    Allocation allocation;
    std::string name;
    std::string node;
    std::size_t salt = 0;
  };
  void inspect(Block& block);
  void write_block(const Block& block, bool poison);

  MemoryAccess access_;
  std::map<const std::byte*, Block> live_;
  std::vector<std::string> found_;
  std::vector<std::byte> scratch_;
  std::size_t blocks_ = 0;
};

// The 16-bit patterns of sentinels, from the first of them on, and of poison: NaN in every floating
// type, large as integers.
inline constexpr unsigned kSentinel = 0x7FC1;
inline constexpr unsigned kSentinels = 0x7FFF - kSentinel + 1;
inline constexpr unsigned kPoison = 0xFFFF;

}  // namespace roundoff
