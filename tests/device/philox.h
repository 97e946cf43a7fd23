// Philox as a GPU computes it, to be compared with the host's.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/philox.h"

// The stream's bits for elements 0 .. n - 1 of a sample.
std::vector<std::uint32_t> bits_on_device(const roundoff::PhiloxStream& stream,
                                          std::uint32_t sample, std::uint32_t n);
