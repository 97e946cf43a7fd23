// The paired protocol: does mixed precision train as well as fp32?
#include <algorithm>
#include <cmath>

#include "engine/data/corruption.h"
#include "models/trainer.h"
#include "study/citation.h"
#include "study/experiment.h"
#include "study/list.h"
#include "study/statistics.h"

namespace roundoff::study {

namespace {

constexpr auto kCounted = Provenance::counted;
constexpr auto kMeasured = Provenance::measured;

// Chosen before any run: a difference in accuracy below one point is not of interest here.
constexpr double kMargin = 0.01;

constexpr Precision kPrecisions[] = {Precision::fp32, Precision::bf16, Precision::fp16};
constexpr std::size_t kPrecisionCount = std::size(kPrecisions);

struct Run {
  Trainer::FirstGradient first;
  std::vector<std::byte> start;            // masters before the first window
  std::vector<std::int64_t> first_labels;  // of the first window, in order
  std::vector<std::byte> best;             // masters of the best validation loss
  std::int64_t best_epoch = 0;             // from 1
  std::vector<double> validation;          // loss after every epoch
  std::int64_t skipped = 0;
  double final_scale = 1;
  Evaluation test, corrupted;  // of the best masters; filled at the end
};

TrainConfig config_of(const Options& options, Precision precision, std::uint64_t seed,
                      std::int64_t epochs) {
  TrainConfig config;
  config.model.model = "convnet";
  config.precision = precision;
  config.device = options.device;
  config.epochs = epochs;
  config.micro_batch = 50;
  config.optimizer.weight_decay = 0.01;
  config.schedule = {.kind = ScheduleKind::cosine, .lr = 3e-3, .warmup = 10};
  config.clip = 1;
  config.seed = seed;
  return config;
}

std::vector<std::byte> masters(Trainer& trainer) {
  const Tensor& flat = trainer.model().parameters().flat_master();
  std::vector<std::byte> bytes(flat.bytes());
  flat.read(bytes.data());
  return bytes;
}

Run train(const TrainConfig& config, const Dataset& data) {
  Trainer trainer(config, data);
  Run run;
  run.first = trainer.first_gradient();
  run.start = masters(trainer);
  const SamplerState before = trainer.sampler().state();
  for (const std::int64_t i : trainer.sampler().next().indices)
    run.first_labels.push_back(data.train.labels[static_cast<std::size_t>(i)] + 1000 * i);
  trainer.sampler().restore(before);
  double best = HUGE_VAL;
  while (!trainer.done()) {
    trainer.step();
    if (trainer.steps_done() % trainer.windows_per_epoch() != 0) continue;
    trainer.settle();
    const double loss = trainer.evaluate(data.validation).loss;
    run.validation.push_back(loss);
    if (loss >= best) continue;
    best = loss;
    run.best = masters(trainer);
    run.best_epoch = static_cast<std::int64_t>(run.validation.size());
  }
  trainer.settle();
  run.skipped = trainer.skipped();
  run.final_scale = static_cast<double>(trainer.scaler().scale());
  return run;
}

// Of given masters, in the precision that they were trained in.
Evaluation judge(const TrainConfig& config, const Dataset& data, const std::vector<std::byte>& best,
                 const Split& split) {
  Trainer trainer(config, data);
  trainer.model().parameters().flat_master().write(best.data());
  trainer.model().parameters().changed(/*copies_written=*/false);
  return trainer.evaluate(split);
}

// Which images share a scene; images of other data are on their own.
std::vector<std::int64_t> clusters(const Dataset& data, std::int64_t images, std::int64_t a_scene) {
  std::vector<std::int64_t> cluster(static_cast<std::size_t>(images));
  const bool scenes = data.name.starts_with("glyphs");
  for (std::size_t i = 0; i < cluster.size(); ++i)
    cluster[i] = static_cast<std::int64_t>(i) / (scenes ? a_scene : 1);
  return cluster;
}

const char* verdict(const Interval& i) {
  if (i.low > -kMargin && i.high < kMargin) return "no difference beyond the margin";
  if (i.low > 0 || i.high < 0) return "a difference";
  return "not settled: the interval is wider than the margin";
}

struct Comparison {
  ClusteredMean scenes;
  MeanInterval seeds;
  std::int64_t apart = 0;  // images decided differently, over all seeds
};
Comparison compare(const std::vector<Run>& reference, const std::vector<Run>& runs,
                   const std::vector<std::int64_t>& cluster, Evaluation Run::*of) {
  Comparison c;
  std::vector<double> difference(cluster.size()), a, b;
  for (std::size_t s = 0; s < runs.size(); ++s) {
    const Evaluation& r = reference[s].*of;
    const Evaluation& v = runs[s].*of;
    a.push_back(r.accuracy());
    b.push_back(v.accuracy());
    for (std::size_t i = 0; i < difference.size(); ++i) {
      const double d = static_cast<double>(v.correct[i]) - static_cast<double>(r.correct[i]);
      c.apart += d != 0;
      difference[i] += d / static_cast<double>(runs.size());
    }
  }
  c.scenes = clustered_paired_difference(difference, cluster);
  c.seeds = paired_over_seeds(a, b);
  return c;
}

std::string points(const std::optional<Interval>& i) {
  if (!i) return "none";
  return concat("[", digits(100 * i->low, 3), ", ", digits(100 * i->high, 3), "]");
}

void first_gradients(const std::vector<std::vector<Run>>& runs, Result& result) {
  Table table("The first gradient, beside fp32's at the same weights and samples: mean over seeds",
              {{"precision"},
               {"loss scale", kCounted},
               {"norm's deviation", kMeasured, 3},
               {"relative deviation", kMeasured, 3},
               {"cosine", kMeasured, 8},
               {"flushed", kCounted, 3, "%"}});
  std::vector<double> deviations(kPrecisionCount);
  bool ordered = true;
  for (std::size_t p = 1; p < kPrecisionCount; ++p) {
    std::vector<double> norms, deviation, cosines, lost;
    for (std::size_t s = 0; s < runs[p].size(); ++s) {
      const std::vector<double> g(runs[p][s].first.values.begin(), runs[p][s].first.values.end());
      const std::vector<double> r(runs[0][s].first.values.begin(), runs[0][s].first.values.end());
      norms.push_back(norm(g) / norm(r) - 1);
      deviation.push_back(relative_difference(g, r));
      cosines.push_back(cosine(g, r));
      lost.push_back(static_cast<double>(flushed(g, r)) / static_cast<double>(nonzeros(r)));
    }
    deviations[p] = mean(deviation);
    table.add_row({std::string(name(kPrecisions[p])), power_of_two(runs[p][0].first.scale),
                   mean(norms), mean(deviation), mean(cosines), 100 * mean(lost)});
    if (p == 2)
      for (std::size_t s = 0; s < runs[p].size(); ++s) {
        const std::vector<double> r(runs[0][s].first.values.begin(), runs[0][s].first.values.end());
        const auto off = [&](std::size_t q) {
          return relative_difference(
              std::vector<double>(runs[q][s].first.values.begin(), runs[q][s].first.values.end()),
              r);
        };
        ordered = ordered && off(2) < off(1);
      }
  }
  result.tables.push_back(std::move(table));
  result.claims.push_back(
      {"The first gradient of fp16 is closer to fp32's than bf16's, for every seed: its spacing is "
       "eight times finer.",
       concat("mean relative deviations ", digits(deviations[2], 3), " and ",
              digits(deviations[1], 3)),
       ordered});
}

}  // namespace

Result run_amp(const Options& options) {
  Result result;
  result.title = "Mixed precision against fp32: a paired comparison";
  result.question =
      "Does training in bf16 or fp16 mixed precision change the test accuracy of this network on "
      "this data, by more than one point?";
  const GlyphSettings settings{.train_scenes = options.quick ? 50 : 160,
                               .validation_scenes = options.quick ? 16 : 40,
                               .test_scenes = 40,
                               .images_per_scene = 25};
  const std::int64_t epochs = options.quick ? 4 : 10;
  Dataset data = study_data(options, settings);
  const bool scenes = data.name.starts_with("glyphs");
  const bool own_corruption = data.corrupted.has_value();
  // As `roundoff eval --split corrupt` makes them.
  if (!own_corruption) data.corrupted = corrupt(data.test, 3, 1);
  result.seeds = study_seeds(options, options.quick ? 3 : 6);
  result.method = {
      "Precision is the only factor: for every seed, all precisions start at the same weights and "
      "see the same samples in the same order, with the same schedule, clipping and number of "
      "windows. fp32 is the baseline.",
      concat("The margin, ", 100 * kMargin,
             " point of accuracy, is a constant of the study's text: it was chosen before any run. "
             "So were the network, the schedule and the number of epochs."),
      concat("The weights with the lowest validation loss are kept, and judged on the test images "
             "after all runs are done. The corrupted test images (",
             own_corruption ? "the data's own" : "spoilt in five ways in turn, severity 3",
             ") are looked at once a run, after that; nothing is chosen by them."),
      concat(scenes
                 ? "Whole scenes are in one split. Images of a scene share background, light and "
                   "noise, so the 95% interval of a difference is clustered by scene: it speaks "
                   "of new scenes, given these seeds."
                 : "These data name no scenes: the 95% interval of a difference counts every "
                   "image as independent, and speaks of new images, given these seeds.",
             " It has Agresti and Min's adjustment, so that images which no precision decided "
             "differently give an interval, too. What the seed does is told apart: Student's "
             "interval over the seeds' paired differences speaks of new seeds on this test set. "
             "The two are not added.")};

  std::vector<std::vector<Run>> runs(kPrecisionCount);
  for (const std::uint64_t seed : result.seeds)
    for (std::size_t p = 0; p < kPrecisionCount; ++p) {
      begin(options, concat("amp: ", name(kPrecisions[p]), ", seed ", seed));
      runs[p].push_back(train(config_of(options, kPrecisions[p], seed, epochs), data));
    }
  std::int64_t corrupted_looks = 0;
  const auto each = [&](auto&& f) {
    for (std::size_t p = 0; p < kPrecisionCount; ++p)
      for (std::size_t s = 0; s < result.seeds.size(); ++s)
        f(runs[p][s], config_of(options, kPrecisions[p], result.seeds[s], epochs));
  };
  begin(options, "amp: the test images");
  each([&](Run& r, const TrainConfig& c) { r.test = judge(c, data, r.best, data.test); });
  begin(options, "amp: the corrupted test images, once");
  each([&](Run& r, const TrainConfig& c) {
    r.corrupted = judge(c, data, r.best, *data.corrupted);
    ++corrupted_looks;
  });

  // That precision is the only factor.
  std::int64_t weights_differ = 0, orders_differ = 0;
  for (std::size_t p = 1; p < kPrecisionCount; ++p)
    for (std::size_t s = 0; s < result.seeds.size(); ++s) {
      weights_differ += runs[p][s].start != runs[0][s].start;
      orders_differ += runs[p][s].first_labels != runs[0][s].first_labels;
    }
  const auto pairs = static_cast<std::int64_t>((kPrecisionCount - 1) * result.seeds.size());
  result.claims.push_back(
      {"Precision is the only factor: every pair starts at the same bits and at the same samples.",
       concat(weights_differ, " of ", pairs, " pairs start at other weights, ", orders_differ,
              " at other samples; 0 expected"),
       weights_differ == 0 && orders_differ == 0});

  Table each_run("Every run: convnet, weights of the lowest validation loss",
                 {{"precision"},
                  {"seed"},
                  {"best epoch", kCounted},
                  {"validation loss", kMeasured, 4},
                  {"test accuracy", kMeasured, 4, "%"},
                  {"corrupted", kMeasured, 4, "%"},
                  {"skipped windows", kCounted},
                  {"final scale", kCounted}});
  Figure seeds{.name = "accuracy",
               .caption = "Test accuracy of every run, one dot a seed.",
               .x_label = "precision",
               .y_label = "test accuracy, %",
               .series = {{"one seed", {}, {}, Series::Style::dots}}};
  Figure curves{.name = "validation",
                .caption = "Validation loss after every epoch, first seed.",
                .x_label = "epoch",
                .y_label = "loss, nats a sample"};
  for (std::size_t p = 0; p < kPrecisionCount; ++p) {
    seeds.categories.emplace_back(name(kPrecisions[p]));
    for (std::size_t s = 0; s < result.seeds.size(); ++s) {
      const Run& r = runs[p][s];
      each_run.add_row({std::string(name(kPrecisions[p])),
                        static_cast<std::int64_t>(result.seeds[s]), r.best_epoch,
                        *std::min_element(r.validation.begin(), r.validation.end()),
                        100 * r.test.accuracy(), 100 * r.corrupted.accuracy(), r.skipped,
                        power_of_two(r.final_scale)});
      seeds.series[0].x.push_back(static_cast<double>(p));
      seeds.series[0].y.push_back(100 * r.test.accuracy());
    }
    Series curve{std::string(name(kPrecisions[p])), {}, {}, Series::Style::line_and_dots};
    for (std::size_t i = 0; i < runs[p][0].validation.size(); ++i) {
      curve.x.push_back(static_cast<double>(i + 1));
      curve.y.push_back(runs[p][0].validation[i]);
    }
    curves.series.push_back(std::move(curve));
  }

  const auto accuracies = [&](std::size_t p, Evaluation Run::*of) {
    std::vector<double> a;
    for (const Run& r : runs[p]) a.push_back((r.*of).accuracy());
    return a;
  };
  Table paired("Minus fp32, in points of accuracy",
               {{"precision"},
                {"images"},
                {"accuracy, mean over seeds", kMeasured, 4, "%"},
                {"seeds' deviation", kMeasured, 3},
                {"minus fp32", kMeasured, 3},
                {scenes ? "95% over scenes" : "95% over images", kMeasured},
                {"95% over seeds", kMeasured},
                {"decided differently", kCounted},
                {"of", kCounted},
                {scenes ? "verdict, over scenes" : "verdict, over images"}});
  Figure differences{.name = "differences",
                     .caption =
                         "Accuracy minus fp32's on the test images, of every seed. The "
                         "margin is one point to either side.",
                     .x_label = "precision",
                     .y_label = "points",
                     .series = {{"one seed", {}, {}, Series::Style::dots}}};
  std::vector<std::string> conclusions;
  const auto rows = [&](const char* images, Evaluation Run::*of) {
    const auto n = static_cast<std::int64_t>((runs[0][0].*of).correct.size());
    const std::vector<std::int64_t> cluster = clusters(data, n, settings.images_per_scene);
    for (std::size_t p = 0; p < kPrecisionCount; ++p) {
      const std::vector<double> a = accuracies(p, of);
      if (p == 0) {
        std::vector<Cell> row{"fp32", images, 100 * mean(a)};
        add_number(row, 100 * standard_deviation(a));
        row.resize(paired.columns().size());
        paired.add_row(std::move(row));
        continue;
      }
      const Comparison c = compare(runs[0], runs[p], cluster, of);
      const char* said = c.scenes.interval ? verdict(*c.scenes.interval) : "one scene: no interval";
      std::vector<Cell> row{std::string(name(kPrecisions[p])), images, 100 * mean(a)};
      add_number(row, 100 * standard_deviation(a));
      for (const Cell& cell :
           {Cell(100 * c.scenes.mean), Cell(points(c.scenes.interval)),
            Cell(points(c.seeds.interval)), Cell(c.apart),
            Cell(n * static_cast<std::int64_t>(result.seeds.size())), Cell(std::string(said))})
        row.push_back(cell);
      paired.add_row(std::move(row));
      if (of != &Run::test) continue;
      conclusions.push_back(concat(name(kPrecisions[p]), " minus fp32, in points of accuracy: ",
                                   text(c.scenes, 100, 2), "; ", said, "."));
      differences.categories.emplace_back(name(kPrecisions[p]));
      const std::vector<double> r = accuracies(0, of);
      for (std::size_t s = 0; s < a.size(); ++s) {
        differences.series[0].x.push_back(static_cast<double>(p - 1));
        differences.series[0].y.push_back(100 * (a[s] - r[s]));
      }
    }
  };
  rows("test", &Run::test);
  rows("corrupted", &Run::corrupted);
  paired.add_note(concat("Margin, chosen before: ", 100 * kMargin,
                         " point. n = ", result.seeds.size(),
                         " seeds. Intervals are not adjusted for the number of comparisons."));
  result.tables.push_back(std::move(paired));
  result.tables.push_back(std::move(each_run));
  first_gradients(runs, result);
  result.figures = {std::move(seeds), std::move(differences), std::move(curves)};

  const auto expected = static_cast<std::int64_t>(kPrecisionCount * result.seeds.size());
  result.claims.push_back({"The corrupted images were looked at once a run, after everything else.",
                           concat(corrupted_looks, " looks for ", expected, " runs"),
                           corrupted_looks == expected});
  const double clean = mean(accuracies(0, &Run::test));
  const double spoilt = mean(accuracies(0, &Run::corrupted));
  result.claims.push_back({"The corrupted images are harder than the clean ones, in fp32.",
                           concat(digits(100 * spoilt), "% against ", digits(100 * clean), "%"),
                           spoilt < clean});
  std::int64_t chance = 0;
  for (std::size_t p = 0; p < kPrecisionCount; ++p)
    for (const Run& r : runs[p])
      chance += r.test.interval().low <= 1.0 / static_cast<double>(data.classes);
  result.claims.push_back(
      {"Every run has learnt: its test accuracy is above chance by more than "
       "Wilson's 95% interval.",
       concat(chance, " runs are not above; 0 expected"), chance == 0});

  result.shows = std::move(conclusions);
  result.does_not_show = {
      "Equality: an interval inside the margin excludes larger differences, at 95%, here.",
      concat("Anything about other networks, data, schedules or lengths of training: this is one "
             "small network on ",
             options.data.empty() ? "generated images." : data.name + "."),
      "Anything about speed. The precisions of this table are arithmetic; on a CPU they save no "
      "time."};
  result.references = {
      mixed_precision_training(),
      {"agresti2005simple",
       "article",
       {{"author", "Agresti, Alan and Min, Yongyi"},
        {"title", "Simple improved confidence intervals for comparing matched proportions"},
        {"journal", "Statistics in Medicine"},
        {"volume", "24"},
        {"number", "5"},
        {"year", "2005"}}},
      {"liang1986longitudinal",
       "article",
       {{"author", "Liang, Kung-Yee and Zeger, Scott L."},
        {"title", "Longitudinal data analysis using generalized linear models"},
        {"journal", "Biometrika"},
        {"volume", "73"},
        {"number", "1"},
        {"year", "1986"}}},
      {"hendrycks2019benchmarking",
       "inproceedings",
       {{"author", "Hendrycks, Dan and Dietterich, Thomas"},
        {"title", "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations"},
        {"booktitle", "International Conference on Learning Representations"},
        {"year", "2019"}}}};
  return result;
}

}  // namespace roundoff::study
