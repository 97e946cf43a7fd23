// The layers that models are made of: parameters with their names, and how they are applied.
#pragma once

#include <string>

#include "engine/context.h"
#include "engine/parameters.h"
#include "ops/batch_norm.h"
#include "ops/conv2d.h"
#include "ops/matmul.h"

namespace roundoff {

// y = x W^T + b; W [out, in].
class LinearLayer {
 public:
  LinearLayer(ParameterArena& arena, const std::string& name, std::int64_t in, std::int64_t out)
      : weight_(arena.add(name + ".weight", {out, in}, Init::uniform_fan_in, in)),
        bias_(arena.add(name + ".bias", {out}, Init::uniform_fan_in, in)) {}
  Tensor operator()(Context& context, const Tensor& x) const {
    return linear(context, x, weight_, bias_);
  }

 private:
  Parameter weight_;
  Parameter bias_;
};

// 3x3 convolution with same padding; weight KRSC.
class Conv3x3Layer {
 public:
  Conv3x3Layer(ParameterArena& arena, const std::string& name, std::int64_t in, std::int64_t out)
      : weight_(arena.add(name + ".weight", {out, 3, 3, in}, Init::uniform_fan_in, 9 * in)),
        bias_(arena.add(name + ".bias", {out}, Init::uniform_fan_in, 9 * in)) {}
  Tensor operator()(Context& context, const Tensor& x) const {
    return conv2d(context, x, weight_, bias_, {.padding = {1, 1}});
  }

 private:
  Parameter weight_;
  Parameter bias_;
};

// BatchNorm over the last axis (channels last), PyTorch's defaults: momentum 0.1, eps 1e-5.
class BatchNormLayer {
 public:
  BatchNormLayer() = default;
  BatchNormLayer(ParameterArena& arena, const std::string& name, std::int64_t channels)
      : gamma_(arena.add(name + ".weight", {channels}, Init::ones)),
        beta_(arena.add(name + ".bias", {channels}, Init::zeros)),
        running_mean_(&arena.add_buffer(name + ".running_mean", {channels}, 0.0)),
        running_var_(&arena.add_buffer(name + ".running_var", {channels}, 1.0)) {}
  Tensor operator()(Context& context, const Tensor& x) const {
    return batch_norm(context, x, gamma_, beta_, *running_mean_, *running_var_);
  }

 private:
  Parameter gamma_;
  Parameter beta_;
  Buffer* running_mean_ = nullptr;
  Buffer* running_var_ = nullptr;
};

}  // namespace roundoff
