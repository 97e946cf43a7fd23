// Why masters exist: updates that 16-bit weights swallow, and stochastic rounding as a third way.
#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/data/random.h"
#include "engine/schedule.h"
#include "kernels/base/format.h"
#include "kernels/base/stochastic.h"
#include "models/evaluate.h"
#include "study/citation.h"
#include "study/experiment.h"
#include "study/list.h"
#include "study/statistics.h"

namespace roundoff::study {

namespace {

constexpr auto kCounted = Provenance::counted;
constexpr auto kMeasured = Provenance::measured;
constexpr auto kModelled = Provenance::modelled;

// Falls to 0 along half a cosine.
constexpr double kRate = 0.02;

struct Arm {
  const char* name;
  Precision precision;
  bool stochastic = false;
};
constexpr Arm kArms[] = {{"fp32", Precision::fp32},
                         {"bf16 with masters", Precision::bf16},
                         {"fp16 with masters", Precision::fp16},
                         {"pure bf16", Precision::pure_bf16},
                         {"pure fp16", Precision::pure_fp16},
                         {"pure bf16, stochastic", Precision::pure_bf16, true},
                         {"pure fp16, stochastic", Precision::pure_fp16, true}};
constexpr std::size_t kArmCount = std::size(kArms);
// Places in kArms.
constexpr std::size_t kBaseline = 0, kBf16Masters = 1, kPureBf16 = 3, kPureFp16 = 4, kSrBf16 = 5,
                      kSrFp16 = 6;

// Spacing of the format's numbers at x.
double ulp(double x, const Format& format) {
  const int exponent = x == 0 ? format.emin : std::max(std::ilogb(x), format.emin);
  return std::ldexp(1.0, exponent - format.precision + 1);
}

// One weight at 1 that is to lose 2^-12 as often as it takes to reach 0.
void one_weight(Result& result) {
  constexpr std::int64_t kSteps = 4096;
  constexpr float kUpdate = 0x1p-12F;
  Table table("One weight: 1 minus 2^-12, 4096 times",
              {{"held in"}, {"ends at", kModelled, 6}, {"updates that moved it", kModelled}});
  struct Rule {
    const char* name;
    float (*round)(float value, std::int64_t step);
  };
  const Rule rules[] = {
      {"fp32", [](float v, std::int64_t) { return v; }},
      {"fp16, to nearest", [](float v, std::int64_t) { return static_cast<float>(Half(v)); }},
      {"bf16, to nearest", [](float v, std::int64_t) { return static_cast<float>(BFloat16(v)); }},
      {"bf16, stochastic", [](float v, std::int64_t step) {
         BFloat16 w;
         round_stochastic(
             v, PhiloxStream{1, static_cast<std::uint32_t>(step), kRoundingTensor}.bits(0, 0), w);
         return static_cast<float>(w);
       }}};
  double ends[4] = {};
  std::vector<Series> series;
  for (std::size_t r = 0; r < 4; ++r) {
    float w = 1;
    std::int64_t moved = 0;
    Series path{rules[r].name, {0}, {1}, Series::Style::line};
    for (std::int64_t i = 1; i <= kSteps; ++i) {
      const float next = rules[r].round(w - kUpdate, i);
      moved += next != w;
      w = next;
      if (i % 32 != 0) continue;
      path.x.push_back(static_cast<double>(i));
      path.y.push_back(static_cast<double>(w));
    }
    ends[r] = static_cast<double>(w);
    table.add_row({rules[r].name, ends[r], moved});
    series.push_back(std::move(path));
  }
  result.tables.push_back(std::move(table));
  result.figures.push_back(
      {.name = "one-weight",
       .caption =
           "A weight that should walk from 1 to 0 in 4096 steps of 2^-12. In bf16 each step "
           "is a sixteenth of the spacing below 1 and is rounded away, in fp16 half of it: a "
           "tie, which goes back to 1. Rounded stochastically, the walk takes place.",
       .x_label = "update",
       .y_label = "weight",
       .series = std::move(series),
       .provenance = kModelled});
  result.claims.push_back(
      {"In bf16 rounded to nearest, a weight of 1 never moves by 2^-12; in fp32 4096 such updates "
       "take it to 0.",
       concat("ends at ", ends[2], " and ", ends[0], "; 1 and 0 expected"),
       ends[2] == 1 && ends[0] == 0});
}

struct Run {
  std::int64_t updates = 0;    // of elements, with a gradient that is not zero
  std::int64_t swallowed = 0;  // of them, those that left the weight as it was
  double asked = 0;            // sum of |update|
  // Sum over updates of the rounding's error along the update: below 0 where distance is lost.
  double error = 0;
  double squares = 0;  // of the spacings at the rounded values
  double train_loss = 0;
  double accuracy = 0;              // of the validation split
  std::vector<double> share, loss;  // of a tenth of the run each

