// CIFAR-10's binary files: records of 3,073 bytes, a label in [0, 10) and 32 x 32 pixels, first all
// red ones, then green, then blue, row-major.
// Source: the description on the CIFAR-10 page of Alex Krizhevsky.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/data/array.h"

namespace roundoff {

struct Cifar10 {
  HostArray images;                  // uint8 [N, 32, 32, 3]
  std::vector<std::int64_t> labels;  // [N]
};

// Throws FileError for a file that is empty or no whole number of records, and for a label out of
// range, before anything is allocated.
Cifar10 parse_cifar10(std::span<const std::byte> bytes, std::string_view origin);

}  // namespace roundoff
