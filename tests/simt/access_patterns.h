// Kernels whose memory requests one can count by hand: one warp, one load and one store.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"

namespace roundoff {

// Lanes below `lanes` load `bytes` (2, 4, 8 or 16) at x + offset + lane * stride and store them at
// y + lane * bytes; x and y in device memory.
template <DeviceTarget T>
void launch_global_pattern(T target, unsigned bytes, unsigned lanes, unsigned offset,
                           unsigned stride, const unsigned char* x, unsigned char* y);
// The same for shared memory of 8 KiB: a store at lane * stride, then a load from there.
template <DeviceTarget T>
void launch_shared_pattern(T target, unsigned bytes, unsigned lanes, unsigned offset,
                           unsigned stride, unsigned char* y);
// ldmatrix of `count` (1, 2 or 4) matrices whose rows stand `pitch` bytes apart.
template <DeviceTarget T>
void launch_matrix_pattern(T target, unsigned count, unsigned pitch, std::uint32_t* y);
// cp.async of 16 bytes a lane to shared memory.
template <DeviceTarget T>
void launch_copy_pattern(T target, const unsigned char* x, unsigned char* y);
// Every lane adds 1 at the word lane * stride.
template <DeviceTarget T>
void launch_atomic_pattern(T target, unsigned stride, unsigned* y);
// Lane l goes l % 4 + 1 times round a loop that loads x[32 * round + l].
template <DeviceTarget T>
void launch_ragged_loop(T target, const float* x, float* y);
// y[i] = x[i] + 1 for 128 threads a block.
template <DeviceTarget T>
void launch_plus_one(T target, unsigned n, const float* x, float* y);

}  // namespace roundoff
