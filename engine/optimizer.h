// Optimizers over a parameter arena: SGD (momentum, Nesterov, weight decay), Adam, AdamW. All
// arithmetic is fp32; kernels/step/optimizer.h has the formulas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/parameters.h"
#include "engine/step_memory.h"
#include "kernels/step/optimizer.h"
#include "kernels/step/status.h"
#include "kernels/step/unscale.h"

namespace roundoff {

class Context;

struct OptimizerSettings {
  enum class Kind : unsigned char { sgd, adam, adamw };
  Kind kind = Kind::adamw;
  double momentum = 0.0;  // sgd
  bool nesterov = false;  // sgd
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  // Updates of 16-bit parameters are rounded stochastically, by numbers of this seed
  // (kernels/step/optimizer.h). Nothing changes for fp32 masters.
  bool stochastic_rounding = false;
  std::uint64_t rounding_seed = 0;
};
std::string_view name(OptimizerSettings::Kind kind);
// Throws UsageError naming the text.
OptimizerSettings::Kind parse_optimizer(std::string_view text);

class Optimizer {
 public:
  // Checks the settings and allocates the moments, zero. The arena must be allocated and outlive
  // the optimizer.
  Optimizer(Context& context, ParameterArena& arena, const OptimizerSettings& settings);

  // The first pass over the gradients that are present: reads status.inv_scale, writes found_inf,
  // norm, clip and the first offender. On a device the host waits for it.
  void inspect(const ClipParams& clip, StepStatus& status);
  // The second pass: unscale, clip, update, write compute copies. Nothing changes where
  // status.found_inf is set.
  void apply(double lr, const StepStatus& status);
  // Unscales the gradients in place, for a person who wants to look at or change them.
  void unscale_gradients(float inv_scale);

  // On a device: both passes, with all decisions between them made there (engine/device_step.h).
  // Two launches; the host waits for nothing. `params` need not speak of the optimizer.
  void close_window(WindowParams params);
  // Of a device, else null.
  StepMemory* memory() const { return memory_.get(); }
  // ParameterEntry::steps of a device are brought up to date only here (which waits), and taken
  // from there only here; on cpu they always are.
  void read_counts();
  void write_counts();

  // Name of the status's first offender, empty where there is none.
  std::string_view offender(const StepStatus& status) const;

  const OptimizerSettings& settings() const { return settings_; }
  ParameterArena& arena() { return arena_; }
  // Moments, flat, in the order first, second; what the settings do not use is undefined.
  const Tensor& first_moment() const { return first_; }
  const Tensor& second_moment() const { return second_; }

 private:
  Context& context_;
  ParameterArena& arena_;
  OptimizerSettings settings_;
  Tensor first_;
  Tensor second_;
  std::vector<ConstView> gradients_;
  std::vector<OptimizerChunk> chunks_;
  std::unique_ptr<StepMemory> memory_;

  void refresh();
};

}  // namespace roundoff
