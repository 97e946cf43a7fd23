// A training step whose end a device decides by itself: what the host queues for one window after
// the other, and how the outcome of each gets back. The formulas, and what is halted when, are in
// kernels/step/device_step.h.
//
//   step.open(labels, ...);                              1 launch a micro-batch
//   for every micro-batch:  forward; tape.backward(context, loss, step.seed()); step.score(...)
//   step.close();                                        2 launches and a copy of the record
//   while (auto record = step.next()) ...                outcomes, in order
//
// The host waits nowhere, except that next() waits for the oldest outcome where a third one is on
// its way: results and errors are at most two windows old.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/device.h"
#include "engine/loss_scaler.h"
#include "engine/optimizer.h"
#include "kernels/step/device_step.h"

namespace roundoff {

class DeviceStep {
 public:
  // All must outlive it; the context is a device's. The scaler's configuration and state are taken
  // over, and the scaler follows the device's from then on, as far as outcomes have arrived.
  DeviceStep(Context& context, Optimizer& optimizer, LossScaler& scaler, const ClipParams& clip,
             const LearningRate& rate);

  // The scaler's state and the number of updates so far, for a run that goes on. Waits.
  void restore(std::int64_t updates);

  // Opens a window over the labels of its micro-batches, in order. in_order: as in TargetParams.
  void open(std::span<const ConstView> labels, std::int64_t ignore_index,
            const Tensor& class_weights, bool in_order = false);
  // The seed of the window's backward passes: a scalar in device memory.
  const Tensor& seed() const { return optimizer_.memory()->seed(); }
  // After a micro-batch: its logits, labels and sum of losses, or the loss of each sample.
  void score(const Tensor& logits, const Tensor& labels, const Tensor& loss);
  // Steps or skips, moves the scale on, commits or discards staged buffers, makes all gradients
  // absent. Throws, before it queues anything, where four outcomes wait to be asked for.
  void close();
  // For a graph: close() in two halves, of which the first may be captured; and in its place, where
  // a graph was launched that holds it, what the host notes of it.
  void close_on_device();
  void queue_record();
  void closed_by_graph();

  // The outcome of the oldest window that was not asked for yet, if it has arrived.
  std::optional<StepRecord> next();
  // The same, but waits for it; nothing where no window is left.
  std::optional<StepRecord> wait();

  // Throws what `record` was halted by: ScaleCollapse or DeviceDataError. Waits for the windows
  // behind it first, which are void, forgets them, and lets the device go on.
  [[noreturn]] void fail(const StepRecord& record);

 private:
  static constexpr std::size_t kSlots = 4;
  static constexpr std::size_t kInFlight = 2;
  struct Slot {
    simt::PinnedBuffer record;
    simt::Event arrived;
  };
  StepRecord take();
  void check_room() const;

  Context& context_;
  Optimizer& optimizer_;
  LossScaler& scaler_;
  WindowParams params_;
  std::vector<Slot> slots_;
  std::size_t first_ = 0;  // the oldest
  std::size_t count_ = 0;
};

}  // namespace roundoff
