#include "models/zoo.h"
#include "ops/activation.h"
#include "ops/shape.h"

namespace roundoff {

Mlp::Mlp(std::string_view name, const ModelSettings& settings) : name_(name) {
  std::int64_t width = settings.input.numel();
  int number = 1;
  const auto add = [&](std::int64_t out) {
    layers_.emplace_back(parameters_, concat("fc", number++), width, out);
    width = out;
  };
  for (const std::int64_t hidden : settings.hidden) add(hidden);
  add(settings.classes);
}

Tensor Mlp::forward(Context& context, const Tensor& x) {
  Tensor h = flatten(context, x, 1);
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) h = relu(context, layers_[i](context, h));
  return layers_.back()(context, h);
}

BnMlp::BnMlp(const ModelSettings& settings)
    : fc1_(parameters_, "fc1", settings.input.numel(), settings.hidden.front()),
      bn1_(parameters_, "bn1", settings.hidden.front()),
      fc2_(parameters_, "fc2", settings.hidden.front(), settings.classes) {}

Tensor BnMlp::forward(Context& context, const Tensor& x) {
  const Tensor h = relu(context, bn1_(context, fc1_(context, flatten(context, x, 1))));
  return fc2_(context, h);
}

}  // namespace roundoff
