// Gradients at the ends of fp16: a scale below 1, and no scale at all.
#include <algorithm>
#include <cmath>

#include "engine/cast.h"
#include "engine/data/random.h"
#include "ops/arithmetic.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "study/experiment.h"
#include "study/scaler_parts.h"

namespace roundoff::study {

namespace {

constexpr auto kCounted = Provenance::counted;
constexpr auto kMeasured = Provenance::measured;

constexpr std::int64_t kFeatures = 8;
constexpr std::int64_t kBatch = 16;

// Linear regressions of several targets on one input, in 16 bit: target k is `unit` times a number
// around 1, and the network's output is multiplied by the unit in fp32, as one does who wants
// predictions in grams, say. The loss is the sum of the targets' mean squared errors.
class Regression {
 public:
  // `normalised`: losses in units of the targets.
  Regression(Device device, DType low, const std::vector<double>& units, bool normalised,
             std::uint64_t seed)
      : context_(device == Device::cpu ? nullptr : simt::open(device)) {
    context_.autocast.low = low;
    std::int64_t number = 0;
    for (const double unit : units) {
      const std::string name = concat("task", ++number);
      Task task;
      task.weight = arena_.add(name + ".weight", {1, kFeatures}, Init::zeros);
      task.unit = normalised ? 1.0 : unit;
      tasks_.push_back(task);
    }
    arena_.allocate(context_.allocator,
                    {.compute = low == DType::fp32 ? DType::fp32 : low, .seed = seed});
    optimizer_ = std::make_unique<Optimizer>(
        context_, arena_, OptimizerSettings{.kind = OptimizerSettings::Kind::adam});
    // Inputs and true weights are multiples of 1/8 in [-1, 1): nothing here rounds.
    RandomStream random(seed, RandomUse::checks, 1);
    const auto draw = [&] { return (static_cast<double>(random.below(16)) - 8) / 8; };
    std::vector<double> x(static_cast<std::size_t>(kBatch * kFeatures));
    for (double& v : x) v = draw();
    x_ = Tensor::from(context_.allocator, x, {kBatch, kFeatures}, DType::fp32);
    for (Task& task : tasks_) {
      std::vector<double> w(static_cast<std::size_t>(kFeatures));
      for (double& v : w) v = draw();
      std::vector<double> y(static_cast<std::size_t>(kBatch));
      for (std::size_t i = 0; i < y.size(); ++i)
        for (std::size_t j = 0; j < w.size(); ++j) y[i] += task.unit * w[j] * x[i * w.size() + j];
      task.target = Tensor::from(context_.allocator, y, {kBatch, 1}, DType::fp32);
      task.factor = Tensor::from(context_.allocator, {&task.unit, 1}, {1}, DType::fp32);
    }
  }

  // Adds the gradient at `seed`; the loss comes back, in the targets' own units.
  double backward(double seed) {
    double loss = 0;
    for (const Task& task : tasks_) {
      const Tensor z = linear(context_, x_, task.weight, {});
      const Tensor y = mul(context_, cast(context_, z, DType::fp32), task.factor);
      const Tensor error = mse(context_, y, task.target);
      loss += error.item() / (task.unit * task.unit);
      context_.tape.backward(context_, error, seed);
      context_.tape.clear();
    }
    return loss;
  }

  struct Seen {
    bool finite = true;
    std::int64_t nonzero = 0;
  };
  // Of one task's gradient at a scale.
  Seen seen(std::size_t task, double scale) {
    arena_.zero_grad();
    backward(scale);
    Seen s;
    for (const double g : arena_.entries()[task].tensor.leaf()->grad.to_vector()) {
      s.finite = s.finite && std::isfinite(g);
      s.nonzero += g != 0;
    }
    arena_.zero_grad();
    return s;
  }

  Optimizer& optimizer() { return *optimizer_; }
  ParameterArena& arena() { return arena_; }

