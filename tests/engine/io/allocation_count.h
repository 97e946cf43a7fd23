// Bytes that operator new has handed out and operator delete has not taken back, and their peak.
// Counted in this test program only: allocation_count.cpp replaces the global operators.
#pragma once

#include <cstddef>

namespace roundoff::testing {

std::size_t allocated_bytes();
std::size_t peak_allocated_bytes();
void reset_peak();  // to what is allocated now

}  // namespace roundoff::testing
