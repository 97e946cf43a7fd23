// What a device can do at most: stated peaks, which no measurement may exceed, and a ceiling that
// is measured here, a copy's bandwidth.
#pragma once

#include <memory>

#include "bench/cuda/timing.h"
#include "kernels/base/dtype.h"
#include "kernels/simt/cuda_support.h"
#include "kernels/simt/runtime.h"

namespace roundoff::bench {

// Operations a second (two a multiply-add) by the highest clock, the multiprocessors and the
// architecture's rate a clock (bench/evidence/device_spec.h): of tensor cores for 16-bit operands
// and tf32, else of plain multiply-adds. 0 where the architecture's rate is not known.
double peak_flops(const simt::GpuLimits& gpu, DType operands, bool tf32);

// Bytes read and written a second by the device's own copies of `bytes` at a time; the median of
// several.
double copy_bandwidth(const std::shared_ptr<simt::Runtime>& runtime, Stopwatch& stopwatch,
                      std::size_t bytes);

struct Ceilings {
  double peak_flops = 0;      // stated; 0: not known
  double peak_bytes = 0;      // stated; 0: not known
  double copy_bandwidth = 0;  // measured; 0: it was not
};
// The least seconds that the ceilings allow for so much arithmetic and traffic; 0 where neither is
// known.
double floor_seconds(const Ceilings& c, double flops, double bytes);

}  // namespace roundoff::bench
