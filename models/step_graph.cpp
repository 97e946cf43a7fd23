#include "models/step_graph.h"

#include "kernels/dropout/dropout.h"

namespace roundoff {

std::string StepGraph::refusal(const Context& context, const Model&) {
  if (context.device() == Device::cpu) return "cpu has no graphs";
  if (context.checked()) return "instrumented kernels run one by one";
  return {};
}

StepGraph::StepGraph(Context& context, Model& model, DeviceStep& step, const LossSettings& loss)
    : context_(context), model_(model), step_(step), loss_(loss), reserve_(context.allocator) {
  const std::string why = refusal(context, model);
  ROUNDOFF_CHECK(why.empty(), "graph", "the step cannot be captured: ", why);
}

bool StepGraph::same_shape(std::span<const MicroBatch> window) const {
  if (window.size() != inputs_.size()) return false;
  for (std::size_t i = 0; i < window.size(); ++i)
    if (!(window[i].x.shape() == inputs_[i].x.shape()) ||
        window[i].x.dtype() != inputs_[i].x.dtype() ||
        !(window[i].labels.shape() == inputs_[i].labels.shape()))
      return false;
  return true;
}

void StepGraph::capture() {
  simt::Stream& stream = context_.queue()->stream();
  stream.begin_capture();
  try {
    run_window_on_device(context_, model_, step_, inputs_, loss_);
  } catch (...) {
    context_.tape.clear();
    (void)stream.end_capture();
    throw;
  }
  graph_.emplace(stream.end_capture());
}

void StepGraph::queue(std::span<const MicroBatch> window) {
  launched_ = false;
  if (inputs_.empty()) {
    const auto n = static_cast<std::int64_t>(window.size());
    static_assert(sizeof(DropoutKey) == 8);
    keys_ = Tensor::empty(context_.allocator, {n}, DType::i64);
    for (const MicroBatch& micro : window)
      inputs_.push_back({Tensor::empty(context_.allocator, micro.x.shape(), micro.x.dtype()),
                         Tensor::empty(context_.allocator, micro.labels.shape(), DType::i64)});
  }
  if (!same_shape(window) || context_.observer != nullptr)
    return queue_window(context_, model_, step_, window, loss_);
  std::vector<DropoutKey> keys;
  for (std::size_t i = 0; i < window.size(); ++i) {
    inputs_[i].x.copy_from(window[i].x);
    inputs_[i].labels.copy_from(window[i].labels);
    inputs_[i].sample0 = window[i].sample0;
    inputs_[i].key = static_cast<const DropoutKey*>(keys_.raw()) + i;
    // The same checks that numbers pass where they are arguments.
    (void)philox_stream(context_.rng.seed, context_.rng.step, 0);
    ROUNDOFF_CHECK(window[i].sample0 >> 32 == 0, "graph", "sample ", window[i].sample0,
                   ", below 2^32 expected");
    keys.push_back({static_cast<std::uint32_t>(context_.rng.step),
                    static_cast<std::uint32_t>(window[i].sample0)});
  }
  context_.queue()->write(keys_.raw(), keys.data(), keys.size() * sizeof(DropoutKey));
  if (!warm_) {
    reserve_.enter();
    queue_window(context_, model_, step_, inputs_, loss_);
    reserve_.leave();
    warm_ = true;
    return;
  }
  if (!graph_) {
    reserve_.enter();
    capture();
    reserve_.leave();
  }
  graph_->launch(context_.queue()->stream());
  step_.closed_by_graph();
  step_.queue_record();
  launched_ = true;
}

void StepGraph::replay() {
  ROUNDOFF_CHECK(graph_.has_value(), "graph", "no window was captured yet");
  graph_->launch(context_.queue()->stream());
}

}  // namespace roundoff
