#include "bench/cuda/ceilings.h"

#include <algorithm>

#include "bench/evidence/device_spec.h"

namespace roundoff::bench {

double peak_flops(const simt::GpuLimits& gpu, DType operands, bool tf32) {
  for (const evidence::DeviceSpec& d : evidence::device_specs()) {
    if (d.architecture != gpu.capability) continue;
    const double a_clock = is_16bit(operands)        ? d.tensor_16bit
                           : operands == DType::fp64 ? 2 * d.fma_fp64 /* by tensor cores */
                           : operands != DType::fp32 ? 0
                           : tf32                    ? d.tensor_tf32
                                                     : d.fma_fp32;
    return a_clock * gpu.multiprocessors * gpu.clock;
  }
  return 0;
}

double copy_bandwidth(const std::shared_ptr<simt::Runtime>& runtime, Stopwatch& stopwatch,
                      std::size_t bytes) {
  constexpr int kCopies = 4;
  simt::Stream stream(runtime);
  const simt::DeviceBuffer from(runtime, bytes), to(runtime, bytes);
  stream.fill(from.data(), 0x3C, bytes);
  const Replay copies{.stream = &stream,
                      .queue =
                          [&] {
                            for (int i = 0; i < kCopies; ++i)
                              stream.copy_within(to.data(), from.data(), bytes);
                          },
                      .passes = kCopies};
  const Timing t = take_turns({&copies, 1}, stopwatch,
                              {.least_rounds = 5, .most_rounds = 11, .seconds = 0.2})[0];
  return 2 * static_cast<double>(bytes) / t.seconds().median;
}

double floor_seconds(const Ceilings& c, double flops, double bytes) {
  const double compute = c.peak_flops > 0 ? flops / c.peak_flops : 0;
  const double memory = c.copy_bandwidth > 0 ? bytes / c.copy_bandwidth : 0;
  return std::max(compute, memory);
}

}  // namespace roundoff::bench
