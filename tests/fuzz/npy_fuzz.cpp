#include "engine/io/npy.h"

#include <cstdint>
#include <cstdlib>

// What is read must come back from every way of writing it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto array = roundoff::parse_npy(std::as_bytes(std::span(data, size)), "fuzz");
    const roundoff::NpyOptions options{
        .version = static_cast<int>(1 + size % 3),
        .big_endian = size / 3 % 2 != 0,
        .fortran_order = size / 6 % 2 != 0,
    };
    const auto back = roundoff::parse_npy(
        roundoff::serialize_npy(array.type, array.shape, array.bytes, options), "back");
    if (back.type != array.type || !(back.shape == array.shape) || back.bytes != array.bytes)
      std::abort();
  } catch (const roundoff::FileError&) {
  }
  return 0;
}
