#include "kernels/loss/arguments.h"

#include "kernels/elementwise/chunks.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "cross_entropy";

Shape leading(const Shape& shape) {
  return Shape(shape.extents().first(static_cast<std::size_t>(shape.rank() - 1)));
}

// Of the loss and its gradient.
Shape loss_shape(const CrossEntropyParams& params, const Shape& logits) {
  return params.reduction == Reduction::none ? leading(logits) : Shape{};
}

CrossEntropyShape check_inputs(const CrossEntropyParams& params, const ConstView& logits,
                               const ConstView& target, const ConstView& weight) {
  detail::check_floating(logits, kName, "logits");
  ROUNDOFF_CHECK(logits.shape.rank() >= 1, kName,
                 "logits are a scalar, at least a class axis expected");
  ROUNDOFF_CHECK(params.label_smoothing >= 0 && params.label_smoothing <= 1, kName,
                 "label smoothing is ", params.label_smoothing, ", expected a value in [0, 1]");
  const Shape batch = leading(logits.shape);
  const CrossEntropyShape s{batch.numel(), logits.shape[-1], is_floating(target.dtype)};
  if (s.soft)
    ROUNDOFF_CHECK(target.shape == logits.shape, kName, "target probabilities have shape ",
                   target.shape, ", logits ", logits.shape);
  else
    ROUNDOFF_CHECK(target.shape == batch, kName, "labels have shape ", target.shape, ", logits ",
                   logits.shape, " expect ", batch);
  if (weight.present) {
    detail::check_floating(weight, kName, "weight");
    ROUNDOFF_CHECK(weight.shape == Shape{s.classes}, kName, "class weights have shape ",
                   weight.shape, ", ", s.classes, " classes expected");
  }
  return s;
}

void check_dloss(const CrossEntropyParams& params, const ConstView& logits,
                 const ConstView& dloss) {
  const Shape expected = loss_shape(params, logits.shape);
  detail::check_floating(dloss, kName, "dloss");
  ROUNDOFF_CHECK(dloss.shape == expected, kName, "dloss has shape ", dloss.shape, ", expected ",
                 expected);
}

}  // namespace

CrossEntropyShape check_cross_entropy_forward(const CrossEntropyParams& params,
                                              const ConstView& logits, const ConstView& target,
                                              const ConstView& weight, const Out& loss,
                                              const Out& valid, const Out& row_stats) {
  const CrossEntropyShape s = check_inputs(params, logits, target, weight);
  detail::check_out(loss, loss_shape(params, logits.shape), kName, "loss");
  detail::check_out(valid, Shape{}, kName, "valid");
  detail::check_out(row_stats, Shape{s.rows, 2}, kName, "row_stats");
  const DType stats = row_stats_dtype(params.accumulator, logits.dtype);
  ROUNDOFF_CHECK(!row_stats.wanted || row_stats.view.dtype == stats, kName, "row_stats is ",
                 name(row_stats.view.dtype), ", expected ", name(stats));
  return s;
}

CrossEntropyShape check_cross_entropy_backward(const CrossEntropyParams& params,
                                               const ConstView& logits, const ConstView& target,
                                               const ConstView& weight, const ConstView& valid,
                                               const ConstView& row_stats, const ConstView& dloss,
                                               const Out& dlogits) {
  const CrossEntropyShape s = check_inputs(params, logits, target, weight);
  check_dloss(params, logits, dloss);
  ROUNDOFF_CHECK(params.reduction != Reduction::mean || valid.numel() == 1, kName,
                 "valid has shape ", valid.shape, ", a scalar expected");
  const DType stats = row_stats_dtype(params.accumulator, logits.dtype);
  ROUNDOFF_CHECK(row_stats.dtype == stats && row_stats.shape == (Shape{s.rows, 2}), kName,
                 "row_stats is ", name(row_stats.dtype), " of shape ", row_stats.shape,
                 ", expected ", name(stats), " [", s.rows, ", 2]");
  detail::check_out(dlogits, logits.shape, kName, "dlogits");
  return s;
}

CrossEntropyShape check_cross_entropy_with_gradient(const CrossEntropyParams& params,
                                                    const ConstView& logits,
                                                    const ConstView& target,
                                                    const ConstView& weight, const ConstView& dloss,
                                                    const Out& loss, const Out& valid,
                                                    const Out& dlogits) {
  const CrossEntropyShape s = check_inputs(params, logits, target, weight);
  check_dloss(params, logits, dloss);
  detail::check_out(loss, loss_shape(params, logits.shape), kName, "loss");
  detail::check_out(valid, Shape{}, kName, "valid");
  detail::check_out(dlogits, logits.shape, kName, "dlogits");
  return s;
}

}  // namespace roundoff
