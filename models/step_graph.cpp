#include "models/step_graph.h"

namespace roundoff {

std::string StepGraph::refusal(const Context& context, const Model& model) {
  if (context.device() == Device::cpu) return "cpu has no graphs";
  if (context.checked()) return "instrumented kernels run one by one";
  if (model.has_dropout())
    return "dropout's masks follow the number of the window, which a graph would repeat";
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
    for (const MicroBatch& micro : window)
      inputs_.push_back({Tensor::empty(context_.allocator, micro.x.shape(), micro.x.dtype()),
                         Tensor::empty(context_.allocator, micro.labels.shape(), DType::i64)});
  }
  if (!same_shape(window) || context_.observer != nullptr)
    return queue_window(context_, model_, step_, window, loss_);
  for (std::size_t i = 0; i < window.size(); ++i) {
    inputs_[i].x.copy_from(window[i].x);
    inputs_[i].labels.copy_from(window[i].labels);
    inputs_[i].sample0 = window[i].sample0;
  }
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

}  // namespace roundoff
