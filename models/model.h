// Models: a parameter arena and a forward function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/context.h"
#include "engine/parameters.h"

namespace roundoff {

class Model {
 public:
  virtual ~Model() = default;

  virtual std::string_view name() const = 0;
  // x: images [N, H, W, C] (NHWC), or [N, F] where the model takes features. Logits [N, classes].
  virtual Tensor forward(Context& context, const Tensor& x) = 0;

  ParameterArena& parameters() { return parameters_; }
  const ParameterArena& parameters() const { return parameters_; }
  // BatchNorm: a window of micro-batches is not the large batch.
  virtual bool has_batch_statistics() const { return false; }
  virtual bool has_dropout() const { return false; }
  // The fewest samples that a training micro-batch may have: BatchNorm needs two values a channel.
  virtual std::int64_t smallest_batch() const { return 1; }

 protected:
  ParameterArena parameters_;
};

struct ModelSettings {
  // mlp, tiny-mlp, convnet, bn-mlp
  std::string model = "convnet";
  // Of one sample, [H, W, C] or [F].
  Shape input = {};
  std::int64_t classes = 0;
  // Widths of an mlp's hidden layers.
  std::vector<std::int64_t> hidden{128};
  // convnet only.
  bool batch_norm = false;
  double dropout = 0.0;  // probability of dropping; 0 leaves the layer out
};

// Declares the model; its parameters are allocated by the caller. Throws UsageError for an unknown
// name or settings that the model does not take, Error for a shape that is too small for it.
std::unique_ptr<Model> make_model(const ModelSettings& settings);

// Names that make_model knows.
std::vector<std::string_view> model_names();

}  // namespace roundoff
