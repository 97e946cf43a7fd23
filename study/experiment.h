// What studies share: a model that trains in memory, its gradients as flat vectors, and small
// words about vectors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/data/glyphs.h"
#include "engine/data/loader.h"
#include "engine/loss_scaler.h"
#include "engine/optimizer.h"
#include "models/model.h"
#include "models/precision.h"
#include "models/train_step.h"
#include "study/study.h"

namespace roundoff::study {

// The data that `options` names, or glyphs of `settings`. Of named data, quick studies take the
// first 2,000 training images and 1,000 of every other split, and the name says so.
Dataset study_data(const Options& options, const GlyphSettings& settings);
// Leaves the first n samples, or all where there are fewer.
void keep_first(Split& split, std::int64_t n);
// Throws UsageError for a seed that is there twice: it would make an interval too narrow.
void check_seeds(std::span<const std::uint64_t> seeds);
// The seeds of `options`, checked, or 1 to `own`.
std::vector<std::uint64_t> study_seeds(const Options& options, std::int64_t own);
// For a study that takes one seed: the first of `options`, or 1; set_one_seed() also writes it into
// the result, and what was left out.
std::uint64_t first_seed(const Options& options);
void set_one_seed(const Options& options, Result& result);
// Throws Error, naming the study, where the training split has fewer samples.
void need_samples(std::string_view study, const Dataset& data, std::int64_t samples);

struct Setup {
  ModelSettings model = {};  // input and classes are taken from the data
  Precision precision = Precision::fp32;
  // Masters, activations and gradients in fp64: for gradients to compare with. Such an experiment
  // has no optimizer. cpu only.
  bool fp64 = false;
  OptimizerSettings optimizer = {};
  ScalerConfig scaler{.enabled = false};
  std::int64_t max_skips = 0;
  std::uint64_t seed = 1;
  Device device = Device::cpu;
};

// A model with its context, optimizer and scaler, and windows of a data set's training split.
class Experiment {
 public:
  // `data` must outlive it. `model`: in place of the one that the setup names.
  Experiment(const Setup& setup, const Dataset& data, std::unique_ptr<Model> model = nullptr);

  // The samples `indices` as one window, cut into micro-batches of `sizes`, which add up to their
  // number (throws otherwise). `first`: place of the first of them in the epoch's order.
  std::vector<MicroBatch> window(std::span<const std::int64_t> indices,
                                 std::span<const std::int64_t> sizes, std::int64_t first = 0);
  // The same in micro-batches of `micro_batch`, of which the last may be smaller.
  std::vector<MicroBatch> window(std::span<const std::int64_t> indices, std::int64_t micro_batch,
                                 std::int64_t first = 0);
  std::vector<MicroBatch> window(const Sampler::Batch& batch, std::int64_t micro_batch) {
    return window(batch.indices, micro_batch, batch.first);
  }

  // The window's gradient, computed at `scale` and divided by it in fp64 (exact for a power of
  // two). Moves nothing on.
  std::vector<double> gradient(std::span<const MicroBatch> window, double scale = 1);
  // The largest power of two at which all of the window's gradients are finite, between 2^-100 and
  // 2^100; 0 where none is. Looks around `near`, a power of two. Moves nothing on.
  double largest_scale(std::span<const MicroBatch> window, double near);
  // One training step.
  StepResult step(std::span<const MicroBatch> window, const StepSettings& settings);

  // Flat, in the arena's order, padding left out. An absent gradient is zero.
  std::vector<double> flat_gradient() const;
  std::vector<double> weights() const;

  Context context;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;  // null for fp64
  LossScaler scaler;

 private:
  bool finite(std::span<const MicroBatch> window, double scale);

  const Dataset& data_;
  BatchReader reader_;
  Allocator host_;
};

// Appends a cell, an empty one for NaN: there is no such number.
void add_number(std::vector<Cell>& row, double value);

// 0, 1, 2, ... n - 1.
std::vector<std::int64_t> first_samples(std::int64_t n);

// Euclidean norm.
double norm(std::span<const double> v);
// |a - b| / |b|.
double relative_difference(std::span<const double> a, std::span<const double> b);
// a b / (|a| |b|); NaN where one of them is zero.
double cosine(std::span<const double> a, std::span<const double> b);
// Elements that are not zero in b and are in a.
std::int64_t flushed(std::span<const double> a, std::span<const double> b);
std::int64_t nonzeros(std::span<const double> v);

// printf's %g: `digits` significant digits.
std::string digits(double value, int digits = 4);
// A power of two as "2^16"; any other number in digits.
std::string power_of_two(double value);

}  // namespace roundoff::study
