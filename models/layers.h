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

}  // namespace roundoff
