// Launch A of a training step: one read of the gradients, and all decisions of the step.
//
//   u = fp32(g) * inv_scale           fp32, one rounding
//   norm = sqrt(sum u^2)              exact squares and sums in fp64, in a fixed order
//   found_inf                         some u, hence some g, is infinite or NaN: the sum is, too
//   then close_window (device_step.h) and, for each parameter with a gradient, its step count and
//   bias corrections
//
// Layout: block b of at most kStepBlocks reads chunks b, b + blocks, ... of the table: 4096
// neighbouring elements of one gradient, 4 an access. Each block leaves one partial sum; the last
// block to finish folds them in the order of the blocks, whichever block that is.
// Numerics: squares of fp32 values are exact in fp64 and lie within 2^-298..2^256, so that sums
// neither over- nor underflow; their order is that of device_step.h.
#include <bit>

#include "kernels/reduce/block.cuh"
#include "kernels/simt/simt.h"
#include "kernels/step/device_step.h"
#include "kernels/step/values.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using step::kPack;
  using step::kThreads;
  constexpr std::int32_t kNone = 0x7FFFFFFF;

  template <int n>
  ROUNDOFF_DEVICE void add_squares(const float (&g)[n], float inv_scale, double& sum) {
    ROUNDOFF_UNROLL
    for (int k = 0; k < n; ++k) {
      const auto u = static_cast<double>(g[k] * inv_scale);
      sum += u * u;
    }
  }

  // One thread's part of the squares of n elements.
  ROUNDOFF_DEVICE double squares(DType dtype, const void* gradient, std::int64_t n,
                                 float inv_scale) {
    double sum = 0.0;
    for_each_pack<kPack>(
        n, step::head(dtype, gradient), threadIdx.x, kThreads,
        [&](std::int64_t i) {
          float g[kPack];
          step::load(dtype, gradient, i, g);
          add_squares(g, inv_scale, sum);
        },
        [&](std::int64_t i) {
          float g[1];
          step::load(dtype, gradient, i, g);
          add_squares(g, inv_scale, sum);
        });
    return sum;
  }

  // A block's reductions; what the kernel declares and hands on.
  struct BlockSums {
    reduce::Shared<double> sums;
    reduce::Shared<std::int32_t> numbers;
  };

  // What is moved at once is asked for at once.
  template <class V>
  ROUNDOFF_DEVICE V load_whole(const V* p) {
    static_assert(sizeof(V) == sizeof(uint4));
    return std::bit_cast<V>(load_vector<uint4>(p));
  }

  // `chunks`: kThreads of them. Each thread looks up one of the block's next chunks, so that the
  // table costs the block little beside the gradients.
  ROUNDOFF_DEVICE StepPartial block_partial(const StepTable& t, const float* scale, bool inverse,
                                            StepChunk* chunks, float* factor, BlockSums& block) {
    double sum = 0.0;
    std::int32_t offender = kNone;
    const auto stride = static_cast<std::int32_t>(gridDim.x);
    const auto thread = static_cast<std::int32_t>(threadIdx.x);
    for (auto base = static_cast<std::int32_t>(blockIdx.x); base < t.parameter_chunks;
         base += kThreads * stride) {
      const std::int32_t rest = (t.parameter_chunks - base + stride - 1) / stride;
      const std::int32_t n = rest < kThreads ? rest : kThreads;
      __syncthreads();
      if (thread < n) {
        StepChunk chunk = load_whole(&t.chunks[base + thread * stride]);
        if (t.present[chunk.row] == 0) chunk.count = 0;
        chunks[thread] = chunk;
      }
      if (thread == 0) {
        StepStatus status;
        if (!inverse) set_scale(status, *scale);
        *factor = inverse ? *scale : status.inv_scale;
      }
      __syncthreads();
      for (std::int32_t k = 0; k < n; ++k) {
        const StepChunk& p = chunks[k];
        const double part = squares(p.dtype, p.gradient, p.count, *factor);
        // Finite if and only if every u is.
        if (part - part != 0.0 && p.row < offender) offender = p.row;
        sum += part;
      }
    }
    return {reduce::row<kThreads>(sum, reduce::Sum{}, block.sums),
            reduce::row<kThreads>(offender, reduce::Min{}, block.numbers), 0};
  }

  // Whether this block is the last to leave its partial.
  ROUNDOFF_DEVICE bool leave_partial(const StepTable& t, const StepPartial& partial,
                                     unsigned& ticket) {
    if (threadIdx.x == 0) {
      store_vector(&t.partials[blockIdx.x], std::bit_cast<uint4>(partial));
      __threadfence();
      ticket = atomicAdd(t.ticket, 1U);
    }
    __syncthreads();
    return ticket == gridDim.x - 1;
  }

  struct Found {
    double sum;
    std::int32_t offender;  // -1: none
    std::int32_t present;
  };

  ROUNDOFF_DEVICE Found fold(const StepTable& t, BlockSums& block) {
    __threadfence();
    double sum = 0.0;
    std::int32_t offender = kNone;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += kThreads) {
      const StepPartial p = load_whole(&t.partials[b]);
      sum += p.sum;
      if (p.offender < offender) offender = p.offender;
    }
    std::int32_t present = 0;
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < t.parameter_count;
         i += kThreads)
      present += t.present[i] != 0 ? 1 : 0;
    sum = reduce::row<kThreads>(sum, reduce::Sum{}, block.sums);
    offender = reduce::row<kThreads>(offender, reduce::Min{}, block.numbers);
    present = reduce::row<kThreads>(present, reduce::Sum{}, block.numbers);
    if (threadIdx.x == 0) *t.ticket = 0;
    return {sum, offender == kNone ? -1 : offender, present};
  }

  // Counts the update of every parameter with a gradient, and forms its bias corrections.
  ROUNDOFF_DEVICE void count_updates(const StepTable& t, bool adam, const AdamParams& params,
                                     double lr) {
    for (std::int32_t i = static_cast<std::int32_t>(threadIdx.x); i < t.parameter_count;
         i += kThreads) {
      if (t.present[i] == 0) continue;
      StepParameter& p = t.parameters[i];
      const std::int64_t steps = p.steps + 1;
      p.steps = steps;
      if (adam) p.corrected = adam_correction(params, lr, steps);
    }
  }

  __global__ void __launch_bounds__(kThreads, step::kBlocks)
      inspect_window_kernel(WindowParams params, const DeviceErrors* errors, StepTable t) {
    ROUNDOFF_SHARED(double, sums, [reduce::shared_size(kThreads)]);
    ROUNDOFF_SHARED(std::int32_t, numbers, [reduce::shared_size(kThreads)]);
    ROUNDOFF_SHARED(unsigned, ticket, [1]);
    ROUNDOFF_SHARED(StepChunk, chunks, [kThreads]);
    ROUNDOFF_SHARED(float, factor, [1]);
    ROUNDOFF_SHARED(std::int32_t, steps, [1]);
    BlockSums block{reduce::Shared<double>(sums), reduce::Shared<std::int32_t>(numbers)};
    const StepPartial partial =
        block_partial(t, &t.state->scale, /*inverse=*/false, chunks, factor, block);
    if (!leave_partial(t, partial, ticket[0])) return;
    const Found found = fold(t, block);
    if (threadIdx.x == 0)
      steps[0] = close_window(params, *t.state, found.sum, found.offender, found.present, errors);
    __syncthreads();
    if (steps[0] != 0) count_updates(t, params.adam, params.optimizer, t.state->record.lr);
  }

  __global__ void __launch_bounds__(kThreads, step::kBlocks)
      inspect_gradients_kernel(ClipParams clip, StepTable t) {
    ROUNDOFF_SHARED(double, sums, [reduce::shared_size(kThreads)]);
    ROUNDOFF_SHARED(std::int32_t, numbers, [reduce::shared_size(kThreads)]);
    ROUNDOFF_SHARED(unsigned, ticket, [1]);
    ROUNDOFF_SHARED(StepChunk, chunks, [kThreads]);
    ROUNDOFF_SHARED(float, factor, [1]);
    BlockSums block{reduce::Shared<double>(sums), reduce::Shared<std::int32_t>(numbers)};
    StepStatus& status = t.state->record.status;
    const StepPartial partial =
        block_partial(t, &status.inv_scale, /*inverse=*/true, chunks, factor, block);
    if (!leave_partial(t, partial, ticket[0])) return;
    const Found found = fold(t, block);
    if (threadIdx.x != 0) return;
    status.found_inf = found.offender >= 0 ? 1 : 0;
    status.first_offender = found.offender;
    status.norm = std::sqrt(found.sum);
    status.clip = clip_coefficient(status.norm, clip.max_norm);
    status.present = found.present;
  }

  __global__ void __launch_bounds__(kThreads, step::kBlocks)
      prepare_update_kernel(WindowParams params, StepStatus status, double lr, StepTable t) {
    if (threadIdx.x == 0) {
      t.state->record.status = status;
      t.state->record.lr = lr;
      t.state->record.did_step = status.found_inf == 0 ? 1 : 0;
    }
    if (status.found_inf == 0) count_updates(t, params.adam, params.optimizer, lr);
  }

  // Blocks of launch A: none where there is nothing to read would leave nobody to decide.
  unsigned blocks(const StepTable& t) {
    const int chunks = t.parameter_chunks < kStepBlocks ? t.parameter_chunks : kStepBlocks;
    return chunks > 0 ? static_cast<unsigned>(chunks) : 1U;
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void inspect_window(T target, const WindowParams& params, const StepTable& table) {
  validate(params.clip);
  launch(target, {.name = "inspect_window", .grid = {blocks(table)}, .block = {kThreads}},
         inspect_window_kernel, params, target.errors, table);
}

template <DeviceTarget T>
void inspect_gradients(T target, const ClipParams& params, const StepTable& table) {
  validate(params);
  launch(target, {.name = "inspect_gradients", .grid = {blocks(table)}, .block = {kThreads}},
         inspect_gradients_kernel, params, table);
}

template <DeviceTarget T>
void prepare_update(T target, const WindowParams& params, const StepStatus& status, double lr,
                    const StepTable& table) {
  launch(target, {.name = "prepare_update", .grid = {1}, .block = {kThreads}},
         prepare_update_kernel, params, status, lr, table);
}

template void inspect_window(Target, const WindowParams&, const StepTable&);
template void inspect_gradients(Target, const ClipParams&, const StepTable&);
template void prepare_update(Target, const WindowParams&, const StepStatus&, double,
                             const StepTable&);

}  // namespace roundoff