 private:
  struct Task {
    Parameter weight;
    double unit = 1;
    Tensor target, factor;
  };
  Context context_;
  ParameterArena arena_;
  std::vector<Task> tasks_;
  std::unique_ptr<Optimizer> optimizer_;
  Tensor x_;
};

struct Trace {
  std::int64_t windows = 0, updates = 0;
  double first_scale = 0;  // of the first update
  double last_scale = 0;
  double first_loss = 0, last_loss = 0;
  std::string ended;
  std::vector<double> scale;
};

Trace fit(const Options& options, double min_scale, std::int64_t windows) {
  Regression r(options.device, DType::fp16, {0x1p12}, /*normalised=*/false, 1);
  LossScaler scaler({.init_scale = 16, .growth_interval = 20, .min_scale = min_scale},
                    /*max_skips=*/20);
  Trace t;
  try {
    for (; t.windows < windows; ++t.windows) {
      const double scale = scaler.seed();
      t.scale.push_back(scale);
      const double loss = r.backward(scale);
      if (t.windows == 0) t.first_loss = loss;
      t.last_loss = loss;
      t.last_scale = scale;
      const bool stepped = scaler.step(r.optimizer(), 0.02);
      if (stepped && t.updates++ == 0) t.first_scale = scale;
      r.arena().zero_grad();
      scaler.update();
    }
  } catch (const ScaleCollapse& e) {
    ++t.windows;
    t.ended = e.what();
  }
  return t;
}

void below_one(const Options& options, Result& result) {
  begin(options, "scaler: targets in large units");
  const std::int64_t windows = 400;
  const Trace free = fit(options, kMinLossScale, windows);
  const Trace floored = fit(options, 1.0, windows);
  // The largest power of two that the gradients at the first weights bear: those of all windows
  // until the first update.
  Regression start(options.device, DType::fp16, {0x1p12}, /*normalised=*/false, 1);
  double bears = 16;
  while (bears > 0x1p-60 && !start.seen(0, bears).finite) bears /= 2;

  Table table("A regression with targets in thousands: fp16, scale from 16",
              {{"smallest scale allowed"},
               {"windows", kCounted},
               {"updates", kCounted},
               {"scale of the first update", kCounted},
               {"error before", kMeasured, 4},
               {"error after", kMeasured, 4}});
  const auto row = [&](const char* what, const Trace& t) {
    table.add_row({what, t.windows, t.updates,
                   t.updates == 0 ? Cell{} : Cell{power_of_two(t.first_scale)}, t.first_loss,
                   t.last_loss});
  };
  row("2^-126", free);
  row("1", floored);
  table.add_note(
      "Targets are 2^12 times a number around 1; the error is the mean squared error over 2^24.");
  if (!floored.ended.empty()) table.add_note(concat("The second run ended: ", floored.ended));
  result.tables.push_back(std::move(table));
  result.claims.push_back(
      {"Gradients too large for fp16 need a scale below 1: without a floor the first update comes "
       "at the largest power of two that they bear, which is below 1.",
       concat("first update at ", power_of_two(free.first_scale), ", borne ", power_of_two(bears)),
       free.updates > 0 && free.first_scale == bears && bears < 1});
  result.claims.push_back(
      {"With a floor of 1 the same run never updates, and the scaler reports the collapse and the "
       "parameter that overflowed.",
       concat(floored.updates, " updates in ", floored.windows, " windows; ",
              floored.ended.empty() ? "no collapse reported" : floored.ended),
       floored.updates == 0 && floored.ended.find("task1.weight") != std::string::npos});
  result.claims.push_back({"The run below 1 learns.",
                           concat("error ", digits(free.first_loss), " before, ",
                                  digits(free.last_loss), " after ", free.updates, " updates"),
                           free.last_loss < free.first_loss});
}

void no_scale(const Options& options, Result& result) {
  begin(options, "scaler: two targets that no scale fits");
  const std::vector<double> units{0x1p12, 0x1p-20};
  constexpr int kLow = -60;
  constexpr int kHigh = 80;
  struct Case {
    const char* name;
    DType low;
    bool normalised;
  };
  const std::vector<Case> cases{{"fp16, targets as they are", DType::fp16, false},
                                {"fp16, targets over their units", DType::fp16, true},
                                {"bf16, targets as they are", DType::bf16, false}};
  Table table("Two targets of one network, 2^32 apart in unit: powers of two from 2^-60 to 2^80",
              {{"run"},
               {"scales tried", kCounted},
               {"all finite", kCounted},
               {"small one's gradient kept", kCounted},
               {"both", kCounted}});
  std::vector<std::int64_t> fitting;
  std::vector<Series> series;
  for (const Case& c : cases) {
    Regression r(options.device, c.low, units, c.normalised, 1);
    std::int64_t finite = 0, kept = 0, both = 0;
    Series nonzero{concat(c.name, ", small target"), {}, {}, Series::Style::line};
    for (int e = kLow; e <= kHigh; ++e) {
      const double scale = std::ldexp(1.0, e);
      const Regression::Seen large = r.seen(0, scale);
      const Regression::Seen small = r.seen(1, scale);
      const bool is_finite = large.finite && small.finite;
      const bool is_kept = small.finite && small.nonzero == kFeatures;
      finite += is_finite;
      kept += is_kept;
      both += is_finite && is_kept;
      nonzero.x.push_back(e);
      nonzero.y.push_back(is_finite ? static_cast<double>(small.nonzero) : 0);
    }
    fitting.push_back(both);
    series.push_back(std::move(nonzero));
    table.add_row({c.name, std::int64_t{kHigh - kLow + 1}, finite, kept, both});
  }
  table.add_note("Kept: all 8 elements of the small target's gradient differ from zero.");
  result.tables.push_back(std::move(table));
  result.figures.push_back(
      {.name = "no-scale",
       .caption = "Elements of the small target's gradient that differ from zero while nothing "
                  "overflows. As the targets are, no scale keeps them in fp16; over their units, "
                  "many do; bf16 is wide enough without.",
       .x_label = "log2 of the loss scale",
       .y_label = "elements kept of 8",
       .series = std::move(series),
       .provenance = kCounted});
  result.claims.push_back(
      {"No single scale fits gradients that are 2^64 apart: wherever fp16 keeps the small one, "
       "the large one overflows.",
       concat(fitting[0], " of ", kHigh - kLow + 1, " scales fit; 0 expected"), fitting[0] == 0});
  result.claims.push_back(
      {"Over their units, the same targets fit, and bf16 fits them as they are.",
       concat(fitting[1], " scales fit in fp16, ", fitting[2],
              " in bf16; at least one of each expected"),
       fitting[1] > 0 && fitting[2] > 0});
}

}  // namespace

void scaler_range(const Options& options, Result& result) {
  below_one(options, result);
  no_scale(options, result);
}

}  // namespace roundoff::study
