#include "engine/storage.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/check.h"

using namespace roundoff;

namespace {

constexpr auto kWorkspace = MemoryCategory::workspace;
constexpr auto kActivations = MemoryCategory::activations;

std::int64_t current(const Allocator& a, MemoryCategory c) {
  return a.stats().current[static_cast<std::size_t>(c)];
}
std::int64_t peak(const Allocator& a, MemoryCategory c) {
  return a.stats().peak[static_cast<std::size_t>(c)];
}

}  // namespace

TEST_CASE("size classes: every block is large enough, aligned, and wastes little") {
  Allocator allocator;
  const auto check = [&](std::size_t n) {
    const Storage s = allocator.allocate(n, kWorkspace);
    REQUIRE(static_cast<bool>(s));
    REQUIRE(s.data() != nullptr);
    REQUIRE(s.bytes() == n);
    REQUIRE(reinterpret_cast<std::uintptr_t>(s.data()) % 64 == 0);
    REQUIRE(s.capacity() >= n);
    const std::size_t waste = s.capacity() - n;
    CAPTURE(n);
    REQUIRE((waste <= 64 || waste <= s.capacity() / 8));
    if (n != 0) std::memset(s.data(), 0xAB, n);  // a sanitizer sees a block that is too small
  };
  for (std::size_t n = 0; n <= 5000; ++n) check(n);
  // The edges of every class up to 64 MiB: powers of two and their eighths, one less, one more.
  for (std::size_t power = 4096; power <= (std::size_t{1} << 26); power *= 2) {
    for (std::size_t eighth = 0; eighth < 8; ++eighth) {
      for (const std::size_t off : {std::size_t{0}, std::size_t{1}, std::size_t{2}})
        check(power + eighth * (power / 8) + off - 1);
    }
    allocator.trim();
  }
}

