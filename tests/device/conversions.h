// The storage types' conversions as a GPU computes them, to be compared with the host's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Empty where a kernel can run, else why not (no driver, no GPU).
std::string device_absent();

// Bits of float(x), double(x) and back for every one of the 65,536 patterns, T in {Half, BFloat16}.
struct Conversions {
  std::vector<std::uint32_t> to_float;
  std::vector<std::uint64_t> to_double;
};
template <class T>
Conversions widen_on_device();

// T(x) of every element.
template <class T, class From>
std::vector<std::uint16_t> narrow_on_device(const std::vector<From>& values);
