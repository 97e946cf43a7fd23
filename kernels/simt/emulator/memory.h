// The memory of a simulated device: one reserved address range in which allocations stand apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "kernels/simt/emulator/api.h"

namespace roundoff::simt {

struct Allocation {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  std::uint64_t number = 0;  // in the order of allocation
  bool freed = false;        // kept for a while, to name what was used too late
};

class ROUNDOFF_SIMT_API Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  static constexpr std::size_t kRange = std::size_t{64} << 30;
  static constexpr std::size_t kAlignment = 256;

  // While open.
  void* allocate(std::size_t bytes);
  void free(void* p);
  std::size_t allocated_bytes() const { return allocated_; }
  bool owns(const void* p) const { return reinterpret_cast<std::uintptr_t>(p) - base_ < kRange; }
  std::uintptr_t base() const { return base_; }
  // The allocation that begins at or last before p; null where there is none.
  const Allocation* find(const void* p) const;
  // In the order of their addresses.
  template <class F>
  void for_each(F&& f) const {
    for (const auto& [begin, allocation] : allocations_) f(allocation);
  }
  // Throws, naming the operation, unless [p, p + bytes) lies in one live allocation.
  void check_range(const void* p, std::size_t bytes, const char* operation) const;
  // Grows with every allocation or release, so that a lookup may be remembered.
  std::uint64_t version() const { return version_; }

  // The range is accessible while somebody holds it open.
  class Open {
   public:
    Open(Memory& memory, bool guarded);
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    Memory& memory_;
    bool guarded_;
  };

 private:
  void protect(bool accessible);

  void* mapping_ = nullptr;
  std::uintptr_t base_ = 0;
  std::uintptr_t end_ = 0;  // of what was handed out
  std::size_t allocated_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t version_ = 0;
  int open_ = 0;
  bool accessible_ = true;
  std::map<std::uintptr_t, Allocation> allocations_;
};

}  // namespace roundoff::simt
