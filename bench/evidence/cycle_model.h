// A model of the time that a product's kernel takes on a GPU. What it gives is predicted: no
// figure of it was measured, and none may stand in a column with measured ones. It is meant to
// order kernels, tiles and shapes; the tests compare that order with public measurements.
//
// A block goes through its depth in steps. A step uses, in clocks of one multiprocessor:
//   arithmetic   operations / rate (mma.sync reaches a part of the tensor cores' rate)
//   shared       bytes that the products read and the copies write / 128
//   L2           bytes of operands that L2 delivers / its share; multicast divides those of B
// Resources that work side by side get in each other's way near their limits: together they take
// the p-norm of their times. Blocks on one multiprocessor hide each other's waiting. Beside that
// the whole GPU has its memory (bytes after reuse in L2) and, for 16-bit products, its power.
// Waves, tails, the fill of the pipeline, the way out of a tile and the launch come on top.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "bench/evidence/device_spec.h"
#include "kernels/gemm/kernel.h"

namespace roundoff::evidence {

// A product C[m, n] = A[m, k] B[k, n], `batch` times. A convolution is one with m = N P Q
// (forward).
struct ProductShape {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t batch = 1;
  Arithmetic arithmetic = Arithmetic::bf16;
  int operand_bytes = 2;  // an element of A and B
  int output_bytes = 2;   // an element of C
  bool reads_c = false;   // beta, a residual or an fp32 sum that is added to
  // Bytes that must move at least; 0: each operand once and C once. A convolution's patches
  // overlap, so that its input is smaller than its A.
  double least_bytes = 0;

  double operations() const;
  double bytes() const;
};

// How a kernel cuts a product. Tiles in elements; what does not apply to a rung is not read.
struct KernelPlan {
  ProductKernel kernel = ProductKernel::sm80;
  int tile_m = 0, tile_n = 0, tile_k = 0;  // of a block; of one consumer for ping_pong
  int warp_m = 0, warp_n = 0;  // of a warp (mma, sm80); the instruction's n (wgmma and later)
  int stages = 1;              // tiles of depth in shared memory
  int cluster = 1;             // blocks that share B by multicast (sm90, ping_pong)
  int threads = 256;           // of a block
  int blocks_per_sm = 1;       // resident at once
  double bank_conflicts = 1;   // wavefronts of ldmatrix for each that it needs
  int split_k = 1;             // parts of the depth, added by a second kernel
};

// The plans that a rung has, the largest tile first (kernels/gemm). Throws for automatic.
std::span<const KernelPlan> plans_of(ProductKernel kernel);
// The first of them.
const KernelPlan& usual_plan(ProductKernel kernel);
// The one that is predicted to be fastest where sums are cut into so many parts.
KernelPlan best_plan(const DeviceSpec& device, const ProductShape& shape, ProductKernel kernel,
                     int split_k = 1);

enum class Resource : unsigned char { arithmetic, shared, l2, latency, memory, power, launch };
std::string_view name(Resource resource);

struct Prediction {
  double seconds = 0;
  Resource limit = Resource::arithmetic;  // what takes the largest part
  double floor_seconds = 0;               // roofline_floor() of the shape
  double share_of_floor() const { return floor_seconds / seconds; }  // 1 is the roofline
  double operations_per_second = 0;
  double waves = 0;  // tiles / tiles that run at once
  double tail_share =
      0;  // part of the multiprocessors' time in which the last wave leaves them idle
};

// Throws for a plan that cannot be (no tile, no stage, a kernel that the device does not have) and
// for sizes below 0.
Prediction predict(const DeviceSpec& device, const ProductShape& shape, const KernelPlan& plan);

// A kernel that only moves bytes: at the sustained bandwidth, after one launch.
Prediction predict_stream(const DeviceSpec& device, double bytes, double operations = 0,
                          Arithmetic arithmetic = Arithmetic::fp32);

}  // namespace roundoff::evidence
