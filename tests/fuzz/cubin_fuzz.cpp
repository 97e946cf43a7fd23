#include <cstdint>
#include <span>

#include "bench/evidence/kernel_code.h"
#include "kernels/base/check.h"

// Any bytes are kernels or an error.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)roundoff::evidence::read_kernels(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const roundoff::Error&) {
  }
  return 0;
}
