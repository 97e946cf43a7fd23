#include "engine/device_step.h"

#include <cstring>

#include "engine/context.h"

namespace roundoff {

DeviceStep::DeviceStep(Context& context, Optimizer& optimizer, LossScaler& scaler,
                       const ClipParams& clip, const LearningRate& rate)
    : context_(context), optimizer_(optimizer), scaler_(scaler) {
  ROUNDOFF_CHECK(context.device() != Device::cpu, "step", "cpu decides its steps on the host");
  validate(clip);
  params_.scaler = scaler.config();
  params_.max_skips = scaler.max_skips();
  params_.clip = clip;
  params_.rate = rate;
  const std::shared_ptr<simt::Runtime>& runtime = context.queue()->stream().shared_runtime();
  for (std::size_t i = 0; i < kSlots; ++i)
    slots_.push_back({simt::PinnedBuffer(runtime, sizeof(StepRecord)), simt::Event(runtime)});
  restore(0);
}

void DeviceStep::restore(std::int64_t updates) {
  while (wait()) {
  }
  params_.scaler = scaler_.config();
  const LossScalerState saved = scaler_.state();
  StepState state;
  state.scale = scaler_.scale();
  state.growth_tracker = saved.state.growth_tracker;
  state.consecutive_skips = saved.state.consecutive_skips;
  state.updates = updates;
  optimizer_.memory()->write(state);
}

void DeviceStep::open(std::span<const ConstView> labels, std::int64_t ignore_index,
                      const Tensor& class_weights, bool in_order) {
  visit_target(context_, [&](auto target) {
    if constexpr (DeviceTarget<decltype(target)>)
      open_window(target, {.ignore_index = ignore_index, .in_order = in_order}, labels,
                  class_weights.const_view(), optimizer_.memory()->table().state);
  });
}

void DeviceStep::score(const Tensor& logits, const Tensor& labels, const Tensor& loss) {
  visit_target(context_, [&](auto target) {
    if constexpr (DeviceTarget<decltype(target)>)
      roundoff::score(target, logits.view(), labels.view(), loss.view(),
                      optimizer_.memory()->table().state);
  });
}

void DeviceStep::close() {
  check_room();
  close_on_device();
  queue_record();
}

void DeviceStep::close_on_device() {
  optimizer_.close_window(params_);
  optimizer_.arena().zero_grad();
}

void DeviceStep::closed_by_graph() {
  optimizer_.memory()->mark_pattern();
  optimizer_.arena().changed(/*copies_written=*/true);
  optimizer_.arena().zero_grad();
}

void DeviceStep::check_room() const {
  ROUNDOFF_CHECK(count_ < kSlots, "step", count_, " outcomes of windows wait to be asked for");
}

void DeviceStep::queue_record() {
  check_room();
  Slot& slot = slots_[(first_ + count_) % kSlots];
  simt::Stream& stream = context_.queue()->stream();
  stream.copy_to_host(slot.record.data(), &optimizer_.memory()->table().state->record,
                      sizeof(StepRecord));
  slot.arrived.record(stream);
  ++count_;
}

StepRecord DeviceStep::take() {
  StepRecord record;
  std::memcpy(&record, slots_[first_].record.data(), sizeof(record));
  first_ = (first_ + 1) % kSlots;
  --count_;
  if (record.void_ == 0)
    scaler_.follow(
        {record.next_scale, record.status.growth_tracker, record.status.consecutive_skips});
  return record;
}

std::optional<StepRecord> DeviceStep::next() {
  if (count_ == 0) return std::nullopt;
  const simt::Event& arrived = slots_[first_].arrived;
  if (!arrived.query()) {
    if (count_ <= kInFlight) return std::nullopt;
    arrived.synchronize();
  }
  return take();
}

std::optional<StepRecord> DeviceStep::wait() {
  if (count_ == 0) return std::nullopt;
  slots_[first_].arrived.synchronize();
  return take();
}

void DeviceStep::fail(const StepRecord& record) {
  while (wait()) {
  }
  // Clears what the kernels reported; that it throws is no news here.
  try {
    context_.synchronize();
  } catch (const DeviceDataError&) {
  }
  StepState state = optimizer_.memory()->read();
  state.halt = StepHalt::none;
  optimizer_.memory()->write(state);
  if (record.halt == StepHalt::bad_data) throw DeviceDataError(record.errors);
  fail_collapsed({record.next_scale, record.status.growth_tracker, record.status.consecutive_skips},
                 optimizer_.offender(record.status));
}

}  // namespace roundoff
