// The end of a training step on a device (kernels/step/{window,inspect,update}.cu): everything that
// one window hands on to the next stays in device memory, so the host waits for nothing and the
// whole step can be one graph.
//
//   open_window      counts the window's targets; seed = scale / valid weight, for the backward
//                    pass
//   score            after each micro-batch: adds to the loss and to the correct predictions
//   inspect_window   launch A: finite check, global norm, clip coefficient, the loss scaler's
//                    transition, the learning rate, step counts and bias corrections
//   update_window    launch B: unscale, clip, update, 16-bit copy, buffers; nothing where skipped
//
// Formulas and rounding points are those of unscale.h, optimizer.h and scaler_transition.h, which
// the reference path follows too: elementwise results have the same bits. The global norm is the
// one sum whose order differs: a thread adds the squares of its elements of a chunk, 4 neighbours
// of every 1024, then its chunks (block b takes chunks b, b + blocks, ...), all in fp64; threads of
// a block and then blocks are folded in pairs. The relative error is at most
// (chunks of a block + 16 + 20 + blocks / 256) 2^-54 to first order. The order depends on the
// table alone, not on the device.
//
// What the kernels do with bad news, with the state unchanged until the host has dealt with it
// (StepHalt): a window whose kernels reported bad data is void, and so is every window after it and
// after a window that let the loss scale collapse.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/base/target.h"
#include "kernels/base/view.h"
#include "kernels/step/learning_rate.h"
#include "kernels/step/optimizer.h"
#include "kernels/step/scaler_transition.h"
#include "kernels/step/status.h"
#include "kernels/step/unscale.h"

