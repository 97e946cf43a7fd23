// The models. docs/architecture.md shows their layers; names of parameters are those of
// checkpoints.
#pragma once

#include <vector>

#include "models/layers.h"
#include "models/model.h"

namespace roundoff {

// Linear layers fc1, fc2, ... with relu between them, over the flattened sample.
class Mlp : public Model {
 public:
  Mlp(std::string_view name, const ModelSettings& settings);
  std::string_view name() const override { return name_; }
  Tensor forward(Context& context, const Tensor& x) override;

 private:
  std::string name_;
  std::vector<LinearLayer> layers_;
};

// fc1 - BatchNorm - relu - fc2: the smallest model whose window is not the large batch.
class BnMlp : public Model {
 public:
  explicit BnMlp(const ModelSettings& settings);
  std::string_view name() const override { return "bn-mlp"; }
  Tensor forward(Context& context, const Tensor& x) override;
  bool has_batch_statistics() const override { return true; }
  std::int64_t smallest_batch() const override { return 2; }

 private:
  LinearLayer fc1_;
  BatchNormLayer bn1_;
  LinearLayer fc2_;
};

// conv16 - pool - conv32 - pool - fc; 3x3, same padding, relu; 2x2 maximum pools.
// Optionally BatchNorm before each relu, and dropout before fc.
class ConvNet : public Model {
 public:
  explicit ConvNet(const ModelSettings& settings);
  std::string_view name() const override { return "convnet"; }
  Tensor forward(Context& context, const Tensor& x) override;
  bool has_batch_statistics() const override { return batch_norm_; }
  bool has_dropout() const override { return dropout_ > 0; }

 private:
  bool batch_norm_;
  double dropout_;
  Conv3x3Layer conv1_;
  BatchNormLayer bn1_;
  Conv3x3Layer conv2_;
  BatchNormLayer bn2_;
  LinearLayer fc_;
};

}  // namespace roundoff
