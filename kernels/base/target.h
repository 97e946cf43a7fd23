// Where a kernel runs, as tag types: a launcher is an overload set over them, so that adding an
// operation edits no central interface.
#pragma once

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

// The Eigen reference path on the host.
struct Ref {};
// The CUDA kernels on the host SIMT emulator.
struct Sim {};
// The CUDA kernels on a GPU.
struct Cuda {};

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
