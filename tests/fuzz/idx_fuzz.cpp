#include "engine/io/idx.h"

#include <cstdint>
#include <cstdlib>

#include "engine/io/file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const std::uint32_t magic : {roundoff::kIdxImages, roundoff::kIdxLabels}) {
    try {
      const auto array = roundoff::parse_idx(std::as_bytes(std::span(data, size)), magic, "fuzz");
      if (array.bytes.size() != static_cast<std::size_t>(array.numel())) std::abort();
    } catch (const roundoff::FileError&) {
    }
  }
  return 0;
}
