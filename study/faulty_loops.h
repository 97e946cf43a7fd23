// Training loops with one deliberate fault each in how they accumulate a window's gradient, and how
// far each is from the update of the large batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/optimizer.h"
#include "models/model.h"

namespace roundoff::study {

enum class Fault : unsigned char {
  none,
  steps_every_micro_batch,  // an update a micro-batch in place of one a window
  averages_means,           // mean of the micro-batches' means, whatever their sizes
  keeps_gradients,          // the last window's gradient is not cleared
  does_not_divide,          // sum of the micro-batches' means: A times the gradient
  clips_every_micro_batch,  // in place of the window's gradient
  drops_last_micro_batch,   // an off-by-one in the window's end
};
inline constexpr int kFaults = 7;
std::string_view name(Fault fault);

struct LoopSettings {
  ModelSettings model;
  OptimizerSettings optimizer;
  double lr = 0.1;
  std::uint64_t seed = 1;
  // Sizes of a window's micro-batches.
  std::vector<std::int64_t> sizes;
  double max_norm = std::numeric_limits<double>::infinity();
};

struct LoopOutcome {
  std::vector<double> start;  // weights before the first update, flat
  std::vector<double> end;    // and after the last
  std::int64_t updates = 0;
  std::vector<double> losses;  // a window each, before its update
  double accuracy = 0;         // on the training samples, at the end
};

// Trains `windows` windows in fp32 on the CPU, window w on the samples that follow those of w - 1
// in the data's order, from its start again where it ends.
LoopOutcome run_loop(Fault fault, const LoopSettings& settings, const Dataset& data,
                     std::int64_t windows);

// Gradients of the single samples of the first window, and their mean: what rounding can do to an
// update follows from their magnitudes.
struct SampleGradients {
  std::vector<double> mean;            // of the gradients
  std::vector<double> mean_magnitude;  // of their magnitudes
  std::int64_t depth = 0;              // rounded operations between a sample and its gradient
};
SampleGradients sample_gradients(const LoopSettings& settings, const Dataset& data);

// How far two right ways to compute the first update may be apart, |difference| / |update|, because
// of rounding: each element of the gradient within depth u mean|g|, each weight rounded once,
// through the optimizer's formula (SGD without momentum, or Adam's first step). First order;
// derived here, not proven.
double first_update_tolerance(const LoopSettings& settings, const SampleGradients& gradients,
                              const LoopOutcome& reference);

// |(a.end - a.start) - (b.end - b.start)| / |b.end - b.start|.
double update_distance(const LoopOutcome& a, const LoopOutcome& b);

}  // namespace roundoff::study
