#include "tests/device/philox.h"

#include "tests/device/gpu.cuh"

using namespace roundoff;

static_assert(uniform(0xFFFFFFFFU) < 1.0F && uniform(0) == 0.0F);

namespace {

__global__ void bits_kernel(PhiloxStream stream, std::uint32_t sample, std::uint32_t n,
                            std::uint32_t* bits) {
  const std::uint32_t i = blockIdx.x * kBlock + threadIdx.x;
  if (i < n) bits[i] = stream.bits(sample, i);
}

}  // namespace

std::vector<std::uint32_t> bits_on_device(const PhiloxStream& stream, std::uint32_t sample,
                                          std::uint32_t n) {
  Array<std::uint32_t> bits(n);
  launch(bits_kernel, n, stream, sample, n, bits.data());
  return bits.read();
}
