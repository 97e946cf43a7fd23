// The loop that steps too often, and the noise of a gradient.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/evaluate.h"
#include "study/accumulation_parts.h"
#include "study/mlp_bound.h"
#include "study/statistics.h"

namespace roundoff::study {

namespace {

constexpr auto kCounted = Provenance::counted;
constexpr auto kMeasured = Provenance::measured;
constexpr auto kPredicted = Provenance::predicted;

constexpr std::int64_t kMicro = 16;
constexpr std::int64_t kParts = 4;
constexpr double kRate = 0.05;

enum class Loop { batch, window, every_micro_batch, never_cleared };

struct Path {
  std::int64_t updates = 0;
  std::vector<double> loss;                  // of a window's samples, as they were met
  std::vector<std::vector<double>> weights;  // after every window
  double validation = 0;
};

Path walk(const Options& options, const Dataset& data, Loop loop, std::int64_t windows) {
  Experiment e({.model = {.model = "tiny-mlp"},
                .optimizer = {.kind = OptimizerSettings::Kind::sgd},
                .seed = first_seed(options),
                .device = options.device},
               data);
  ParameterArena& parameters = e.model->parameters();
  Sampler sampler({.seed = first_seed(options),
                   .count = data.train.size(),
                   .batch = kParts * kMicro,
                   .drop_last = true});
  Path path;
  for (std::int64_t i = 0; i < windows; ++i) {
    const Sampler::Batch samples = sampler.next();
    const auto window = e.window(samples, loop == Loop::batch ? kParts * kMicro : kMicro);
    double loss = 0;
    if (loop == Loop::batch || loop == Loop::window) {
      const StepResult r = e.step(window, {.lr = kRate});
      path.updates += r.did_step;
      loss = r.loss;
    } else {
      // The bug: backward and step in the same loop, each micro-batch with its own mean; or with
      // gradients that are cleared only where the window ends.
      for (const MicroBatch& micro : window) {
        loss += accumulate_window(e.context, *e.model, {&micro, 1}, 1.0, {}).loss /
                static_cast<double>(kParts);
        StepStatus status;
        e.optimizer->inspect({}, status);
        e.optimizer->apply(kRate, status);
        ++path.updates;
        if (loop == Loop::every_micro_batch) parameters.zero_grad();
      }
      parameters.zero_grad();
    }
    path.loss.push_back(loss);
    path.weights.push_back(e.weights());
  }
  path.validation = evaluate(e.context, *e.model, data.validation, data.normalization).loss;
  return path;
}

}  // namespace

void accumulation_loop(const Options& options, const Dataset& data, Result& result) {
  const std::int64_t windows = options.quick ? 300 : 1500;
  struct Case {
    const char* name;
    Loop loop;
  };
  const Case cases[] = {{"batch of 64", Loop::batch},
                        {"window of 4 x 16", Loop::window},
                        {"steps at every micro-batch", Loop::every_micro_batch},
                        {"the same, gradients not cleared", Loop::never_cleared}};
  std::vector<Path> paths;
  for (const Case& c : cases) {
    begin(options, concat("accumulation: ", c.name));
    paths.push_back(walk(options, data, c.loop, windows));
  }
  Experiment start({.model = {.model = "tiny-mlp"}, .seed = first_seed(options)}, data);
  const std::vector<double> first = start.weights();
  const auto off = [&](const Path& p, std::size_t i) {
    std::vector<double> way(first.size());
    for (std::size_t k = 0; k < way.size(); ++k) way[k] = paths[0].weights[i][k] - first[k];
    std::vector<double> gap(first.size());
    for (std::size_t k = 0; k < gap.size(); ++k) gap[k] = p.weights[i][k] - paths[0].weights[i][k];
    return norm(gap) / norm(way);
  };
  const auto last = static_cast<std::size_t>(windows - 1);
  Table table(concat("The loop, right and wrong: SGD at ", kRate, ", ", windows, " windows"),
              {{"loop"},
               {"updates", kCounted},
               {"distance to the batch's weights, first window", kMeasured, 3},
               {"distance, last window", kMeasured, 3},
               {"validation loss", kMeasured, 4}});
  std::vector<Series> distance, loss;
  std::vector<double> x;
  for (std::int64_t i = 1; i <= windows; ++i) x.push_back(static_cast<double>(i));
  for (std::size_t c = 0; c < paths.size(); ++c) {
    table.add_row({cases[c].name, paths[c].updates, off(paths[c], 0), off(paths[c], last),
                   paths[c].validation});
    loss.push_back({cases[c].name, x, paths[c].loss});
    if (c == 0) continue;
    Series s{cases[c].name, x, {}};
    for (std::size_t i = 0; i <= last; ++i) s.y.push_back(off(paths[c], i));
    distance.push_back(std::move(s));
  }
  table.add_note("Distances are relative to how far the batch's weights are from the start.");
  result.tables.push_back(std::move(table));
  result.figures.push_back(
      {.name = "trajectory",
       .caption = "Distance of the weights to those of the large batch, over the batch's way from "
                  "the start. The window stays on the path up to rounding; the loop that steps at "
                  "every micro-batch is another training run from the first window on.",
       .x_label = "window",
       .y_label = "relative distance",
       .series = std::move(distance),
       .log_y = true});
  result.figures.push_back({.name = "loop-loss",
                            .caption = "Training loss of the same runs: the bug does not show as a "
                                       "failure. It takes four steps for one, as a rate four times "
                                       "as large would.",
                            .x_label = "window",
                            .y_label = "loss, nats a sample",
                            .series = std::move(loss)});
  result.claims.push_back(
      {"The loop that steps at every micro-batch makes A times as many updates.",
       concat(paths[2].updates, " updates against ", paths[1].updates, "; ", kParts,
              " times as many expected"),
       paths[1].updates == windows && paths[2].updates == kParts * windows});

  // After one window: both updates start at the same weights, and each is off by the rate times
  // its gradient's bound and two roundings.
  Sampler sampler({.seed = first_seed(options),
                   .count = data.train.size(),
                   .batch = kParts * kMicro,
                   .drop_last = true});
  const auto whole = start.window(sampler.next(), kParts * kMicro);
  std::vector<std::int64_t> labels(static_cast<std::size_t>(kParts * kMicro));
  whole[0].host_labels.read(labels.data());
  const BoundedGradient g = bounded_gradient({data.image.numel(), 16, data.classes}, first,
                                             whole[0].x.to_vector(), labels, kParts);
  const auto beyond = [&](const Path& p) {
    std::int64_t count = 0;
    for (std::size_t k = 0; k < first.size(); ++k) {
      const double update = kRate * (std::abs(g.value[k]) + g.bound[k]);
      const double bound =
          2 * (kRate * g.bound[k] + 3 * 0x1p-24 * update + 0x1p-24 * (std::abs(first[k]) + update));
      count += std::abs(p.weights[0][k] - paths[0].weights[0][k]) > bound;
    }
    return count;
  };
  result.claims.push_back(
      {"After one window the accumulating loop is where the large batch is, up to rounding; the "
       "loop that steps at every micro-batch is not.",
       concat(beyond(paths[1]), " weights beyond the bound against ", beyond(paths[2]), " of ",
              first.size()),
       beyond(paths[1]) == 0 && beyond(paths[2]) > 0});
}

void accumulation_variance(const Options& options, const Dataset& data, Result& result) {
  begin(options, "accumulation: the gradient's noise");
  Experiment e(
      {.model = {.model = "tiny-mlp"}, .seed = first_seed(options), .device = options.device},
      data);
  const std::int64_t population = data.train.size();
  const std::vector<std::int64_t> all = first_samples(population);
  const std::vector<double> mean_gradient = e.gradient(e.window(all, population));
  // Of single samples, all of them: mean of |g_i - g|^2.
  double sigma2 = 0;
  for (const std::int64_t i : all) {
    const std::vector<double> g = e.gradient(e.window({&i, 1}, 1));
    for (std::size_t k = 0; k < g.size(); ++k)
      sigma2 +=
          (g[k] - mean_gradient[k]) * (g[k] - mean_gradient[k]) / static_cast<double>(population);
  }
  const std::int64_t draws = options.quick ? 200 : 2000;
  Table table(concat("Variance of the gradient of n samples: ", draws, " random batches each"),
              {{"n", kCounted},
               {"variance", kMeasured, 4},
               {"99.99% interval", kMeasured},
               {"sigma^2 / n, finite population", kPredicted, 4}});
  Series measured{"measured", {}, {}, Series::Style::dots};
  Series predicted{"sigma^2 / n (N - n) / (N - 1)", {}, {}, Series::Style::line};
  predicted.provenance = kPredicted;
  bool holds = true;
  double worst = 0;
  // A level at which none of the sizes is expected outside by chance.
  constexpr double kLevel = 0.9999;
  for (std::int64_t n = 2; n <= 256 && n < population; n *= 2) {
    std::vector<double> squares;
    for (std::int64_t d = 0; d < draws; ++d) {
      std::vector<std::int64_t> order(all.size());
      epoch_order(static_cast<std::uint64_t>(n), d, order);
      const std::vector<double> g =
          e.gradient(e.window(std::span(order).first(static_cast<std::size_t>(n)), n));
      double sum = 0;
      for (std::size_t k = 0; k < g.size(); ++k)
        sum += (g[k] - mean_gradient[k]) * (g[k] - mean_gradient[k]);
      squares.push_back(sum);
    }
    const double expected = sigma2 / static_cast<double>(n) * static_cast<double>(population - n) /
                            static_cast<double>(population - 1);
    const MeanInterval m = mean_interval(squares);
    const Interval wide = *mean_interval(squares, kLevel).interval;
    holds = holds && wide.low <= expected && expected <= wide.high;
    worst = std::max(worst, std::abs(m.mean / expected - 1));
    table.add_row(
        {n, m.mean, concat("[", digits(wide.low), ", ", digits(wide.high), "]"), expected});
    measured.x.push_back(static_cast<double>(n));
    measured.y.push_back(m.mean);
    predicted.x.push_back(static_cast<double>(n));
    predicted.y.push_back(expected);
  }
  table.add_note(concat("sigma^2 = ", digits(sigma2),
                        " is the variance of single samples, over all ", population,
                        " of them; batches are drawn without replacement."));
  result.tables.push_back(std::move(table));
  result.figures.push_back(
      {.name = "variance",
       .caption = "Mean squared distance of a batch's gradient to that of all samples: it falls as "
                  "1/n, and faster near the whole set, which has none.",
       .x_label = "samples n",
       .y_label = "variance of the gradient",
       .series = {measured, predicted},
       .log_x = true,
       .log_y = true});
  result.claims.push_back(
      {"The variance of the gradient of n samples is that of one sample over n, corrected for "
       "drawing without replacement.",
       concat("largest deviation from the prediction ", digits(100 * worst, 3),
              "%; the prediction lies in every 99.99% interval: ", holds ? "yes" : "no"),
       holds});
}

}  // namespace roundoff::study
