#include "models/zoo.h"
#include "ops/activation.h"
#include "ops/dropout.h"
#include "ops/pool.h"
#include "ops/shape.h"

namespace roundoff {

namespace {

// Positions left after the two 2x2 pools.
std::int64_t pooled(const Shape& input) { return (input[0] / 4) * (input[1] / 4); }

}  // namespace

ConvNet::ConvNet(const ModelSettings& settings)
    : batch_norm_(settings.batch_norm),
      dropout_(settings.dropout),
      conv1_(parameters_, "conv1", settings.input[2], 16),
      bn1_(batch_norm_ ? BatchNormLayer(parameters_, "bn1", 16) : BatchNormLayer()),
      conv2_(parameters_, "conv2", 16, 32),
      bn2_(batch_norm_ ? BatchNormLayer(parameters_, "bn2", 32) : BatchNormLayer()),
      fc_(parameters_, "fc", pooled(settings.input) * 32, settings.classes) {}

Tensor ConvNet::forward(Context& context, const Tensor& x) {
  Tensor h = conv1_(context, x);
  if (batch_norm_) h = bn1_(context, h);
  h = max_pool2d(context, relu(context, h), {.kernel = {2, 2}, .stride = {2, 2}});
  h = conv2_(context, h);
  if (batch_norm_) h = bn2_(context, h);
  h = max_pool2d(context, relu(context, h), {.kernel = {2, 2}, .stride = {2, 2}});
  h = flatten(context, h, 1);
  if (dropout_ > 0) h = dropout(context, h, dropout_, /*tensor=*/1);
  return fc_(context, h);
}

}  // namespace roundoff
