#include "bench/evidence/cycle_model.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "kernels/base/check.h"

namespace roundoff::evidence {
namespace {

// What is assumed where no maker states a figure; of the size that microbenchmarks report.
constexpr double kSharpness = 8;            // of the p-norm: two equal loads cost 9% more than one
constexpr double kMemoryLatency = 600;      // clocks from a copy's issue to its bytes
constexpr double kBarrier = 40;             // clocks of a block-wide barrier
constexpr double kDrain = 150;              // clocks until waiting for all wgmma lets new ones run
constexpr double kMbarrierWait = 20;        // clocks of a barrier whose phase has ended
constexpr double kExit = 300;               // clocks of a tile's way out beside its bytes
constexpr double kStoreBytesPerClock = 32;  // of one multiprocessor into L2
constexpr double kLaunchSeconds = 2.5e-6;
constexpr double kUsableL2 = 0.8;  // part of L2 in which operands stay
constexpr double kIssueOfTiles =
    72.0 / 64;  // instructions a fused multiply-add of an 8 x 8 thread tile

double p_norm(std::initializer_list<double> parts) {
  const double largest = std::max(parts);
  if (largest <= 0) return 0;
  double sum = 0;
  for (const double part : parts) sum += std::pow(part / largest, kSharpness);
  return largest * std::pow(sum, 1 / kSharpness);
}

double divided_up(double a, double b) { return std::ceil(a / b); }

bool is_persistent(ProductKernel kernel) {
  return kernel == ProductKernel::sm90 || kernel == ProductKernel::ping_pong;
}
bool uses_wgmma(ProductKernel kernel) {
  return kernel == ProductKernel::wgmma || is_persistent(kernel);
}
bool uses_tensor_cores(ProductKernel kernel) {
  return kernel != ProductKernel::naive && kernel != ProductKernel::tiles;
}

// Clocks of one step of one block, resource by resource.
struct Step {
  double arithmetic, shared, l2;
  double together() const { return p_norm({arithmetic, shared, l2}); }
  Resource largest() const {
    if (arithmetic >= shared && arithmetic >= l2) return Resource::arithmetic;
    return shared >= l2 ? Resource::shared : Resource::l2;
  }
};

double arithmetic_clocks(const DeviceSpec& device, const ProductShape& shape,
                         const KernelPlan& plan) {
  const double operations = 2.0 * plan.tile_m * plan.tile_n * plan.tile_k;
  if (!uses_tensor_cores(plan.kernel)) {
    const bool wide = shape.arithmetic == Arithmetic::fp64;
    return operations / (wide ? device.fma_fp64 : device.fma_fp32) * kIssueOfTiles;
  }
  const double rate =
      shape.arithmetic == Arithmetic::tf32 ? device.tensor_tf32 : device.tensor_16bit;
  return operations / (uses_wgmma(plan.kernel) ? rate : rate * device.mma_sync_share);
}

// Bytes that go through shared memory (for naive: through L1, which is the same memory).
double shared_bytes(const ProductShape& shape, const KernelPlan& plan) {
  const double m = plan.tile_m, n = plan.tile_n, k = plan.tile_k;
  const double bytes = shape.operand_bytes;
  switch (plan.kernel) {
    case ProductKernel::naive:
      // Two loads a fused multiply-add, a line of 128 bytes each for a warp.
      return 2 * m * n * k / 32 * 128;
    case ProductKernel::tiles: {
      const double element = shape.arithmetic == Arithmetic::fp64 ? 8 : 4;
      const double warps = m / plan.warp_m * (n / plan.warp_n);
      return (warps * (plan.warp_m + plan.warp_n) + m + n) * k * element;
    }
    case ProductKernel::mma:
    case ProductKernel::sm80: {
      const double warps = m / plan.warp_m * (n / plan.warp_n);
      return (warps * (plan.warp_m + plan.warp_n) * plan.bank_conflicts + m + n) * k * bytes;
    }
    default: {
      const double instructions = m / 64 * (n / plan.warp_n);
      return (instructions * (64 + plan.warp_n) + m + n) * k * bytes;
    }
  }
}

Step step_of(const DeviceSpec& device, const ProductShape& shape, const KernelPlan& plan) {
  const double operand_bytes = (plan.tile_m + static_cast<double>(plan.tile_n) / plan.cluster) *
                               plan.tile_k * shape.operand_bytes;
  return {arithmetic_clocks(device, shape, plan),
          shared_bytes(shape, plan) / device.shared_bytes_per_clock,
          operand_bytes / device.l2_bytes_per_clock};
}

// Clocks of a step of a block that is alone on its multiprocessor.
double alone(const Step& step, const KernelPlan& plan) {
  const double copy = kMemoryLatency + step.l2;
  const double together = step.together();
  switch (plan.kernel) {
    case ProductKernel::naive:
      return together + kBarrier;  // the latency of a hit in L1
    case ProductKernel::tiles:
    case ProductKernel::mma:
      if (plan.stages < 2) return together + copy + 2 * kBarrier;
      break;
    default:
      if (plan.stages < 2) return together + copy + kDrain;
  }
  double gap = kBarrier;
  if (plan.kernel == ProductKernel::wgmma) gap = kDrain;
  if (is_persistent(plan.kernel)) gap = kMbarrierWait;
  return std::max(together + gap, copy / (plan.stages - 1));
}

struct Tiles {
  double m, n, all;
  double steps;  // of a part of a tile
};

Tiles tiles_of(const ProductShape& shape, const KernelPlan& plan) {
  // A cluster takes neighbouring rows of tiles.
  const double rows =
      divided_up(divided_up(static_cast<double>(shape.m), plan.tile_m), plan.cluster) *
      plan.cluster;
  const double columns = divided_up(static_cast<double>(shape.n), plan.tile_n);
  const double steps =
      divided_up(divided_up(static_cast<double>(shape.k), plan.tile_k), plan.split_k);
  return {rows, columns, rows * columns * static_cast<double>(shape.batch) * plan.split_k, steps};
}

// Bytes between memory and L2: what the tiles that run at once share is read once.
double memory_bytes(const DeviceSpec& device, const ProductShape& shape, const KernelPlan& plan,
                    const Tiles& tiles) {
  const double least = shape.bytes();
  const double depth = static_cast<double>(shape.k) * shape.operand_bytes;
  const double operands = (static_cast<double>(shape.m) + static_cast<double>(shape.n)) * depth;
  double bytes = least;
  if (operands > kUsableL2 * device.l2_bytes) {
    const double at_once =
        std::min(tiles.m * tiles.n, static_cast<double>(device.sms) * plan.blocks_per_sm);
    double best = operands * at_once;
    for (double rows = 1; rows <= std::min(at_once, tiles.m); ++rows) {
      const double columns = std::min(divided_up(at_once, rows), tiles.n);
      const double waves = tiles.m * tiles.n / std::min(at_once, rows * columns);
      best = std::min(best, waves * (rows * plan.tile_m + columns * plan.tile_n) * depth);
    }
    bytes += std::max(0.0, best - operands) * static_cast<double>(shape.batch);
  }
  return bytes;
}

void check(const DeviceSpec& device, const ProductShape& shape, const KernelPlan& plan) {
  const std::string_view kernel = roundoff::name(plan.kernel);
  ROUNDOFF_CHECK(plan.kernel != ProductKernel::automatic, "evidence",
                 "a plan names its kernel, not automatic");
  ROUNDOFF_CHECK(shape.m >= 0 && shape.n >= 0 && shape.k >= 0 && shape.batch >= 0, "evidence",
                 "a product of ", shape.m, " x ", shape.n, " x ", shape.k, ", batch ", shape.batch,
                 ", expected sizes of 0 and more");
  ROUNDOFF_CHECK(plan.tile_m > 0 && plan.tile_n > 0 && plan.tile_k > 0 && plan.stages > 0 &&
                     plan.cluster > 0 && plan.blocks_per_sm > 0 && plan.split_k > 0,
                 "evidence", "a plan of ", kernel, " with a tile, stage or count below 1");
  ROUNDOFF_CHECK(plan.kernel == ProductKernel::naive || plan.warp_n > 0, "evidence", "a plan of ",
                 kernel, " without the part of a tile that a warp or an instruction takes");
  ROUNDOFF_CHECK(plan.kernel == ProductKernel::naive || uses_wgmma(plan.kernel) || plan.warp_m > 0,
                 "evidence", "a plan of ", kernel, " without the rows that a warp takes");
  ROUNDOFF_CHECK(!uses_wgmma(plan.kernel) || device.architecture >= 90, "evidence", "an ",
                 device.name, " has no kernel ", kernel, ", which needs sm_90a");
  ROUNDOFF_CHECK(!uses_tensor_cores(plan.kernel) || shape.arithmetic < Arithmetic::fp32, "evidence",
                 "kernel ", kernel, " does not compute in ", name(shape.arithmetic),
                 ", expected fp16, bf16 or tf32");
}

}  // namespace

double ProductShape::operations() const {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
         static_cast<double>(batch);
}

double ProductShape::bytes() const {
  if (least_bytes > 0) return least_bytes;
  const double rows = static_cast<double>(m), columns = static_cast<double>(n);
  return ((rows + columns) * static_cast<double>(k) * operand_bytes +
          rows * columns * output_bytes * (reads_c ? 2 : 1)) *
         static_cast<double>(batch);
}

std::string_view name(Resource resource) {
  switch (resource) {
    case Resource::arithmetic:
      return "arithmetic";
    case Resource::shared:
      return "shared memory";
    case Resource::l2:
      return "L2";
    case Resource::latency:
      return "latency";
    case Resource::memory:
      return "memory";
    case Resource::power:
      return "power";
    case Resource::launch:
      return "launch";
  }
  return "?";
}

Prediction predict(const DeviceSpec& device, const ProductShape& shape, const KernelPlan& plan) {
  check(device, shape, plan);
  Prediction result;
  result.floor_seconds =
      roofline_floor(device, shape.arithmetic, shape.operations(), shape.bytes()).seconds;
  const Tiles tiles = tiles_of(shape, plan);
  if (tiles.all == 0) {
    result.seconds = kLaunchSeconds;
    result.limit = Resource::launch;
    return result;
  }

  const Step step = step_of(device, shape, plan);
  const double step_alone = alone(step, plan);
  const double output = static_cast<double>(plan.tile_m) * plan.tile_n *
                        (plan.split_k > 1 ? 4 : shape.output_bytes * (shape.reads_c ? 2 : 1));
  const double fill = kMemoryLatency + step.l2;
  // A persistent kernel hands its tile to TMA and goes on; what remains is rounding and stmatrix.
  const double exit =
      kExit + (is_persistent(plan.kernel) ? 2 * output / device.shared_bytes_per_clock
                                          : output / kStoreBytesPerClock);

  // Clocks a tile with `resident` of them at once on a multiprocessor.
  const auto tile_clocks = [&](double resident) {
    if (plan.kernel == ProductKernel::sm90)
      return std::max(tiles.steps * step.together(), (tiles.steps * step_alone + exit) / resident);
    if (plan.kernel == ProductKernel::ping_pong)
      return std::max(tiles.steps * step_alone, (tiles.steps * step_alone + exit) / 2);
    return std::max(tiles.steps * step.together(),
                    (fill + tiles.steps * step_alone + exit) / resident);
  };
  const double sms = std::max(1, device.sms / plan.cluster) * plan.cluster;
  const double per_sm = divided_up(tiles.all, sms);
  const double resident = plan.kernel == ProductKernel::ping_pong ? 1 : plan.blocks_per_sm;
  const double rounds = std::floor(per_sm / resident);
  const double rest = per_sm - rounds * resident;
  double clocks = rounds * resident * tile_clocks(resident);
  if (rest > 0) clocks += rest * tile_clocks(rest);
  if (is_persistent(plan.kernel)) clocks += fill + exit;

  const double sm_seconds = clocks / device.clock;
  const double partials = plan.split_k > 1
                              ? static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                                    static_cast<double>(shape.batch) * plan.split_k * 4
                              : 0;
  const double memory_seconds =
      (memory_bytes(device, shape, plan, tiles) + partials) / device.copy_bandwidth;
  double power_seconds = 0;
  if (uses_tensor_cores(plan.kernel)) {
    const double sustained =
        device.sustained_16bit *
        (shape.arithmetic == Arithmetic::tf32 ? device.tensor_tf32 / device.tensor_16bit : 1);
    power_seconds = shape.operations() / sustained;
  }
  const double work = p_norm({sm_seconds, memory_seconds, power_seconds});
  // The parts are added by a second kernel that reads them once.
  const double reduction = plan.split_k > 1 ? kLaunchSeconds + partials / device.copy_bandwidth : 0;
  result.seconds = kLaunchSeconds + work + reduction;
  result.operations_per_second = shape.operations() / result.seconds;
  result.waves = tiles.all / (sms * resident);
  result.tail_share = 1 - tiles.all / (per_sm * sms);

  if (kLaunchSeconds > work)
    result.limit = Resource::launch;
  else if (memory_seconds >= sm_seconds && memory_seconds >= power_seconds)
    result.limit = Resource::memory;
  else if (power_seconds >= sm_seconds)
    result.limit = Resource::power;
  else if (tile_clocks(std::min(per_sm, resident)) > 1.25 * tiles.steps * step.together())
    result.limit = Resource::latency;
  else
    result.limit = step.largest();
  return result;
}

Prediction predict_stream(const DeviceSpec& device, double bytes, double operations,
                          Arithmetic arithmetic) {
  Prediction result;
  const double memory = bytes / device.copy_bandwidth;
  const double compute = operations / device.rate(arithmetic);
  const double work = p_norm({memory, compute});
  result.floor_seconds = roofline_floor(device, arithmetic, operations, bytes).seconds;
  result.seconds = kLaunchSeconds + work;
  result.limit = kLaunchSeconds > work ? Resource::launch
                 : memory >= compute   ? Resource::memory
                                       : Resource::arithmetic;
  result.operations_per_second = operations / result.seconds;
  return result;
}

}  // namespace roundoff::evidence
