// Windows that are equal to the bit: the reproducible mode against the plain one.
#include <algorithm>
#include <chrono>

#include "engine/data/random.h"
#include "study/accumulation_parts.h"
#include "study/statistics.h"

namespace roundoff::study {

namespace {

constexpr auto kCounted = Provenance::counted;
constexpr auto kMeasured = Provenance::measured;

constexpr std::int64_t kBatch = 64;

// A random cut of the window: sizes from 1 up.
std::vector<std::int64_t> cut(RandomStream& random) {
  std::vector<std::int64_t> sizes;
  const std::uint64_t largest = 1 + random.below(static_cast<std::uint64_t>(kBatch) - 1);
  for (std::int64_t rest = kBatch; rest > 0; rest -= sizes.back())
    sizes.push_back(std::min(rest, 1 + static_cast<std::int64_t>(random.below(largest))));
  return sizes;
}

struct Counted {
  std::int64_t differ = 0;        // cuts whose gradient has other bits than the batch's
  std::int64_t paths_differ = 0;  // of runs of some windows, each window cut in another way
};

Counted count(const Options& options, const Dataset& data, const Setup& setup, bool reproducible,
              std::int64_t cuts, std::int64_t paths, std::int64_t steps) {
  Counted counted;
  const std::vector<std::int64_t> indices = first_samples(kBatch);
  // A scale that fp16 bears here, the same throughout.
  const double scale = setup.precision == Precision::fp16 ? 0x1p10 : 1;
  RandomStream random(first_seed(options), RandomUse::checks, 3);
  {
    Experiment e(setup, data);
    e.context.reproducible = reproducible;
    const std::vector<double> batch = e.gradient(e.window(indices, kBatch), scale);
    for (std::int64_t i = 0; i < cuts; ++i)
      counted.differ += e.gradient(e.window(indices, cut(random)), scale) != batch;
  }
  const auto walk = [&](bool whole) {
    Experiment e(setup, data);
    e.context.reproducible = reproducible;
    Sampler sampler({.seed = first_seed(options),
                     .count = data.train.size(),
                     .batch = kBatch,
                     .drop_last = true});
    for (std::int64_t s = 0; s < steps; ++s) {
      const Sampler::Batch batch = sampler.next();
      const auto window =
          whole ? e.window(batch, kBatch) : e.window(batch.indices, cut(random), batch.first);
      e.step(window, {.lr = 1e-3, .max_norm = 1});
    }
    return e.weights();
  };
  const std::vector<double> path = walk(true);
  for (std::int64_t i = 0; i < paths; ++i) {
    if (options.stop && options.stop()) throw Interrupted("[study] interrupted");
    counted.paths_differ += walk(false) != path;
  }
  return counted;
}

// Time of a step over the plain mode's, of the window in four micro-batches.
double cost(const Dataset& data, const Setup& setup, int repeats) {
  std::vector<double> times[2];
  for (int r = 0; r < repeats; ++r)
    for (const bool reproducible : {false, true}) {
      Experiment e(setup, data);
      e.context.reproducible = reproducible;
      const std::vector<std::int64_t> indices = first_samples(kBatch);
      e.step(e.window(indices, kBatch / 4), {});
      const auto window = e.window(indices, kBatch / 4);
      const auto begin = std::chrono::steady_clock::now();
      for (int s = 0; s < 3; ++s) e.step(window, {});
      times[reproducible ? 1 : 0].push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
  return median(times[1]) / median(times[0]);
}

}  // namespace

void accumulation_bitwise(const Options& options, const Dataset& data, Result& result) {
  const std::int64_t cuts = options.quick ? 30 : 400;
  const std::int64_t paths = options.quick ? 3 : 10;
  const std::int64_t steps = options.quick ? 5 : 10;
  Table table(concat("Random cuts of a window of 64 that change a bit; and runs of ", steps,
                     " windows, each cut in another way"),
              {{"model"},
               {"precision"},
               {"cuts", kCounted},
               {"differ, plain", kCounted},
               {"differ, reproducible", kCounted},
               {"runs", kCounted},
               {"runs differ, plain", kCounted},
               {"runs differ, reproducible", kCounted},
               {"time over plain", kMeasured, 3}});
  std::int64_t plain = 0, reproducible = 0, all = 0;
  for (const char* model : {"tiny-mlp", "convnet"})
    for (const Precision precision : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      begin(options, concat("accumulation: to the bit, ", model, " in ", name(precision)));
      const Setup setup{.model = {.model = model},
                        .precision = precision,
                        .scaler = {.init_scale = 0x1p10, .enabled = precision == Precision::fp16},
                        .seed = first_seed(options),
                        .device = options.device};
      const Counted a = count(options, data, setup, false, cuts, paths, steps);
      const Counted b = count(options, data, setup, true, cuts, paths, steps);
      plain += a.differ + a.paths_differ;
      reproducible += b.differ + b.paths_differ;
      all += cuts + paths;
      table.add_row({model, std::string(name(precision)), cuts, a.differ, b.differ, paths,
                     a.paths_differ, b.paths_differ, cost(data, setup, options.quick ? 3 : 15)});
    }
  table.add_note(
      "A cut differs where any element of the gradient, or of the weights after the last window, "
      "has another value. Times are of this machine; docs/reproducible.md has careful ones.");
  result.tables.push_back(std::move(table));
  result.claims.push_back(
      {"In the reproducible mode, no cut of a window changes a bit of the gradient, nor of the "
       "weights some windows later.",
       concat(reproducible, " of ", all, " cuts and runs differ; 0 expected"), reproducible == 0});
  result.claims.push_back({"In the plain mode cuts do change bits: the comparison can see it.",
                           concat(plain, " of ", all, " cuts and runs differ"), plain > 0});
}

}  // namespace roundoff::study
