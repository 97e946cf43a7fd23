// Where a kernel runs, as tag types: a launcher is an overload set over them, so that adding an
// operation edits no central interface.
#pragma once

#include <concepts>
#include <cstdint>

// A function that both compilers may put on a device.
#if defined(__CUDACC__)
#define ROUNDOFF_HD __host__ __device__
#else
#define ROUNDOFF_HD
#endif

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "Roundoff needs NaN and infinity: build without -ffast-math and -ffinite-math-only"
#endif

namespace roundoff {

// A queue of work on a device, as a plain handle that kernels' launchers take: a simulated stream
// (kernels/simt/emulator) or a CUstream. Null is the device's default stream.
struct StreamRef {
  void* handle = nullptr;
};

// Where kernels report bad data that only they can see, in the memory of their device: the first
// report stands. The host reads it with the step's other results.
struct DeviceErrors {
  std::int32_t code = 0;    // a DeviceError (kernels/base/device_error.h); 0: none
  std::int32_t detail = 0;  // what the code says of it
  std::int64_t where = 0;   // index of the element or row
  std::int64_t value = 0;   // what stood there
};

// The Eigen reference path on the host.
struct Ref {};
// The CUDA kernels on the host SIMT emulator.
struct Sim {
  StreamRef stream = {};
  DeviceErrors* errors = nullptr;
};
// The same, instrumented: every access is seen by the emulator's sanitizer and profiler.
struct Checked {
  StreamRef stream = {};
  DeviceErrors* errors = nullptr;
};
// The CUDA kernels on a GPU.
struct Cuda {
  StreamRef stream = {};
  DeviceErrors* errors = nullptr;
};

// A target whose operands lie in a device's memory.
template <class T>
concept DeviceTarget = std::same_as<T, Sim> || std::same_as<T, Checked> || std::same_as<T, Cuda>;

enum class Device : unsigned char { cpu, sim, cuda };

// What sums are formed in. fp32 is the training default, fp64 the oracle; fp16 rounds every
// multiply-add to fp16; v100, a100 and h100 model that GPU's tensor cores (numerics.md).
enum class Accumulator : unsigned char { fp32, fp64, fp16, v100, a100, h100 };

inline constexpr Accumulator kAccumulators[] = {Accumulator::fp32, Accumulator::fp64,
                                                Accumulator::fp16, Accumulator::v100,
                                                Accumulator::a100, Accumulator::h100};

constexpr const char* name(Accumulator accumulator) {
  constexpr const char* kNames[] = {"fp32", "fp64", "fp16", "v100", "a100", "h100"};
  return kNames[static_cast<int>(accumulator)];
}

}  // namespace roundoff
