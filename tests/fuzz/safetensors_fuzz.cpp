#include "engine/io/safetensors.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

// What is read must come back from writing it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto file = roundoff::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
    std::vector<roundoff::TensorBytes> tensors;
    for (const auto& [name, array] : file.tensors) tensors.emplace_back(name, array);
    const auto back = roundoff::parse_safetensors(
        roundoff::serialize_safetensors(tensors, file.metadata), "back");
    if (!back.checksummed || back.metadata != file.metadata ||
        back.tensors.size() != file.tensors.size())
      std::abort();
    for (const auto& [name, array] : file.tensors) {
      const auto& other = back.tensors.at(name);
      if (other.type != array.type || !(other.shape == array.shape) || other.bytes != array.bytes)
        std::abort();
    }
  } catch (const roundoff::FileError&) {
  }
  return 0;
}