namespace roundoff {

// Elements of a parameter that a block updates.
inline constexpr std::int64_t kStepChunk = 4096;
// Bytes of a buffer that a block copies.
inline constexpr std::int64_t kStepBufferChunk = 16384;
// Blocks of launch A at most, whatever the device: the norm's order must not depend on it.
inline constexpr int kStepBlocks = 1024;

enum class StepHalt : std::int32_t {
  none = 0,
  collapse = 1,  // the loss scale fell through too many skipped windows in a row
  bad_data = 2   // a kernel reported bad data (kernels/base/device_error.h)
};

// What one window came to; the host gets a copy.
struct StepRecord {
  // Of the closed window. The counters of the scaler are those after it.
  StepStatus status;
  double lr = 0;
  double loss = 0;   // sum of the losses over the valid weight
  double valid = 0;  // the window's valid weight
  std::int64_t samples = 0;
  unsigned long long correct = 0;
  std::int64_t updates = 0;   // after this window
  std::int32_t did_step = 0;  // 0: nothing changed
  std::int32_t void_ = 0;     // 1: the window came after a halt, or is what halted: not counted
  StepHalt halt = StepHalt::none;  // by this window
  float next_scale = 1;
  DeviceErrors errors;
};

// What stays on the device.
struct StepState {
  // Of the window that is open.
  float scale = 1;
  float seed = 0;  // of its backward passes: scale / valid, one rounding; 0 without a valid target
  std::int32_t growth_tracker = 0;
  std::int32_t consecutive_skips = 0;
  StepHalt halt = StepHalt::none;
  std::int32_t pad = 0;
  std::int64_t updates = 0;  // real ones, so far
  double valid = 0;
  double loss = 0;
  std::int64_t samples = 0;
  unsigned long long correct = 0;
  // Of the window that was closed last.
  StepRecord record;
};
static_assert(std::is_trivially_copyable_v<StepState> && std::is_standard_layout_v<StepState>);

// One parameter: a row of the table. The host writes it once, and the device counts the updates.
struct StepParameter {
  void* parameter = nullptr;  // fp32, fp16 or bf16
  const void* gradient = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  void* compute_copy = nullptr;  // fp16 or bf16, or null
  std::int64_t size = 0;
  std::int64_t steps = 0;
  std::int32_t first_chunk = 0;  // its place in StepTable::chunks; the others follow
  // Of the update that launch A prepared.
  AdamCorrection corrected = {};
  DType parameter_dtype = DType::fp32;
  DType gradient_dtype = DType::fp32;
  DType copy_dtype = DType::fp16;
};
static_assert(std::is_trivially_copyable_v<StepParameter>);

// State that commits with the step: value <- staged where it stepped, staged <- value where not.
struct StepBuffer {
  void* value = nullptr;
  void* staged = nullptr;
  std::int64_t bytes = 0;
  std::int32_t first_chunk = 0;
};

// What a block works on, and all that launch A needs of it: kStepChunk neighbouring elements of a
// parameter, or kStepBufferChunk bytes of a buffer.
struct alignas(16) StepChunk {
  const void* gradient = nullptr;  // of the first of them; null for a buffer
  std::int32_t row = 0;
  std::uint16_t count = 0;
  DType dtype = DType::fp32;  // of the gradient
};
static_assert(sizeof(StepChunk) == 16 && kStepChunk <= 0xFFFF && kStepBufferChunk <= 0xFFFF);

struct alignas(16) StepPartial {
  double sum = 0;
  std::int32_t offender = 0;
  std::int32_t pad = 0;
};

// Everything in device memory; passed by value.
struct StepTable {
  StepParameter* parameters = nullptr;
  // Which of them have a gradient: the host writes it where that changes, and only then.
  const std::int32_t* present = nullptr;
  const StepBuffer* buffers = nullptr;
  const StepChunk* chunks = nullptr;  // those of parameters, by parameter; then those of buffers
  std::int32_t parameter_count = 0;
  std::int32_t parameter_chunks = 0;
  std::int32_t buffer_chunks = 0;
  StepPartial* partials = nullptr;  // [kStepBlocks]
  unsigned* ticket = nullptr;       // 0; whole again after every launch
  StepState* state = nullptr;
};

struct WindowParams {
  ScalerConfig scaler = {};
  std::int64_t max_skips = 0;  // 0: no limit
  ClipParams clip = {};
  LearningRate rate = {};
  // The optimizer's: only Adam's are used here, for its bias corrections.
  bool adam = false;
  AdamParams optimizer = {};
};

struct TargetParams {
  std::int64_t ignore_index = -100;
  // Class weights are added one after the other: the same bits however a window is cut.
  bool in_order = false;
};

// What launch A makes of its sums; one thread calls it. True where the step is taken.
ROUNDOFF_HD inline bool close_window(const WindowParams& p, StepState& state, double squares,
                                     std::int32_t first_offender, std::int32_t present,
                                     const DeviceErrors* errors) {
  StepRecord& r = state.record;
  r = StepRecord{};
  StepStatus& s = r.status;
  set_scale(s, state.scale);
  s.growth_tracker = state.growth_tracker;
  s.consecutive_skips = state.consecutive_skips;
  r.valid = state.valid;
  r.loss = state.loss;
  r.samples = state.samples;
  r.correct = state.correct;
  r.updates = state.updates;
  r.next_scale = state.scale;
  r.lr = learning_rate(p.rate, state.updates);
  if (state.halt == StepHalt::none && errors != nullptr && errors->code != 0) {
    r.errors = *errors;
    r.halt = state.halt = StepHalt::bad_data;
  }
  if (state.halt != StepHalt::none) {
    r.void_ = 1;
    return false;
  }
  // A window without a valid target is neutral, whatever its gradients hold.
  if (state.valid == 0.0) return false;
  s.present = present;
  s.found_inf = first_offender >= 0 ? 1 : 0;
  s.first_offender = first_offender;
  s.norm = std::sqrt(squares);
  s.clip = clip_coefficient(s.norm, p.clip.max_norm);
  r.did_step = present != 0 && (!p.scaler.enabled || s.found_inf == 0) ? 1 : 0;
  if (present == 0) return false;
  const ScalerState next = transition(
      p.scaler, {state.scale, state.growth_tracker, state.consecutive_skips}, s.found_inf != 0);
  s.growth_tracker = state.growth_tracker = next.growth_tracker;
  s.consecutive_skips = state.consecutive_skips = next.consecutive_skips;
  r.next_scale = state.scale = next.scale;
  if (r.did_step != 0) r.updates = ++state.updates;
  if (p.scaler.enabled && s.found_inf != 0 && p.max_skips > 0 &&
      next.consecutive_skips >= p.max_skips)
    r.halt = state.halt = StepHalt::collapse;
  return r.did_step != 0;
}

// Opens a window: labels of its micro-batches (int64, int32 or uint8, any shape), class weights
// [classes] (floating) or absent. Sets valid, seed and samples, clears loss and correct. One launch
// a micro-batch. A label outside [0, classes) weighs 1, and the loss reports it.
template <DeviceTarget T>
void open_window(T target, const TargetParams& params, std::span<const ConstView> labels,
                 const ConstView& class_weights, StepState* state);

// Adds a micro-batch's sum of losses (a scalar, fp32 or fp64), over the window's valid weight, or
// the losses of its samples one after the other, which is the same sum however a window is cut, and
// its correct predictions: logits [N, classes] whose largest element, the first of equals, stands
// at the label. A row that holds a NaN is not correct.
template <DeviceTarget T>
void score(T target, const ConstView& logits, const ConstView& labels, const ConstView& loss,
           StepState* state);

// Launch A.
template <DeviceTarget T>
void inspect_window(T target, const WindowParams& params, const StepTable& table);
// Launch B, with the optimizer's settings but for the learning rate, which launch A chose.
template <DeviceTarget T>
void update_window(T target, const SgdParams& params, const StepTable& table);
template <DeviceTarget T>
void update_window(T target, const AdamParams& params, const StepTable& table);

// The pieces for a person who puts a step together.

// Found_inf, first_offender, norm, clip and present of the gradients that are present, in
// state->record.status, whose inv_scale is read.
template <DeviceTarget T>
void inspect_gradients(T target, const ClipParams& params, const StepTable& table);
// Prepares launch B as launch A does, from a status and a rate of the host's.
template <DeviceTarget T>
void prepare_update(T target, const WindowParams& params, const StepStatus& status, double lr,
                    const StepTable& table);
// update_scale(config, *status) by one thread (kernels/step/scaler_transition.h).
template <DeviceTarget T>
void update_scale(T target, const ScalerConfig& config, StepStatus* status);

// kernels/step/unscale.h has the reference and the errors.
template <DeviceTarget T>
void unscale(T target, float inv_scale, const ConstView& from, const View& to);
// *finite = 1 or 0, in device memory.
template <DeviceTarget T>
void all_finite(T target, const ConstView& gradient, std::int32_t* finite);
template <DeviceTarget T>
void scale_gradient(T target, float factor, const View& gradient);

}  // namespace roundoff
