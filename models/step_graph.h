// A training step as a graph: a window is captured once, and launched for every later window of the
// same shape. Nothing of it changes on the host from window to window: the loss scale, the learning
// rate, the step counts, the valid weight all live on the device (kernels/step/device_step.h), and
// the samples, and what dropout draws its masks from, are copied to where the graph reads them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/train_step.h"

namespace roundoff {

class StepGraph {
 public:
  // All must outlive it. Throws Error where refusal() says why.
  StepGraph(Context& context, Model& model, DeviceStep& step, const LossSettings& loss);
  // Why the step cannot be captured; empty where it can.
  static std::string refusal(const Context& context, const Model& model);

  // Queues a window, as queue_window does. The first two windows of a shape run one by one: the
  // first to allocate what it needs, the second as it is captured. Windows of other shapes run
  // without a graph, and so do all while an observer watches.
  void queue(std::span<const MicroBatch> window);
  // Launches the graph once more on the last window's samples: for benchmarks. The host notes
  // nothing of it. Throws where there is none.
  void replay();
  // Whether the last window was a launch of the graph.
  bool launched() const { return launched_; }
  const simt::Graph* graph() const { return graph_ ? &*graph_ : nullptr; }

 private:
  bool same_shape(std::span<const MicroBatch> window) const;
  void capture();

  Context& context_;
  Model& model_;
  DeviceStep& step_;
  LossSettings loss_;
  Allocator::Reserve reserve_;
  std::vector<MicroBatch> inputs_;
  Tensor keys_;  // of each micro-batch, as DropoutKey
  bool warm_ = false;
  bool launched_ = false;
  std::optional<simt::Graph> graph_;
};

}  // namespace roundoff
