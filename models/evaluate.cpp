#include "models/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/cast.h"
#include "engine/data/loader.h"
#include "kernels/base/convert.h"
#include "ops/cross_entropy.h"

namespace roundoff {

std::int64_t count_correct(const Tensor& logits, const Tensor& labels,
                           std::span<std::uint8_t> correct) {
  const std::int64_t classes = logits.shape()[-1];
  const Tensor host_logits = on_host(logits);
  const Tensor host_labels = on_host(labels);
  const auto* label = host_labels.data<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < labels.numel(); ++row) {
    std::int64_t best = -1;
    double largest = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      double value = 0;
      widen(host_logits.const_view(), row * classes + c, 1, &value);
      if (std::isnan(value)) {
        best = -1;
        break;
      }
      if (best < 0 || value > largest) {
        best = c;
        largest = value;
      }
    }
    const bool right = best == label[row];
    count += right;
    if (!correct.empty()) correct[static_cast<std::size_t>(row)] = right;
  }
  return count;
}

Tensor model_input(Context& context, const Model& model, const Tensor& x) {
  const DType master = model.parameters().settings().master;
  return master == DType::fp32 ? x : cast(context, x, master);
}

Evaluation evaluate(Context& context, Model& model, const Split& split,
                    const Normalization& normalization, std::int64_t batch) {
  const NoGrad no_grad(context);
  const Scoped<bool> evaluation(context.training, false);
  Evaluation result;
  result.samples = split.size();
  result.correct.resize(static_cast<std::size_t>(split.size()));
  const BatchReader reader(split, normalization);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(batch));
  Allocator host;
  double loss = 0;
  for (std::int64_t begin = 0; begin < split.size(); begin += batch) {
    const std::int64_t n = std::min(batch, split.size() - begin);
    const std::span<std::int64_t> part(indices.data(), static_cast<std::size_t>(n));
    std::iota(part.begin(), part.end(), begin);
    Shape shape = split.images.shape;
    shape.set(0, n);
    const Tensor x = Tensor::empty(context.allocator, shape, DType::fp32);
    const Tensor labels = Tensor::empty(context.allocator, {n}, DType::i64);
    const Tensor host_labels = reader.gather(part, x, labels, host);
    const Tensor logits = model.forward(context, model_input(context, model, x));
    loss += cross_entropy(context, logits, labels, {.reduction = Reduction::sum}).loss.item();
    result.correct_count += count_correct(
        logits, host_labels,
        std::span(result.correct).subspan(static_cast<std::size_t>(begin), part.size()));
  }
  if (result.samples != 0) result.loss = loss / static_cast<double>(result.samples);
  return result;
}

}  // namespace roundoff
