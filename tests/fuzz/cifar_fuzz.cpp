#include "engine/io/cifar.h"

#include <cstdint>
#include <cstdlib>

#include "engine/io/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto batch = roundoff::parse_cifar10(std::as_bytes(std::span(data, size)), "fuzz");
    if (batch.images.bytes.size() + batch.labels.size() != size) std::abort();
    for (const auto label : batch.labels)
      if (label < 0 || label > 9) std::abort();
  } catch (const roundoff::FileError&) {
  }
  return 0;
}