  double lost() const { return -error / asked; }
  // What |error| stays below with probability 1 - 2^-30 if every rounding is unbiased, whatever
  // came before it: Azuma's and Hoeffding's inequality, each error lying in an interval as wide as
  // the spacing.
  double bound() const { return std::sqrt(0.5 * 31 * std::log(2.0) * squares); }
};

Run train(const Options& options, const Dataset& data, const Arm& arm, std::uint64_t seed,
          std::int64_t windows) {
  const Setup setup{.model = {.model = "tiny-mlp"},
                    .precision = arm.precision,
                    .optimizer = {.kind = OptimizerSettings::Kind::sgd,
                                  .stochastic_rounding = arm.stochastic,
                                  .rounding_seed = seed},
                    .scaler = {.init_scale = 0x1p13, .enabled = arm.precision == Precision::fp16},
                    .seed = seed,
                    .device = options.device};
  Experiment e(setup, data);
  Sampler sampler({.seed = seed, .count = data.train.size(), .batch = 50});
  const Format format = is_pure(arm.precision) ? format_of(low_dtype(arm.precision)) : kFp32;
  const Schedule schedule({.kind = ScheduleKind::cosine, .lr = kRate}, windows);
  Run run;
  const std::int64_t tenth = windows / 10;
  std::int64_t seen = 0, lost = 0;
  double loss = 0;
  for (std::int64_t i = 0; i < windows; ++i) {
    const auto window = e.window(sampler.next(), 50);
    // A power of two: the unscaled gradient is exact in fp32 as well.
    const std::vector<double> g = e.gradient(window, e.scaler.scale());
    const std::vector<double> before = e.weights();
    const double rate = schedule.lr(i);
    const StepResult r = e.step(window, {.lr = rate});
    loss += r.loss;
    if (r.did_step) {
      const std::vector<double> after = e.weights();
      for (std::size_t k = 0; k < g.size(); ++k) {
        const float update = static_cast<float>(rate) * static_cast<float>(g[k]);
        if (update == 0) continue;
        // What the optimizer rounds: the difference in fp32.
        const auto exact = static_cast<double>(static_cast<float>(before[k]) - update);
        const double direction = update > 0 ? -1 : 1;
        ++seen;
        lost += after[k] == before[k];
        run.asked += std::abs(static_cast<double>(update));
        run.error += direction * (after[k] - exact);
        const double spacing = ulp(exact, format);
        run.squares += spacing * spacing;
      }
    }
    if ((i + 1) % tenth != 0) continue;
    run.updates += seen;
    run.swallowed += lost;
    run.share.push_back(seen == 0 ? 0 : static_cast<double>(lost) / static_cast<double>(seen));
    run.loss.push_back(loss / static_cast<double>(tenth));
    seen = lost = 0;
    loss = 0;
  }
  run.train_loss = evaluate(e.context, *e.model, data.train, data.normalization).loss;
  run.accuracy = evaluate(e.context, *e.model, data.validation, data.normalization).accuracy();
  return run;
}

std::string percent(double share, int n = 3) { return concat(digits(100 * share, n), "%"); }

void training(const Options& options, Result& result) {
  const Dataset data = study_data(
      options,
      {.train_scenes = 40, .validation_scenes = 20, .test_scenes = 1, .images_per_scene = 25});
  result.seeds = study_seeds(options, options.quick ? 3 : 10);
  const std::int64_t windows = options.quick ? 600 : 3000;
  std::vector<std::vector<Run>> runs(kArmCount);
  for (std::size_t a = 0; a < kArmCount; ++a) {
    for (const std::uint64_t seed : result.seeds) {
      begin(options, concat("masters: ", kArms[a].name, ", seed ", seed));
      runs[a].push_back(train(options, data, kArms[a], seed, windows));
    }
  }
  const auto values = [&](std::size_t arm, auto&& of) {
    std::vector<double> v;
    for (const Run& r : runs[arm]) v.push_back(of(r));
    return v;
  };
  const auto loss_of = [](const Run& r) { return r.train_loss; };

  Table table(concat("Weights with and without masters: tiny-mlp, SGD from ", kRate,
                     " along a cosine, ", windows, " windows of 50"),
              {{"weights"},
               {"element updates", kCounted},
               {"swallowed", kCounted},
               {"swallowed, share", kCounted, 3, "%"},
               {"distance lost", kMeasured, 3, "%"},
               {"training loss, mean over seeds", kMeasured, 4},
               {"minus fp32", kMeasured},
               {"validation accuracy", kMeasured, 4, "%"}});
  for (std::size_t a = 0; a < kArmCount; ++a) {
    std::int64_t updates = 0, swallowed = 0;
    for (const Run& r : runs[a]) {
      updates += r.updates;
      swallowed += r.swallowed;
    }
    const std::vector<double> losses = values(a, loss_of);
    table.add_row({kArms[a].name, updates, swallowed,
                   100 * static_cast<double>(swallowed) / static_cast<double>(updates),
                   100 * mean(values(a, [](const Run& r) { return r.lost(); })), mean(losses),
                   a == kBaseline
                       ? Cell{}
                       : Cell{text(paired_over_seeds(values(kBaseline, loss_of), losses))},
                   100 * mean(values(a, [](const Run& r) { return r.accuracy; }))});
  }
  table.add_note(
      "Swallowed: the gradient is not zero and the weight stays. Distance lost: the part of the "
      "updates' summed length that rounding took, below zero where it added. Of masters, both are "
      "those of fp32.");
  table.add_note(concat("Minus fp32: mean of paired differences with Student's 95% interval over ",
                        result.seeds.size(), " seeds."));
  result.tables.push_back(std::move(table));

  Table rounding("Is the rounding of the updates biased? Sums along the updates, first seed",
                 {{"weights"},
                  {"sum of errors", kMeasured, 4},
                  {"bound for unbiased rounding", kModelled, 4},
                  {"outside the bound", kCounted}});
  for (const std::size_t a : {kPureBf16, kPureFp16, kSrBf16, kSrFp16}) {
    const Run& r = runs[a].front();
    rounding.add_row({kArms[a].name, r.error, r.bound(), std::abs(r.error) > r.bound()});
  }
  rounding.add_note(
      "The bound is Azuma's and Hoeffding's, at a probability of 2^-30 to be outside by chance.");
  result.tables.push_back(std::move(rounding));

  const auto add = [&](const char* text, std::string seen, bool holds) {
    result.claims.push_back({text, std::move(seen), holds});
  };
  const auto share = [&](std::size_t a) {
    std::int64_t updates = 0, swallowed = 0;
    for (const Run& r : runs[a]) {
      updates += r.updates;
      swallowed += r.swallowed;
    }
    return static_cast<double>(swallowed) / static_cast<double>(updates);
  };
  add("Pure bf16 and pure fp16 swallow updates, bf16 more than fp16, and both more than masters "
      "do.",
      concat(percent(share(kPureBf16)), " and ", percent(share(kPureFp16)), " against ",
             percent(share(kBf16Masters))),
      share(kPureBf16) > share(kPureFp16) && share(kPureFp16) > share(kBf16Masters));
  bool within = true, outside = true;
  double worst = 0;
  for (std::size_t s = 0; s < result.seeds.size(); ++s) {
    for (const std::size_t a : {kSrBf16, kSrFp16}) {
      within = within && std::abs(runs[a][s].error) <= runs[a][s].bound();
      worst = std::max(worst, std::abs(runs[a][s].error) / runs[a][s].bound());
    }
    outside = outside && runs[kPureBf16][s].error < -runs[kPureBf16][s].bound();
  }
  add("Stochastic rounding is unbiased along the updates: their errors sum to within the bound of "
      "Azuma and Hoeffding, in every run.",
      concat("largest sum is ", digits(worst), " of its bound"), within);
  add("Rounding to nearest is biased against the updates in pure bf16: it takes more than chance "
      "could, in every run.",
      concat(percent(mean(values(kPureBf16, [](const Run& r) { return r.lost(); }))),
             " of the distance lost"),
      outside);
  const double nearest = mean(values(kPureBf16, loss_of));
  const double stochastic = mean(values(kSrBf16, loss_of));
  add("Here, pure bf16 trains further with stochastic rounding than without.",
      concat("training loss ", digits(stochastic), " against ", digits(nearest), ", fp32 ",
             digits(mean(values(kBaseline, loss_of)))),
      stochastic < nearest);

  std::vector<Series> loss, shares;
  for (const std::size_t a : {kBaseline, kBf16Masters, kPureBf16, kPureFp16, kSrBf16, kSrFp16}) {
    std::vector<double> x;
    for (std::size_t i = 1; i <= runs[a][0].loss.size(); ++i)
      x.push_back(static_cast<double>(static_cast<std::int64_t>(i) * (windows / 10)));
    loss.push_back({kArms[a].name, x, runs[a][0].loss, Series::Style::line_and_dots});
    if (a == kBaseline) continue;
    std::vector<double> part = runs[a][0].share;
    for (double& v : part) v *= 100;
    shares.push_back({kArms[a].name, x, part, Series::Style::line_and_dots});
  }
  result.figures.push_back({.name = "loss",
                            .caption = "Training loss, the mean of a tenth of the run at a time, "
                                       "first seed. Without masters bf16 stops early; with "
                                       "stochastic rounding it goes on.",
                            .x_label = "window",
                            .y_label = "loss, nats a sample",
                            .series = std::move(loss)});
  result.figures.push_back({.name = "swallowed",
                            .caption =
                                "Share of element updates that leave the weight as it was, "
                                "first seed. Stochastic rounding leaves nearly as many weights "
                                "alone, but moves the others by a whole spacing.",
                            .x_label = "window",
                            .y_label = "swallowed, %",
                            .series = std::move(shares),
                            .provenance = kCounted});
  Figure seeds{.name = "seeds",
               .caption = "Final training loss of every seed.",
               .x_label = "weights",
               .y_label = "loss, nats a sample",
               .series = {{"one seed", {}, {}, Series::Style::dots}}};
  for (std::size_t a = 0; a < kArmCount; ++a) {
    seeds.categories.emplace_back(kArms[a].name);
    for (const Run& r : runs[a]) {
      seeds.series[0].x.push_back(static_cast<double>(a));
      seeds.series[0].y.push_back(r.train_loss);
    }
  }
  result.figures.push_back(std::move(seeds));
}

// Weights after a few updates with given gradients, as 16-bit patterns.
std::vector<double> updated(Device device, DType dtype) {
  Context context(device == Device::cpu ? nullptr : simt::open(device));
  ParameterArena arena;
  arena.add("a", {3, 777}, Init::uniform_fan_in, 64);
  arena.add("b", {130}, Init::uniform_fan_in, 64);
  arena.allocate(context.allocator, {.master = dtype, .seed = 3});
  Optimizer optimizer(context, arena, {.stochastic_rounding = true, .rounding_seed = 11});
  RandomStream random(3, RandomUse::checks, 2);
  for (int step = 0; step < 5; ++step) {
    for (const ParameterEntry& entry : arena.entries()) {
      std::vector<float> g(static_cast<std::size_t>(entry.shape.numel()));
      for (float& v : g) v = static_cast<float>(random.normal());
      entry.tensor.leaf()->grad.write(g.data());
      entry.tensor.leaf()->has_grad = true;
    }
    StepStatus status;
    optimizer.inspect({}, status);
    optimizer.apply(1e-4, status);
    arena.zero_grad();
  }
  return arena.flat_master().to_vector();
}

void every_device(const Options& options, Result& result) {
  begin(options, "masters: the same bits on every device");
  Table table("Stochastic rounding on other devices, beside cpu: 5 updates of AdamW",
              {{"device"}, {"type"}, {"weights", kCounted}, {"that differ", kCounted}});
  std::int64_t differ = 0, compared = 0;
  for (const Device device : {Device::sim, Device::cuda}) {
    if (const std::string why = device_refusal(device); !why.empty()) {
      result.skipped.push_back(
          concat("stochastic rounding on ", device == Device::sim ? "sim" : "cuda", ": ", why));
      continue;
    }
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      const std::vector<double> a = updated(Device::cpu, dtype);
      const std::vector<double> b = updated(device, dtype);
      std::int64_t count = 0;
      for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
      differ += count;
      compared += static_cast<std::int64_t>(a.size());
      table.add_row({device == Device::sim ? "sim" : "cuda", std::string(name(dtype)),
                     static_cast<std::int64_t>(a.size()), count});
    }
  }
  if (compared == 0) return;
  result.tables.push_back(std::move(table));
  result.claims.push_back(
      {"From the same gradients, stochastic rounding gives the same bits on every device that is "
       "here.",
       concat(differ, " weights of ", compared, " differ; 0 expected"), differ == 0});
}

}  // namespace

