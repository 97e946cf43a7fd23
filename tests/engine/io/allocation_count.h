// Bytes that operator new has handed out and operator delete has not taken back, and their peak.
// Counted in this test program only: allocation_count.cpp replaces the global operators.
#pragma once

#include <cstddef>

namespace roundoff::testing {

std::size_t allocated_bytes();
std::size_t allocations();  // so far
std::size_t peak_allocated_bytes();
void reset_peak();  // to what is allocated now

// The largest number of bytes that f held at once, on top of what was there before.
template <class F>
std::size_t peak_during(F&& f) {
  const std::size_t before = allocated_bytes();
  reset_peak();
  f();
  return peak_allocated_bytes() - before;
}

}  // namespace roundoff::testing
