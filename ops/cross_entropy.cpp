#include "ops/cross_entropy.h"

#include "kernels/loss/cross_entropy.h"
#include "ops/op.h"

namespace roundoff {

namespace {

struct CrossEntropy {
  static constexpr std::string_view name = "cross_entropy";
  // Labels stay integers; probabilities and class weights are read in their own type.
  static constexpr unsigned cast_inputs = 1U << 0;
  using Params = CrossEntropyParams;

  static void forward(ForwardFrame& f) {
    auto& params = f.mutable_params<Params>();
    params.accumulator = f.context().accumulator;
    const Tensor& logits = f.in(0);
    const Shape batch(
        logits.shape().extents().first(static_cast<std::size_t>(logits.shape().rank() - 1)));
    const DType wide = logits.dtype() == DType::fp64 ? DType::fp64 : DType::fp32;
    const Tensor& loss = f.out(0, params.reduction == Reduction::none ? batch : Shape{}, wide);
    const Tensor& valid = f.out(1, {}, wide);
    Tensor stats;
    Out stats_out;
    if (f.recording()) {
      stats = Tensor::empty(f.context().allocator, {batch.numel(), 2},
                            row_stats_dtype(params.accumulator, logits.dtype()),
                            MemoryCategory::activations);
      stats_out = stats.view();
    }
    const ConstView weight = f.has(2) ? f.in(2).const_view() : ConstView::absent();
    f.run([&](auto target) {
      cross_entropy_forward(target, params, logits.view(), f.in(1).view(), weight, loss.view(),
                            valid.view(), stats_out, f.context().scratch);
    });
    f.save(0, logits);
    f.save(1, f.in(1));
    if (f.has(2)) f.save(2, f.in(2));
    f.save(3, stats);
    f.save(4, valid);
  }

  static void backward(BackwardFrame& f) {
    // The valid weight is a count: a gradient that reaches it goes no further.
    if (!f.has_grad_out(0) || !f.wants(0)) return;
    f.run([&](auto target) {
      cross_entropy_backward(target, f.params<Params>(), f.saved(0).view(), f.saved(1).view(),
                             f.saved(2).const_view(), f.saved(4).view(), f.saved(3).view(),
                             f.grad_out(0).view(), f.grad_in(0));
    });
  }
};

}  // namespace

CrossEntropyResult cross_entropy(Context& context, const Tensor& logits, const Tensor& target,
                                 const CrossEntropyOptions& options, const Tensor& weight) {
  ROUNDOFF_CHECK(logits.defined() && target.defined(), CrossEntropy::name,
                 "logits or target are absent");
  ROUNDOFF_CHECK(logits.shape().rank() >= 1, CrossEntropy::name,
                 "logits are a scalar, at least a class axis expected");
  auto outputs = record_all<CrossEntropy>(context, {logits, target, weight},
                                          {.ignore_index = options.ignore_index,
                                           .label_smoothing = options.label_smoothing,
                                           .reduction = options.reduction});
  return {std::move(outputs[0]), outputs[1].detached()};
}

}  // namespace roundoff
