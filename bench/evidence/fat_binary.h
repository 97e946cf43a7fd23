// The machine code for GPUs that a file holds.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace roundoff::evidence {

struct DeviceImage {
  int architecture;  // 80, 90
  bool specific;     // of this architecture alone: sm_90a
  std::span<const std::byte> cubin;
};

// Of a cubin, a fat binary, an object file, a program, a shared library or an archive of objects;
// views of `file`. Throws Error.
std::vector<DeviceImage> device_images(std::span<const std::byte> file, std::string_view origin);

}  // namespace roundoff::evidence
