// The headers that host and device share, compiled by nvcc, with kernels that run their
// conversions.
#include "kernels/base/bfloat16.h"
#include "kernels/base/dtype.h"
#include "kernels/base/half.h"
#include "kernels/base/target.h"
#include "tests/device/conversions.h"
#include "tests/device/gpu.cuh"

using namespace roundoff;

// The same values as constant expressions under nvcc's front end.
static_assert(Half(65519.99609375F).bits == 0x7BFF && Half(65520.0F).bits == 0x7C00);
static_assert(Half(0x1.000002p-25F).bits == 0x0001 && Half(0x1p-25F).bits == 0x0000);
static_assert(Half(1.0 + 0x1p-11 + 0x1p-50).bits == 0x3C01);
static_assert(BFloat16(257.0F).bits == 0x4380 && BFloat16(0.1F).bits == 0x3DCD);
static_assert(static_cast<float>(Half::from_bits(0x0001)) == 0x1p-24F);
static_assert(sizeof(Half) == 2 && sizeof(BFloat16) == 2 && size_of(DType::bf16) == 2);

namespace {

constexpr unsigned kPatterns = 65536;

template <class T>
__global__ void widen_kernel(std::uint32_t* to_float, std::uint64_t* to_double) {
  const unsigned i = blockIdx.x * kBlock + threadIdx.x;
  if (i >= kPatterns) return;
  const T value = T::from_bits(static_cast<std::uint16_t>(i));
  to_float[i] = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  to_double[i] = std::bit_cast<std::uint64_t>(static_cast<double>(value));
}

template <class T, class From>
__global__ void narrow_kernel(const From* values, unsigned n, std::uint16_t* bits) {
  const unsigned i = blockIdx.x * kBlock + threadIdx.x;
  if (i < n) bits[i] = T(values[i]).bits;
}

}  // namespace

std::string device_absent() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) return cudaGetErrorString(status);
  return count == 0 ? "no GPU" : "";
}

template <class T>
Conversions widen_on_device() {
  Array<std::uint32_t> to_float(kPatterns);
  Array<std::uint64_t> to_double(kPatterns);
  launch(widen_kernel<T>, kPatterns, to_float.data(), to_double.data());
  return {to_float.read(), to_double.read()};
}

template <class T, class From>
std::vector<std::uint16_t> narrow_on_device(const std::vector<From>& values) {
  Array<From> from(values.size());
  from.fill(values);
  Array<std::uint16_t> bits(values.size());
  const auto n = static_cast<unsigned>(values.size());
  launch(narrow_kernel<T, From>, n, from.data(), n, bits.data());
  return bits.read();
}

template Conversions widen_on_device<Half>();
template Conversions widen_on_device<BFloat16>();
template std::vector<std::uint16_t> narrow_on_device<Half>(const std::vector<float>&);
template std::vector<std::uint16_t> narrow_on_device<Half>(const std::vector<double>&);
template std::vector<std::uint16_t> narrow_on_device<BFloat16>(const std::vector<float>&);
template std::vector<std::uint16_t> narrow_on_device<BFloat16>(const std::vector<double>&);
