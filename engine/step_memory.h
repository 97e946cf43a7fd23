// What the end of a training step keeps in a device's memory (kernels/step/device_step.h): the
// table of parameters and their chunks, which gradients are present, step counts, and the state
// that one window hands on to the next. Made once; a step writes to it only where the pattern of
// gradients changes.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/parameters.h"
#include "kernels/step/device_step.h"

namespace roundoff {

class Context;

class StepMemory {
 public:
  // The context is a device's, the arena allocated; moments may be undefined. All must outlive it.
  StepMemory(Context& context, ParameterArena& arena, const Tensor& first, const Tensor& second);

  const StepTable& table() const { return table_; }
  // Tells the device which leaves have a gradient; does nothing where that has not changed. Throws
  // where it has, and a graph is being captured.
  void refresh_pattern();
  // Marks the leaves that had a gradient when the device was told last, as a backward pass does.
  void mark_pattern();
  // A tensor of one element, the state's seed: fp32.
  const Tensor& seed() const { return seed_; }
  // Queues the new state; nothing waits.
  void write(const StepState& state);
  // Waits for all work before.
  StepState read() const;
  // Between the device's counts and ParameterEntry::steps. Reading waits.
  void read_counts();
  void write_counts();

 private:
  std::vector<StepParameter> parameters() const;

  Context& context_;
  ParameterArena& arena_;
  Tensor first_, second_;
  Tensor parameters_, present_, buffers_, chunks_, partials_, ticket_, state_, seed_;
  std::vector<std::int32_t> first_chunks_;
  std::vector<std::int32_t> pattern_, now_;  // as the device has it, and as it will be
  StepTable table_;
};

}  // namespace roundoff
