// What a training step knows of its window besides gradients: the valid weight, the seed of the
// backward passes, the loss, the correct predictions.
//
//   valid = sum over micro-batches and rows of w[label], labels equal to ignore_index left out
//   seed  = fp32(scale / valid), 0 where valid is 0
//   loss += sum of a micro-batch's losses / valid;  correct += rows whose argmax is the label
//
// Layout: one block counts the labels of a micro-batch; one warp looks for a row's largest logit.
// Numerics: fp64 sums in a fixed order (threads in turn, then in pairs); without class weights the
// valid weight is a count and exact. Correct predictions are added by integer atomics, in any
// order.
#include "kernels/reduce/block.cuh"
#include "kernels/simt/simt.h"
#include "kernels/step/device_step.h"
#include "kernels/step/values.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using step::kThreads;
  constexpr int kRows = kThreads / 32;

  struct Labels {
    const void* data;
    DType dtype;
    std::int64_t count;
  };
  struct Weights {
    const void* data;  // null: all are 1
    DType dtype;
    std::int64_t classes;
  };

  __global__ void __launch_bounds__(kThreads)
      open_window_kernel(Labels labels, Weights weights, std::int64_t ignore_index, bool in_order,
                         bool first, bool last, StepState* state) {
    ROUNDOFF_SHARED(double, memory, [reduce::shared_size(kThreads)]);
    reduce::Shared<double> shared(memory);
    const auto weight_at = [&](std::int64_t i) {
      const std::int64_t label = step::label_at(labels.dtype, labels.data, i);
      if (label == ignore_index) return 0.0;
      const bool weighted = weights.data != nullptr && label >= 0 && label < weights.classes;
      return weighted ? step::value_at(weights.dtype, weights.data, label) : 1.0;
    };
    double weight = 0.0;
    if (!in_order) {
      for (std::int64_t i = threadIdx.x; i < labels.count; i += kThreads) weight += weight_at(i);
      weight = reduce::row<kThreads>(weight, reduce::Sum{}, shared);
    }
    if (threadIdx.x != 0) return;
    double valid = first ? weight : state->valid + weight;
    if (in_order)
      for (std::int64_t i = 0; i < labels.count; ++i) valid += weight_at(i);
    state->valid = valid;
    state->samples = first ? labels.count : state->samples + labels.count;
    if (first) {
      state->loss = 0.0;
      state->correct = 0;
    }
    if (last)
      state->seed =
          valid == 0.0 ? 0.0F : static_cast<float>(static_cast<double>(state->scale) / valid);
  }

  template <class L>
  __global__ void __launch_bounds__(kThreads)
      score_kernel(const L* logits, std::int64_t rows, std::int64_t classes, Labels labels,
                   const void* loss, DType loss_dtype, std::int64_t losses, StepState* state) {
    const unsigned lane = threadIdx.x % 32;
    const std::int64_t row = std::int64_t{blockIdx.x} * kRows + threadIdx.x / 32;
    // What no logit is: a NaN beats every number, so a lane without elements starts below them.
    reduce::Indexed<float> best{-HUGE_VALF, classes};
    if constexpr (std::is_same_v<L, double>) {
      reduce::Indexed<double> wide{-HUGE_VAL, classes};
      if (row < rows)
        for (std::int64_t c = lane; c < classes; c += 32)
          wide = reduce::FirstMax{}(wide, {logits[row * classes + c], c});
      wide = reduce::warp<32>(wide, reduce::FirstMax{});
      best = {wide.value != wide.value ? 0.0F / 0.0F : 0.0F, wide.index};
    } else {
      if (row < rows)
        for (std::int64_t c = lane; c < classes; c += 32)
          best = reduce::FirstMax{}(best, {widen_value<float>(logits[row * classes + c]), c});
      best = reduce::warp<32>(best, reduce::FirstMax{});
    }
    const bool right = lane == 0 && row < rows && best.value == best.value &&
                       best.index == step::label_at(labels.dtype, labels.data, row);
    const int count = __syncthreads_count(right ? 1 : 0);
    if (threadIdx.x != 0) return;
    if (count > 0) atomicAdd(&state->correct, static_cast<unsigned long long>(count));
    if (blockIdx.x != 0 || state->valid == 0.0) return;
    double sum = state->loss;
    for (std::int64_t i = 0; i < losses; ++i)
      sum += step::value_at(loss_dtype, loss, i) / state->valid;
    state->loss = sum;
  }

  __global__ void update_scale_kernel(ScalerConfig config, StepStatus* status) {
    update_scale(config, *status);
  }

  void check_labels(const ConstView& labels, const char* operation) {
    ROUNDOFF_CHECK(
        labels.dtype == DType::i64 || labels.dtype == DType::i32 || labels.dtype == DType::u8,
        operation, "labels are ", name(labels.dtype), "; int64, int32 or uint8 expected");
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void open_window(T target, const TargetParams& params, std::span<const ConstView> labels,
                 const ConstView& class_weights, StepState* state) {
  ROUNDOFF_CHECK(!labels.empty(), "step", "a window without a micro-batch");
  for (const ConstView& l : labels) check_labels(l, "step");
  Weights weights{nullptr, DType::fp32, 0};
  if (class_weights.present) {
    ROUNDOFF_CHECK(is_floating(class_weights.dtype), "step", "class weights are ",
                   name(class_weights.dtype), "; a floating type expected");
    weights = {class_weights.data, class_weights.dtype, class_weights.numel()};
  }
  for (std::size_t i = 0; i < labels.size(); ++i)
    launch(target, {.name = "open_window", .grid = {1}, .block = {kThreads}}, open_window_kernel,
           Labels{labels[i].data, labels[i].dtype, labels[i].numel()}, weights, params.ignore_index,
           params.in_order && weights.data != nullptr, i == 0, i + 1 == labels.size(), state);
}

template <DeviceTarget T>
void score(T target, const ConstView& logits, const ConstView& labels, const ConstView& loss,
           StepState* state) {
  check_labels(labels, "score");
  ROUNDOFF_CHECK(logits.shape.rank() >= 1, "score", "logits without a class axis");
  const std::int64_t classes = logits.shape[-1];
  const std::int64_t rows = labels.numel();
  ROUNDOFF_CHECK(rows * classes == logits.numel(), "score", "labels ", labels.shape, " for logits ",
                 logits.shape);
  ROUNDOFF_CHECK((loss.numel() == 1 || loss.numel() == rows) &&
                     (loss.dtype == DType::fp32 || loss.dtype == DType::fp64),
                 "score", "the loss is ", name(loss.dtype), ' ', loss.shape,
                 "; a scalar in fp32 or fp64 expected, or one for each row");
  const std::int64_t blocks = rows <= kRows ? 1 : (rows + kRows - 1) / kRows;
  visit_floating(logits.dtype, "score", [&]<class L>() {
    launch(target, {.name = "score", .grid = {static_cast<unsigned>(blocks)}, .block = {kThreads}},
           score_kernel<L>, logits.as<L>(), rows, classes, Labels{labels.data, labels.dtype, rows},
           loss.data, loss.dtype, loss.numel(), state);
  });
}

template <DeviceTarget T>
void update_scale(T target, const ScalerConfig& config, StepStatus* status) {
  launch(target, {.name = "update_scale", .grid = {1}, .block = {1}}, update_scale_kernel, config,
         status);
}

template void open_window(Target, const TargetParams&, std::span<const ConstView>, const ConstView&,
                          StepState*);
template void score(Target, const ConstView&, const ConstView&, const ConstView&, StepState*);
template void update_scale(Target, const ScalerConfig&, StepStatus*);

}  // namespace roundoff
