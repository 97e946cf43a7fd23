// The accumulator as the only factor of a training run.
#include <cmath>

#include "models/trainer.h"
#include "study/accumulator_parts.h"
#include "study/experiment.h"
#include "study/statistics.h"

namespace roundoff::study {

namespace {

using Values = std::vector<double>;

struct Trained {
  Values weights;
  double loss = 0;
  double accuracy = 0;
  std::vector<float> first_gradient;
  std::int64_t skipped = 0;
};

Trained train(const Dataset& data, const Options& options, Accumulator a, std::uint64_t seed,
              std::int64_t steps) {
  TrainConfig config;
  config.model = {.model = "mlp", .hidden = {32}};
  config.precision = Precision::fp16;
  config.micro_batch = 32;
  config.steps = steps;
  config.seed = seed;
  config.accumulator = a;
  config.device = options.device;
  Trainer trainer(config, data);
  Trained trained;
  trained.first_gradient = trainer.first_gradient().values;
  while (!trainer.done()) trainer.step();
  trainer.settle();
  trained.weights = trainer.model().parameters().flat_master().to_vector();
  trained.skipped = trainer.skipped();
  // Judged by one yardstick: the accumulator is a factor of training alone.
  trainer.context().accumulator = Accumulator::fp32;
  const Evaluation validation = trainer.evaluate(data.validation);
  trained.loss = validation.loss;
  trained.accuracy = validation.accuracy();
  return trained;
}

double distance(std::span<const float> a, std::span<const float> b) {
  return relative_difference(Values(a.begin(), a.end()), Values(b.begin(), b.end()));
}

}  // namespace

void accumulator_training(const Options& options, const std::vector<std::uint64_t>& seeds,
                          Result& result) {
  constexpr auto kMeasured = Provenance::measured;
  const std::int64_t steps = options.quick ? 40 : 300;
  GlyphSettings glyphs;
  if (options.quick) glyphs.train_scenes = 60;
  const Dataset data = study_data(options, glyphs);
  Table table(concat("Training: ", steps, " windows of 32, fp16 mixed precision"),
              {{"accumulator"},
               {"seed"},
               {"first gradient's deviation", kMeasured, 3},
               {"weights' deviation", kMeasured, 3},
               {"validation loss", kMeasured, 5},
               {"validation accuracy", kMeasured, 4, "%"},
               {"skipped windows", Provenance::counted}});
  constexpr Accumulator kTrained[] = {Accumulator::fp64, Accumulator::fp32, Accumulator::h100,
                                      Accumulator::a100, Accumulator::v100, Accumulator::fp16};
  Values fp32_losses;
  double largest_shift = 0, half_shift = 0, largest_gpu = 0, fp16_first = HUGE_VAL;
  for (const std::uint64_t seed : seeds) {
    Trained baseline;
    double fp32_loss = 0;
    for (const Accumulator a : kTrained) {
      if (options.stop && options.stop()) throw Interrupted("[study] accumulator interrupted");
      if (options.progress)
        options.progress(concat("accumulator: training, ", name(a), ", seed ", seed));
      Trained t = train(data, options, a, seed, steps);
      const bool first = a == Accumulator::fp64;
      if (first) baseline = t;
      const double deviation = distance(t.first_gradient, baseline.first_gradient);
      table.add_row({std::string(name(a)), static_cast<std::int64_t>(seed),
                     first ? Cell() : Cell(deviation),
                     first ? Cell() : Cell(relative_difference(t.weights, baseline.weights)),
                     t.loss, 100 * t.accuracy, t.skipped});
      if (a == Accumulator::fp32) {
        fp32_loss = t.loss;
        fp32_losses.push_back(t.loss);
      }
      if (truncates(a)) {
        largest_shift = std::max(largest_shift, std::abs(t.loss - fp32_loss));
        largest_gpu = std::max(largest_gpu, deviation);
      }
      if (a == Accumulator::fp16) {
        half_shift = std::max(half_shift, std::abs(t.loss - fp32_loss));
        fp16_first = std::min(fp16_first, deviation);
      }
    }
  }
  table.add_note(
      "Deviations: L2, relative, from the run with the same seed in which sums are formed in fp64. "
      "Evaluation adds in fp32 in every row.");
  result.tables.push_back(std::move(table));
  result.claims.push_back(
      {"The accumulator alone: an fp16 one moves the first gradient further than any GPU's fp32 "
       "one",
       concat("fp16 at least ", digits(fp16_first), ", GPUs at most ", digits(largest_gpu)),
       fp16_first > largest_gpu});
  if (seeds.size() < 2) return;
  const double spread = standard_deviation(fp32_losses);
  result.claims.push_back(
      {"A GPU's accumulator moves the loss by less than another seed does",
       concat("largest shift of the validation loss ", digits(largest_shift),
              ", standard deviation over ", seeds.size(), " seeds ", digits(spread),
              "; the fp16 accumulator moves it by up to ", digits(half_shift)),
       largest_shift < spread});
}

}  // namespace roundoff::study
