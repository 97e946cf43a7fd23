// Where a training step's memory goes, and what a wrong time measurement shows.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "models/trainer.h"
#include "study/citation.h"
#include "study/experiment.h"
#include "study/list.h"
#include "study/statistics.h"

namespace roundoff::study {

namespace {

constexpr auto kCounted = Provenance::counted;
constexpr auto kMeasured = Provenance::measured;

constexpr std::int64_t kWindow = 64;
constexpr Precision kPrecisions[] = {Precision::fp32, Precision::bf16, Precision::fp16,
                                     Precision::pure_bf16};

constexpr auto at(MemoryCategory category) { return static_cast<std::size_t>(category); }

double kib(std::int64_t bytes) { return static_cast<double>(bytes) / 1024; }

struct Counted {
  MemoryStats stats;
  std::int64_t flat = 0;              // elements of a flat block of parameters
  std::int64_t late_allocations = 0;  // blocks asked of the system after the first step
};

// Three windows of `samples` in micro-batches of `micro`.
Counted count(const Options& options, const Dataset& data, Precision precision,
              std::int64_t samples, std::int64_t micro) {
  Experiment e({.model = {.model = "convnet"}, .precision = precision, .device = options.device},
               data);
  const std::vector<std::int64_t> indices = first_samples(samples);
  Counted c;
  c.flat = e.model->parameters().flat_size();
  for (int step = 0; step < 3; ++step) {
    e.step(e.window(indices, micro), {});
    if (step == 0) c.late_allocations = -e.context.allocator.stats().system_allocations;
  }
  c.stats = e.context.allocator.stats();
  c.late_allocations += c.stats.system_allocations;
  return c;
}

// Bytes that a step's parameters, moments and gradients take by their types.
std::int64_t bytes_of_parameters(Precision precision, std::int64_t flat) {
  if (is_pure(precision)) return 2 * flat;
  return (is_mixed(precision) ? 6 : 4) * flat;
}

void by_category(const Options& options, const Dataset& data, Result& result) {
  Table table("Peak memory of a window of 64 images: convnet, AdamW",
              {{"precision"},
               {"micro-batch", kCounted},
               {"parameters", kCounted, 5, "KiB"},
               {"optimizer", kCounted, 5, "KiB"},
               {"gradients", kCounted, 5, "KiB"},
               {"activations", kCounted, 6, "KiB"},
               {"workspace", kCounted, 6, "KiB"},
               {"together", kCounted, 6, "KiB"},
               {"activations peak in"}});
  const std::vector<std::int64_t> micros{1, 2, 4, 8, 16, 32, 64};
  std::int64_t wrong_blocks = 0, late = 0, bent = 0, rows = 0;
  std::vector<std::vector<double>> activations;
  Figure figure{.name = "activations",
                .caption =
                    "Peak of the activations against the micro-batch, the window being 64 "
                    "images throughout: a straight line, and lower in 16 bit.",
                .x_label = "images a micro-batch",
                .y_label = "activations, KiB",
                .log_x = true,
                .log_y = true,
                .provenance = kCounted};
  for (const Precision precision : kPrecisions) {
    begin(options, concat("memory: ", name(precision)));
    Series series{std::string(name(precision)), {}, {}, Series::Style::line_and_dots};
    std::vector<double> peaks;
    for (const std::int64_t micro : micros) {
      const Counted c = count(options, data, precision, kWindow, micro);
      const auto& peak = c.stats.peak;
      const std::int64_t parameters = peak[at(MemoryCategory::parameters)];
      const std::int64_t optimizer = peak[at(MemoryCategory::optimizer)];
      const std::int64_t gradients = peak[at(MemoryCategory::gradients)];
      const std::int64_t activation = peak[at(MemoryCategory::activations)];
      // A device keeps its step's tables beside the moments.
      const bool moments =
          options.device == Device::cpu ? optimizer == 8 * c.flat : optimizer >= 8 * c.flat;
      wrong_blocks += parameters != bytes_of_parameters(precision, c.flat) || !moments ||
                      gradients != 4 * c.flat;
      late += c.late_allocations;
      ++rows;
      peaks.push_back(static_cast<double>(activation));
      series.x.push_back(static_cast<double>(micro));
      series.y.push_back(kib(activation));
      table.add_row({std::string(name(precision)), micro, kib(parameters), kib(optimizer),
                     kib(gradients), kib(activation), kib(peak[at(MemoryCategory::workspace)]),
                     kib(c.stats.total_peak), std::string(c.stats.activation_peak_node)});
    }
    // a + b m: every point on the line through the first and the last.
    const double slope =
        (peaks.back() - peaks.front()) / static_cast<double>(micros.back() - micros.front());
    for (std::size_t i = 0; i < micros.size(); ++i) {
      const double line = peaks.front() + slope * static_cast<double>(micros[i] - micros.front());
      bent += peaks[i] != line;
    }
    activations.push_back(std::move(peaks));
    figure.series.push_back(std::move(series));
  }
  table.add_note(
      "Bytes as asked for by tensors. Peaks of categories need not fall together: they may add up "
      "to more than the peak together. Workspace holds the window's 64 images.");
  result.tables.push_back(std::move(table));
  result.figures.push_back(std::move(figure));
  result.claims.push_back(
      {"Parameters, moments and gradients take what their types say, whatever the micro-batch: 4 "
       "bytes a parameter, 2 more for the 16-bit copy, 8 for Adam's moments, 4 for the gradient.",
       concat(wrong_blocks, " of ", rows, " runs differ; 0 expected"), wrong_blocks == 0});
  result.claims.push_back({"The peak of the activations is a straight line in the micro-batch.",
                           concat(bent, " of ", rows, " points off the line; 0 expected"),
                           bent == 0});
  result.claims.push_back(
      {"Mixed precision lowers the activations, by the same in bf16 and fp16; and adds the 16-bit "
       "copy of the parameters.",
       concat("at 64 images ", digits(activations[1].back() / activations[0].back(), 3),
              " of fp32's in bf16, ", digits(activations[2].back() / activations[0].back(), 3),
              " in fp16"),
       activations[1].back() < activations[0].back() && activations[1] == activations[2]});
  result.claims.push_back({"After its first window a run asks the system for no more memory.",
                           concat(late, " blocks in all runs; 0 expected"), late == 0});
}

void by_window(const Options& options, const Dataset& data, Result& result) {
  begin(options, "memory: window against micro-batch");
  Table table(
      "What accumulation saves: fp32, micro-batches of 16",
      {{"window", kCounted}, {"micro-batches", kCounted}, {"activations", kCounted, 6, "KiB"}});
  std::vector<std::int64_t> peaks;
  for (const std::int64_t parts : {1, 2, 4, 8}) {
    const Counted c = count(options, data, Precision::fp32, 16 * parts, 16);
    peaks.push_back(c.stats.peak[at(MemoryCategory::activations)]);
    table.add_row({16 * parts, parts, kib(peaks.back())});
  }
  result.tables.push_back(std::move(table));
  result.claims.push_back(
      {"A window costs the activations of one micro-batch, however many it has.",
       concat(peaks.front(), " bytes with 1 micro-batch, ", peaks.back(), " with 8"),
       std::all_of(peaks.begin(), peaks.end(), [&](auto p) { return p == peaks.front(); })});
}

using Clock = std::chrono::steady_clock;
double milliseconds(Clock::time_point from) {
  return std::chrono::duration<double, std::milli>(Clock::now() - from).count();
}

// What the first step shows here, in a sentence.
std::string cold_start(const Options& options, const Dataset& data, Result& result) {
  begin(options, "memory: cold start");
  const int models = options.quick ? 5 : 20;
  const int steps = 12;
  std::vector<double> first, rest, few;
  Series path{"step", {}, {}, Series::Style::line_and_dots};
  for (int m = 0; m < models; ++m) {
    Experiment e({.model = {.model = "convnet"}, .device = options.device}, data);
    const std::vector<std::int64_t> indices = first_samples(kWindow);
    std::vector<double> times;
    for (int s = 0; s < steps; ++s) {
      const auto window = e.window(indices, kWindow);
      const auto begin = Clock::now();
      e.step(window, {});
      times.push_back(milliseconds(begin));
    }
    first.push_back(times[0]);
    few.push_back(mean(std::span(times).first(3)));
    rest.push_back(median(std::span(times).subspan(2)));
    if (m > 0) continue;
    for (int s = 0; s < steps; ++s) {
      path.x.push_back(s + 1);
      path.y.push_back(times[static_cast<std::size_t>(s)]);
    }
  }
  Table table(
      concat("The same step, timed in three ways: convnet, fp32, median of ", models,
             " fresh models"),
      {{"what is timed"}, {"a step", kMeasured, 4, "ms"}, {"over the warm one", kMeasured, 4}});
  const double warm = median(rest);
  const auto row = [&](const char* what, const std::vector<double>& times) {
    table.add_row({what, median(times), median(times) / warm});
  };
  row("the first step", first);
  row("the mean of the first three", few);
  row("the median after two that are thrown away", rest);
  table.add_note(
      concat("The first step of this study's first model took ", digits(first[0]), " ms."));
  table.add_note("Clock times of this machine, whatever else it was doing: they rank nothing.");
  result.tables.push_back(std::move(table));
  result.figures.push_back(
      {.name = "cold-start",
       .caption =
           "Time of the first steps of this study's first model: what is new or cold, memory "
           "and code, is paid for in these.",
       .x_label = "step",
       .y_label = "time, ms",
       .series = {std::move(path)}});
  // A median that lies beyond every warm one is no accident of the clock.
  const double start = median(first);
  if (start > *std::max_element(rest.begin(), rest.end()))
    return concat("The first step of a model takes ", digits(start / warm, 3),
                  " times as long as later ones: a mean that includes it reports the start.");
  return concat("Here the first step of a model takes no longer than later ones may (",
                digits(start / warm, 3),
                " times their median): the process is warm, and nothing else was cold.");
}

void missing_synchronisation(const Options& options, const Dataset& data, Result& result) {
  const char* what = "missing synchronisation in a time measurement";
  if (!device_refusal(Device::cuda).empty()) {
    result.skipped.push_back(concat(what, ": needs a GPU"));
    return;
  }
  begin(options, concat("memory: ", what));
  TrainConfig config;
  config.model.model = "convnet";
  config.precision = Precision::bf16;
  config.device = Device::cuda;
  config.micro_batch = kWindow;
  config.steps = 40;
  Trainer trainer(config, data);
  for (int i = 0; i < 10; ++i) trainer.step();
  trainer.settle();
  // Two windows may be in flight: more would wait inside.
  const int steps = 2;
  std::vector<double> queued, done;
  for (int i = 0; i < 10; ++i) {
    const auto begin = Clock::now();
    for (int s = 0; s < steps; ++s) trainer.step();
    queued.push_back(milliseconds(begin) / steps);
    trainer.settle();
    done.push_back(milliseconds(begin) / steps);
  }
  Table table("A step on the GPU, timed with and without waiting for it",
              {{"the clock is read"}, {"a step", kMeasured, 4, "ms"}});
  table.add_row({"when the work is queued", median(queued)});
  table.add_row({"when the work is done", median(done)});
  result.tables.push_back(std::move(table));
}

}  // namespace

Result run_memory(const Options& options) {
  Result result;
  result.title = "Memory of a training step, and how not to time one";
  result.question =
      "Where does the memory of a step go, what do 16 bit and micro-batches save, and what does a "
      "careless clock show?";
  result.method = {
      "The allocator accounts for every tensor's bytes in one of five categories, and remembers "
      "the peak of each and the operation at which activations peaked. The counts are exact and "
      "the same on every machine; they leave out what libraries and kernels take for themselves.",
      "One convolutional network trains for three windows at each precision and micro-batch.",
      "Times are of the machine that ran this: a step is timed from the first, and after two that "
      "are thrown away."};
  const Dataset data = study_data(
      options,
      {.train_scenes = 8, .validation_scenes = 1, .test_scenes = 1, .images_per_scene = 25});
  need_samples("memory", data, kWindow);
  by_category(options, data, result);
  by_window(options, data, result);
  const std::string started = cold_start(options, data, result);
  missing_synchronisation(options, data, result);
  result.shows = {
      "Activations grow with the micro-batch and nothing else does: accumulation trades them for "
      "time at the same window.",
      "Mixed precision saves activations and costs a copy of the parameters; for a small batch of "
      "a large model the copy can be the larger part."};
  result.shows.push_back(started);
  result.does_not_show = {
      "Memory of other frameworks: fusion, recomputation and what a library reserves differ.",
      "Speed. A CPU's milliseconds say nothing about a GPU's."};
  result.references = {
      mixed_precision_training(),
      {"hoefler2015scientific",
       "inproceedings",
       {{"author", "Hoefler, Torsten and Belli, Roberto"},
        {"title",
         "Scientific Benchmarking of Parallel Computing Systems: Twelve ways to tell the masses "
         "when reporting performance results"},
        {"booktitle",
         "International Conference for High Performance Computing, Networking, Storage and "
         "Analysis"},
        {"year", "2015"}}}};
  set_one_seed(options, result);
  return result;
}

}  // namespace roundoff::study
