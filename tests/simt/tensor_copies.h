// Kernels around TMA: one box, and a pipeline of boxes.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"
#include "kernels/simt/tensor_map.h"

namespace roundoff {

struct Coordinates {
  int at[kMaxTensorRank] = {};
};

// Loads one box to byte `place` of 16 KiB of shared memory that hold 0xEE, and returns them all.
template <DeviceTarget T>
void launch_tensor_load(T target, const TiledMap& map, const Coordinates& at, unsigned bytes,
                        unsigned place, std::uint8_t* out);
// The same for an im2col map of rank 4.
template <DeviceTarget T>
void launch_im2col_load(T target, const Im2colMap& map, const Coordinates& at,
                        std::uint16_t offset_w, std::uint16_t offset_h, unsigned bytes,
                        std::uint8_t* out);

// Writes the first `bytes` of shared memory, given by `image`, as one box.
template <DeviceTarget T>
void launch_tensor_store(T target, const TiledMap& map, const Coordinates& at, bool add,
                         unsigned bytes, const std::uint8_t* image);

// Every block of a cluster of `cluster` loads one part of x and sends it to all; each returns the
// whole: out[block] holds cluster * bytes. `tensor`: by a one-dimensional map of bytes, else a run.
template <DeviceTarget T>
void launch_multicast(T target, unsigned cluster, bool tensor, const TiledMap& map,
                      const std::uint8_t* x, unsigned bytes, std::uint8_t* out);

// y = x + 1 for a rows x columns matrix of floats, by boxes of 8 x 32 through a ring of `kStages`
// load stages and two store stages. A block takes every gridDim-th box.
template <DeviceTarget T>
void launch_tensor_pipeline(T target, unsigned blocks, const TiledMap& x, const TiledMap& y,
                            int rows, int columns);

// Thread 0 writes x[i] = i for i < 64 and then loads it back as one box, in the same kernel.
template <DeviceTarget T>
void launch_write_then_load(T target, const TiledMap& map, float* x, float* out);

enum class TensorMisuse : int {
  misaligned_box,
  wrong_rank,
  no_map,
  wrong_mode,
  beyond_allocation,
  too_few_bytes,
  too_many_bytes,
  early_exit_of_store,
  mask_outside,
  misaligned_run,
  im2col_start,
  no_store_wait,
};
template <DeviceTarget T>
void launch_tensor_misuse(T target, TensorMisuse misuse, const TiledMap& tiles,
                          const Im2colMap& im2col, std::uint8_t* x);

}  // namespace roundoff