Result run_masters(const Options& options) {
  Result result;
  result.title = "Master weights: updates that 16-bit weights swallow";
  result.question =
      "What do fp32 master weights save, and can stochastic rounding do without them?";
  result.method = {
      "An update smaller than half the spacing of the weight's format is rounded away when the "
      "weight is kept in that format and rounded to nearest. fp32 masters keep it.",
      "A small network trains by plain SGD, so that an element's update is exactly the rate times "
      "its gradient. For every element of every update it is counted whether the weight moved, "
      "and the rounding's error is measured along the update's direction. A sum of such errors "
      "tells bias from noise: unbiased errors stay within the bound of Azuma and Hoeffding.",
      "Stochastic rounding goes to the number above or below with probabilities that make the "
      "expectation exact. Its random numbers are Philox's, keyed by seed, parameter, update and "
      "element; so the same gradients give the same weights on every device.",
      "Seeds, data order and first weights are the same in every arm. The pure arms have no "
      "masters and no loss scaling; the masters of the mixed arms are fp32."};
  one_weight(result);
  training(options, result);
  every_device(options, result);
  result.shows = {
      "Without masters most updates of a slow run are rounded away in bf16, and fewer in fp16, "
      "whose spacing is eight times finer.",
      "The loss is systematic: every swallowed update points along the gradient. Stochastic "
      "rounding has errors of the same size without the bias."};
  result.does_not_show = {
      "That stochastic rounding equals masters everywhere: its noise grows with the spacing, and "
      "late in training, at small rates, it can dominate.",
      "What happens with Adam at large rates, where updates are larger than the spacing and little "
      "is swallowed.",
      "Anything about speed or memory of a real kernel."};
  result.references = {
      mixed_precision_training(),
      {"croci2022stochastic",
       "article",
       {{"author",
         "Croci, Matteo and Fasi, Massimiliano and Higham, Nicholas J. and Mary, Theo and "
         "Mikaitis, Mantas"},
        {"title", "Stochastic rounding: implementation, error analysis and applications"},
        {"journal", "Royal Society Open Science"},
        {"volume", "9"},
        {"number", "3"},
        {"year", "2022"}}},
      {"gupta2015limited",
       "inproceedings",
       {{"author",
         "Gupta, Suyog and Agrawal, Ankur and Gopalakrishnan, Kailash and Narayanan, Pritish"},
        {"title", "Deep Learning with Limited Numerical Precision"},
        {"booktitle", "International Conference on Machine Learning"},
        {"year", "2015"}}},
      {"salmon2011parallel",
       "inproceedings",
       {{"author", "Salmon, John K. and Moraes, Mark A. and Dror, Ron O. and Shaw, David E."},
        {"title", "Parallel random numbers: as easy as 1, 2, 3"},
        {"booktitle",
         "International Conference for High Performance Computing, Networking, Storage and "
         "Analysis"},
        {"year", "2011"}}},
      {"hoeffding1963probability",
       "article",
       {{"author", "Hoeffding, Wassily"},
        {"title", "Probability inequalities for sums of bounded random variables"},
        {"journal", "Journal of the American Statistical Association"},
        {"volume", "58"},
        {"year", "1963"}}}};
  return result;
}

}  // namespace roundoff::study