TEST_CASE("what is freed is handed out again: a repeated pattern asks the system for nothing") {
  Allocator allocator;
  const auto pattern = [&] {
    std::vector<Storage> held;
    for (const std::size_t n : {0U, 1U, 64U, 65U, 1000U, 4096U, 100'000U, 64U, 1000U})
      held.push_back(allocator.allocate(n, kActivations));
    held.erase(held.begin() + 3);
    held.push_back(allocator.allocate(70, kActivations));  // the class of the erased 65
  };
  pattern();
  const std::int64_t first = allocator.stats().system_allocations;
  CHECK(first == 9);
  for (int i = 0; i < 10; ++i) pattern();
  CHECK(allocator.stats().system_allocations == first);
  CHECK(allocator.stats().total == 0);

  allocator.trim();
  pattern();
  CHECK(allocator.stats().system_allocations == 2 * first);
}

TEST_CASE("two live blocks never share memory, and a reused one is whole again") {
  Allocator allocator;
  std::vector<Storage> held;
  for (int round = 0; round < 3; ++round) {
    for (unsigned i = 0; i < 200; ++i) {
      held.push_back(allocator.allocate(1 + i * 13 % 700, kWorkspace));
      std::memset(held.back().data(), static_cast<int>(i), held.back().bytes());
    }
    for (unsigned i = 0; i < 200; ++i)
      for (std::size_t j = 0; j < held[i].bytes(); ++j)
        REQUIRE(held[i].data()[j] == static_cast<std::byte>(i));
    held.clear();
  }
}

TEST_CASE("accounting: bytes as asked for, by category, with peaks") {
  Allocator allocator;
  {
    const Storage weights = allocator.allocate(1000, MemoryCategory::parameters);
    {
      const Storage a = allocator.allocate(300, kActivations);
      const Storage b = allocator.allocate(17, kActivations);
      CHECK(current(allocator, kActivations) == 317);
      CHECK(current(allocator, MemoryCategory::parameters) == 1000);
      CHECK(allocator.stats().total == 1317);
    }
    CHECK(current(allocator, kActivations) == 0);
    CHECK(peak(allocator, kActivations) == 317);
    CHECK(allocator.stats().total == 1000);
    CHECK(allocator.stats().total_peak == 1317);
    // A reused block counts for the category that asks now, with its own size.
    const Storage c = allocator.allocate(290, MemoryCategory::gradients);
    CHECK(current(allocator, MemoryCategory::gradients) == 290);
    CHECK(current(allocator, kActivations) == 0);
    CHECK(peak(allocator, kActivations) == 317);

    allocator.reset_peaks();
    CHECK(peak(allocator, kActivations) == 0);
    CHECK(peak(allocator, MemoryCategory::parameters) == 1000);
    CHECK(allocator.stats().total_peak == 1290);
  }
  for (std::size_t c = 0; c < kMemoryCategories; ++c) CHECK(allocator.stats().current[c] == 0);
  CHECK(allocator.stats().total == 0);
  CHECK(name(MemoryCategory::parameters) == "parameters");
  CHECK(name(kWorkspace) == "workspace");
}

TEST_CASE("the node at which activations peak") {
  Allocator allocator;
  allocator.set_node("first");
  const Storage a = allocator.allocate(100, kActivations);
  allocator.set_node("second");
  {
    const Storage b = allocator.allocate(100, kActivations);
    const Storage w = allocator.allocate(1 << 20, kWorkspace);  // not an activation
  }
  allocator.set_node("third");
  const Storage c = allocator.allocate(100, kActivations);  // equals the peak, does not pass it
  CHECK(allocator.stats().activation_peak_node == "second");
  const Storage d = allocator.allocate(1, kActivations);
  CHECK(allocator.stats().activation_peak_node == "third");
  allocator.reset_peaks();
  CHECK(allocator.stats().activation_peak_node == "");
}

TEST_CASE("references: copy, move, assignment to itself; the last one gives the block back") {
  Allocator allocator;
  Storage a = allocator.allocate(128, kWorkspace);
  std::byte* const data = a.data();
  Storage b = a;
  CHECK(b.data() == data);
  a = Storage();
  CHECK(!a);
  CHECK(a.data() == nullptr);
  CHECK(a.bytes() == 0);
  CHECK(a.capacity() == 0);
  CHECK(allocator.stats().total == 128);
  Storage& same = b;
  b = same;
  CHECK(b.data() == data);
  b = std::move(same);
  CHECK(b.data() == data);
  CHECK(allocator.stats().total == 128);

  Storage c = std::move(b);
  CHECK(c.data() == data);
  CHECK(!b);  // NOLINT(bugprone-use-after-move): a moved-from handle is empty
  b = c;
  std::swap(b, c);
  c = allocator.allocate(64, kWorkspace);
  CHECK(allocator.stats().total == 192);
  b = c;  // the last reference to the first block
  CHECK(allocator.stats().total == 64);
  Storage d = allocator.allocate(128, kWorkspace);
  CHECK(d.data() == data);
}

TEST_CASE("blocks outlive their allocator, in any order of ends") {
  Storage survivor, copy;
  std::vector<Storage> many;
  {
    Allocator allocator;
    survivor = allocator.allocate(100, kWorkspace);
    copy = survivor;
    for (int i = 0; i < 50; ++i) many.push_back(allocator.allocate(1000, kActivations));
    many.erase(many.begin(), many.begin() + 25);  // cached, and given back with the allocator
  }
  std::memset(survivor.data(), 1, survivor.bytes());
  for (Storage& s : many) std::memset(s.data(), 2, s.bytes());
  survivor = Storage();
  many.clear();
  CHECK(copy.data()[99] == std::byte{1});
  copy = Storage();
  { const Allocator unused; }
}

TEST_CASE("a size that no machine has is refused, and nothing is counted") {
  Allocator allocator;
  for (const std::size_t n :
       {(std::size_t{1} << 46) + 1, std::size_t{1} << 63, std::numeric_limits<std::size_t>::max(),
        std::numeric_limits<std::size_t>::max() - 63})
    CHECK_THROWS_AS(allocator.allocate(n, kWorkspace), Error);
  CHECK(allocator.stats().total == 0);
  CHECK(allocator.stats().total_peak == 0);
  CHECK(allocator.stats().system_allocations == 0);
}

extern "C" [[gnu::weak]] int __asan_address_is_poisoned(const void volatile* address);

TEST_CASE("AddressSanitizer sees past the bytes asked for, and into blocks given back") {
  if (&__asan_address_is_poisoned == nullptr) return;  // another build
  Allocator allocator;
  const std::byte* data = nullptr;
  for (const std::size_t n : {std::size_t{0}, std::size_t{5}, std::size_t{64}, std::size_t{4097}}) {
    {
      const Storage s = allocator.allocate(n, kWorkspace);
      data = s.data();
      for (std::size_t i = 0; i < s.capacity(); ++i)
        REQUIRE((__asan_address_is_poisoned(data + i) != 0) == (i >= n));
    }
    CHECK(__asan_address_is_poisoned(data) != 0);
    const Storage again = allocator.allocate(n, kWorkspace);
    CHECK(again.data() == data);
    CHECK((__asan_address_is_poisoned(data) == 0) == (n != 0));
  }
}

TEST_CASE("an observer sees every block, with its margins, as it comes and goes") {
  struct Watch : AllocationObserver {
    std::vector<Allocation> came, went;
    std::size_t margin() const override { return 128; }
    void allocated(const Allocation& block) override {
      // All of it is the observer's to write.
      std::memset(block.data - 128, 0x5A, block.capacity + 256);
      came.push_back(block);
    }
    void released(const Allocation& block) override { went.push_back(block); }
  } watch;
  Allocator allocator;
  allocator.observe(&watch);
  allocator.set_node("first");
  const std::byte* data = nullptr;
  {
    const Storage s = allocator.allocate(100, kActivations);
    data = s.data();
    CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
    const Storage copy = s;
    CHECK(watch.came.size() == 1);
    CHECK(watch.went.empty());
  }
  REQUIRE(watch.went.size() == 1);
  CHECK(watch.came[0].data == data);
  CHECK(watch.came[0].bytes == 100);
  CHECK(watch.came[0].capacity == 128);
  CHECK(watch.came[0].category == kActivations);
  CHECK(watch.came[0].node == "first");
  CHECK(watch.went[0].data == data);
  // A block that is handed out again is another one.
  const Storage again = allocator.allocate(65, kWorkspace);
  CHECK(again.data() == data);
  CHECK(watch.came.size() == 2);
  CHECK(watch.came[1].bytes == 65);
  CHECK_THROWS_AS(allocator.observe(nullptr), Error);
}

TEST_CASE("a reserve keeps its blocks from everything else, until it goes away") {
  Allocator allocator;
  const std::byte* shared = allocator.allocate(1000, kWorkspace).data();
  const std::byte* reserved = nullptr;
  {
    Allocator::Reserve reserve(allocator);
    reserve.enter();
    reserved = allocator.allocate(1000, kWorkspace).data();
    CHECK(reserved != shared);
    CHECK(allocator.allocate(1000, kWorkspace).data() == reserved);
    reserve.leave();
    const Storage first = allocator.allocate(1000, kWorkspace);
    const Storage second = allocator.allocate(1000, kWorkspace);
    CHECK(first.data() == shared);
    CHECK(second.data() != reserved);
    reserve.enter();
    CHECK(allocator.allocate(1000, kWorkspace).data() == reserved);
    // Left by its end, too.
  }
  CHECK(allocator.stats().system_allocations == 3);
  std::vector<Storage> all;
  for (int i = 0; i < 3; ++i) all.push_back(allocator.allocate(1000, kWorkspace));
  CHECK(allocator.stats().system_allocations == 3);
}
