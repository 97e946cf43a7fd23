#include "kernels/simt/emulator/memory.h"

#include <sys/mman.h>

#include <cstring>
#include <iterator>

#include "kernels/base/check.h"

namespace roundoff::simt {

namespace {
// Large pages: the range is closed and opened around every launch, and that takes time for each
// page.
constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr std::size_t kRedZone = Memory::kAlignment;

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}
}  // namespace

Memory::Memory() {
  mapping_ = mmap(nullptr, kRange + kLargePage, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ROUNDOFF_CHECK(mapping_ != MAP_FAILED, "simulated device", "no address space for its memory");
  base_ = round_up(reinterpret_cast<std::uintptr_t>(mapping_), kLargePage);
  end_ = base_;
  madvise(reinterpret_cast<void*>(base_), kRange, MADV_HUGEPAGE);  // where the system has them
}

Memory::~Memory() { munmap(mapping_, kRange + kLargePage); }

void* Memory::allocate(std::size_t bytes) {
  // Address space is plentiful, so a freed range is not used again: what points to it stays wrong.
  const std::size_t room = round_up(bytes, kAlignment) + 2 * kRedZone;
  ROUNDOFF_CHECK(bytes <= kRange && base_ + kRange - end_ >= room, "simulated device",
                 "out of memory: ", bytes, " bytes asked for, ", allocated_, " in use");
  const std::uintptr_t begin = end_ + kRedZone;
  end_ += room;
  std::memset(reinterpret_cast<void*>(begin), 0xA5, bytes);
  allocations_[begin] = {begin, bytes, ++count_, false};
  allocated_ += bytes;
  ++version_;
  return reinterpret_cast<void*>(begin);
}

void Memory::free(void* p) {
  if (p == nullptr) return;
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(p));
  ROUNDOFF_CHECK(found != allocations_.end() && !found->second.freed, "simulated device",
                 "free of ", p, ", which is not the start of an allocation");
  found->second.freed = true;
  allocated_ -= found->second.bytes;
  ++version_;
  const std::uintptr_t first = round_up(found->second.begin, kLargePage);
  const std::uintptr_t last = (found->second.begin + found->second.bytes) / kLargePage * kLargePage;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

const Allocation* Memory::find(const void* p) const {
  auto after = allocations_.upper_bound(reinterpret_cast<std::uintptr_t>(p));
  return after == allocations_.begin() ? nullptr : &std::prev(after)->second;
}

void Memory::check_range(const void* p, std::size_t bytes, const char* operation) const {
  if (bytes == 0) return;
  const Allocation* a = find(p);
  ROUNDOFF_CHECK(a != nullptr && owns(p), operation, p, " is not memory of this simulated device");
  const std::size_t offset = reinterpret_cast<std::uintptr_t>(p) - a->begin;
  ROUNDOFF_CHECK(!a->freed, operation, p, " was freed");
  ROUNDOFF_CHECK(offset <= a->bytes && bytes <= a->bytes - offset, operation, bytes,
                 " bytes from offset ", offset, " of an allocation of ", a->bytes);
}

void Memory::protect(bool accessible) {
  const std::size_t used = round_up(end_ - base_, kLargePage);
  if (used != 0)
    ROUNDOFF_CHECK(mprotect(reinterpret_cast<void*>(base_), used,
                            accessible ? PROT_READ | PROT_WRITE : PROT_NONE) == 0,
                   "simulated device", "mprotect failed");
  accessible_ = accessible;
}

Memory::Open::Open(Memory& memory, bool guarded) : memory_(memory), guarded_(guarded) {
  if (memory_.open_++ == 0 && !memory_.accessible_) memory_.protect(true);
}
Memory::Open::~Open() {
  if (--memory_.open_ == 0 && guarded_) memory_.protect(false);
}

}  // namespace roundoff::simt
