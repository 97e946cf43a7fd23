// What is divided and clipped, and in which order.
#include <algorithm>
#include <cmath>

#include "study/experiment.h"
#include "study/scaler_parts.h"
#include "study/statistics.h"

namespace roundoff::study {

namespace {

constexpr auto kCounted = Provenance::counted;
constexpr auto kMeasured = Provenance::measured;

constexpr std::int64_t kParts = 4;   // micro-batches of a window
constexpr std::int64_t kMicro = 16;  // samples of each

// min(1, max_norm / |g|), as the optimizer clips.
double coefficient(double norm, double max_norm) { return norm > max_norm ? max_norm / norm : 1; }

std::int64_t different(const std::vector<double>& a, const std::vector<double>& b) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

std::vector<double> times(std::vector<double> v, double factor) {
  for (double& x : v) x *= factor;
  return v;
}

// The gradients of micro-batches' mean losses, added in fp32: a window without the division by A.
std::vector<double> sum_of_means(Experiment& e, const std::vector<MicroBatch>& window,
                                 double seed) {
  ParameterArena& parameters = e.model->parameters();
  parameters.zero_grad();
  for (const MicroBatch& micro : window)
    accumulate_window(e.context, *e.model, {&micro, 1}, seed, {});
  std::vector<double> sum = e.flat_gradient();
  parameters.zero_grad();
  return sum;
}

// Where A divides.
void divide(const Options& options, const Dataset& data, Result& result) {
  begin(options, "scaler: where A divides");
  Table table("Where to divide by A = 4: the loss, or the gradient",
              {{"precision"},
               {"loss scale"},
               {"elements that differ", kCounted},
               {"of", kCounted},
               {"flushed, loss / A", kCounted},
               {"flushed, gradient / A", kCounted},
               {"largest scale, loss / A", kCounted},
               {"largest scale, gradient / A", kCounted}});
  std::int64_t fp32_differ = 0;
  bool four_apart = true;
  std::int64_t lost_by_loss = 0;
  std::int64_t lost_by_gradient = 0;
  std::string seen_scales;
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    Experiment e({.model = {.model = "tiny-mlp"},
                  .precision = precision,
                  .seed = first_seed(options),
                  .device = options.device},
                 data);
    const std::vector<std::int64_t> indices = first_samples(kParts * kMicro);
    const auto window = e.window(indices, kMicro);
    // One micro-batch at a time has its own mean: its window is four times shorter.
    double by_loss = 0;
    double by_gradient = 0;
    if (precision == Precision::fp16) {
      by_loss = e.largest_scale(window, 0x1p16);
      for (std::size_t i = 0; i < window.size(); ++i) {
        const double s = e.largest_scale({&window[i], 1}, 0x1p16);
        by_gradient = i == 0 ? s : std::min(by_gradient, s);
      }
      four_apart = by_loss == kParts * by_gradient;
      seen_scales = concat(power_of_two(by_loss), " against ", power_of_two(by_gradient));
    }
    for (const double scale : {0x1p-18, 1.0, 0x1p10}) {
      if (precision == Precision::fp32 && scale != 1) continue;
      const std::vector<double> a = e.gradient(window, scale);
      const std::vector<double> b = times(sum_of_means(e, window, scale), 1 / (kParts * scale));
      const AutocastScope off(e.context, DType::fp32);
      const std::vector<double> reference = e.gradient(window, 1);
      const std::int64_t differ = different(a, b);
      if (precision == Precision::fp32) fp32_differ += differ;
      if (scale == 0x1p-18) {
        lost_by_loss = flushed(a, reference);
        lost_by_gradient = flushed(b, reference);
      }
      table.add_row({std::string(name(precision)), power_of_two(scale), differ,
                     static_cast<std::int64_t>(a.size()), flushed(a, reference),
                     flushed(b, reference), by_loss == 0 ? Cell{} : Cell{power_of_two(by_loss)},
                     by_gradient == 0 ? Cell{} : Cell{power_of_two(by_gradient)}});
    }
  }
  table.add_note(
      "Flushed: zero here, not zero in fp32 at the same weights. The gradient is divided in fp32.");
  result.tables.push_back(std::move(table));
  result.claims.push_back(
      {"For a power of two A, dividing the loss and dividing the gradient give the same bits in "
       "fp32.",
       concat(fp32_differ, " elements differ; 0 expected"), fp32_differ == 0});
  result.claims.push_back(
      {"In fp16, dividing the loss by A leaves A times as much room above and costs as much below: "
       "the largest scale is A times larger, and at a scale that is too low more is flushed.",
       concat("largest scales ", seen_scales, "; at 2^-18 ", lost_by_loss,
              " elements flushed with loss / A, ", lost_by_gradient, " with gradient / A"),
       four_apart && lost_by_loss > lost_by_gradient});
}

// Division against clipping, in one vector of gradients.
void clip_and_divide(const Options& options, const Dataset& data, Result& result) {
  Experiment e(
      {.model = {.model = "tiny-mlp"}, .seed = first_seed(options), .device = options.device},
      data);
  const std::vector<std::int64_t> indices = first_samples(kParts * kMicro);
  const std::vector<double> sum = sum_of_means(e, e.window(indices, kMicro), 1);
  const double true_norm = norm(sum) / kParts;
  const double max_norm = true_norm / 2;
  Table table("Division by A = 4 and clipping, at half the true norm",
              {{"order"},
               {"norm that is clipped", kMeasured, 4},
               {"coefficient", kMeasured, 4},
               {"norm of the update's gradient", kMeasured, 4},
               {"over the right one", kMeasured, 4}});
  const auto add = [&](const char* what, double clipped, double after) {
    const double c = coefficient(clipped, max_norm);
    const double applied = clipped * c * after;
    table.add_row({what, clipped, c, applied, applied / max_norm});
    return applied;
  };
  add("divide, then clip", true_norm, 1);
  const double late = add("clip, then divide", kParts * true_norm, 1.0 / kParts);
  const double never = add("clip, never divide", kParts * true_norm, 1);
  table.add_note(
      "Without the division, clipping hides the mistake as long as it clips: then the norm is "
      "right, and where it does not the step is A times too long.");
  result.tables.push_back(std::move(table));
  // Every side is a product of a few numbers in fp64.
  const double bound = 8 * 0x1p-53;
  result.claims.push_back(
      {"Clipping before the division makes a clipped step A times too short; a missing division "
       "does not show while the clip is active.",
       concat("norms ", digits(late / max_norm, 17), " and ", digits(never / max_norm, 17),
              " of the right one; 1/4 and 1 within ", digits(bound, 2)),
       std::abs(kParts * late / max_norm - 1) <= bound && std::abs(never / max_norm - 1) <= bound});
}

enum class Order { unscale_first, clip_first };

struct Clipped {
  double first_update = 0;  // norm of the gradient that the first update used
  double first_loss = 0, last_loss = 0;
  std::vector<double> losses;
};

// Trains with SGD; `clip_first` clips the gradients while they are still scaled.
Clipped train(const Options& options, const Dataset& data, Order order, double scale,
              double max_norm, std::int64_t windows) {
  Experiment e({.model = {.model = "tiny-mlp"},
                .precision = Precision::fp16,
                .optimizer = {.kind = OptimizerSettings::Kind::sgd},
                .seed = first_seed(options),
                .device = options.device},
               data);
  Sampler sampler({.seed = first_seed(options), .count = data.train.size(), .batch = 50});
  ParameterArena& parameters = e.model->parameters();
  Clipped run;
  for (std::int64_t i = 0; i < windows; ++i) {
    const auto window = e.window(sampler.next(), 50);
    const StepResult r = accumulate_window(e.context, *e.model, window, scale, {});
    StepStatus status;
    set_scale(status, order == Order::unscale_first ? static_cast<float>(scale) : 1.0F);
    e.optimizer->inspect({.max_norm = max_norm}, status);
    const double norm_applied = status.norm * status.clip;
    set_scale(status, static_cast<float>(scale));
    if (i == 0)
      run.first_update = order == Order::unscale_first ? norm_applied : norm_applied / scale;
    e.optimizer->apply(0.1, status);
    parameters.zero_grad();
    run.losses.push_back(r.loss);
  }
  run.first_loss = run.losses.front();
  const std::int64_t tenth = windows / 10;
  run.last_loss = mean(std::span(run.losses).last(static_cast<std::size_t>(tenth)));
  return run;
}

void clip_and_unscale(const Options& options, const Dataset& data, Result& result) {
  begin(options, "scaler: clip before unscaling");
  const std::int64_t windows = options.quick ? 150 : 600;
  constexpr double kScale = 0x1p16;
  constexpr double kMaxNorm = 0.25;
  const Clipped right = train(options, data, Order::unscale_first, kScale, kMaxNorm, windows);
  const Clipped wrong = train(options, data, Order::clip_first, kScale, kMaxNorm, windows);
  Table table("Clipping to 0.25 around unscaling: SGD, scale 2^16",
              {{"order"},
               {"norm of the first update's gradient", kMeasured, 4},
               {"loss, first window", kMeasured, 4},
               {"loss, last tenth", kMeasured, 4}});
  table.add_row({"unscale, then clip", right.first_update, right.first_loss, right.last_loss});
  table.add_row({"clip, then unscale", wrong.first_update, wrong.first_loss, wrong.last_loss});
  table.add_note("Adam divides by the gradient's own size and hides most of this mistake.");
  result.tables.push_back(std::move(table));
  std::vector<double> x(right.losses.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i + 1);
  result.figures.push_back(
      {.name = "clip-order",
       .caption = "Clipping gradients that still carry the loss scale makes every update 2^16 "
                  "times too short: the loss stays where it was.",
       .x_label = "window",
       .y_label = "loss, nats a sample",
       .series = {{"unscale, then clip", x, right.losses, Series::Style::line},
                  {"clip, then unscale", x, wrong.losses, Series::Style::line}},
       .provenance = kMeasured});
  // The clip coefficient is one rounding to fp32; norms are fp64.
  const double bound = 2 * 0x1p-24;
  const double ratio = wrong.first_update * kScale / kMaxNorm;
  result.claims.push_back(
      {"Clipped before it is unscaled, a gradient comes out the loss scale times too short.",
       concat("first update's norm times 2^16 is ", digits(ratio, 10), " of the clip; 1 within ",
              digits(bound, 2)),
       std::abs(ratio - 1) <= bound && right.first_update > wrong.first_update});
  result.claims.push_back(
      {"The wrong order hardly trains where the right one does.",
       concat("loss ", digits(wrong.first_loss), " to ", digits(wrong.last_loss), " against ",
              digits(right.first_loss), " to ", digits(right.last_loss)),
       right.last_loss < wrong.last_loss});
}

void clip_parts(const Options& options, const Dataset& data, Result& result) {
  begin(options, "scaler: clip a micro-batch or the window");
  Experiment e(
      {.model = {.model = "tiny-mlp"}, .seed = first_seed(options), .device = options.device},
      data);
  const std::vector<std::int64_t> indices = first_samples(kParts * kMicro);
  const auto window = e.window(indices, kMicro);
  std::vector<std::vector<double>> parts;
  std::vector<double> norms;
  for (const MicroBatch& micro : window) {
    parts.push_back(e.gradient({&micro, 1}));
    norms.push_back(norm(parts.back()));
  }
  const std::size_t n = parts[0].size();
  std::vector<double> mean(n);
  std::vector<double> magnitude(n);
  for (const auto& part : parts)
    for (std::size_t i = 0; i < n; ++i) {
      mean[i] += part[i] / kParts;
      magnitude[i] += std::abs(part[i]) / kParts;
    }
  const double window_norm = norm(mean);
  const auto [least, most] = std::minmax_element(norms.begin(), norms.end());
  struct Case {
    const char* name;
    double max_norm;
  };
  const std::vector<Case> cases{{"above every norm", 2 * *most},
                                {"between the micro-batches' norms", (*least + *most) / 2},
                                {"below the window's norm", window_norm / 2}};
  Table table("Clip every micro-batch, or the window once",
              {{"largest norm allowed"},
               {"its value", kMeasured, 4},
               {"micro-batches clipped", kCounted},
               {"norm, clipped apart", kMeasured, 4},
               {"norm, clipped once", kMeasured, 4},
               {"relative difference", kMeasured, 3},
               {"cosine", kMeasured, 8},
               {"elements apart beyond rounding", kCounted}});
  std::vector<std::int64_t> apart_counts;
  for (const Case& c : cases) {
    std::vector<double> apart(n);
    std::int64_t clipped = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const double factor = coefficient(norms[k], c.max_norm);
      clipped += factor < 1;
      for (std::size_t i = 0; i < n; ++i) apart[i] += factor * parts[k][i] / kParts;
    }
    const std::vector<double> once = times(mean, coefficient(window_norm, c.max_norm));
    // Both from the same fp32 vectors, in fp64: (parts + 4) roundings of the summed magnitudes.
    std::int64_t beyond = 0;
    for (std::size_t i = 0; i < n; ++i)
      beyond += std::abs(apart[i] - once[i]) > 2 * (kParts + 4) * 0x1p-53 * magnitude[i];
    apart_counts.push_back(beyond);
    table.add_row({c.name, c.max_norm, clipped, norm(apart), norm(once),
                   relative_difference(apart, once), cosine(apart, once), beyond});
  }
  result.tables.push_back(std::move(table));
  result.claims.push_back(
      {"Clipping every micro-batch is not clipping the window: they agree where nothing is "
       "clipped, and differ where something is.",
       concat(apart_counts[0], " elements apart beyond rounding where nothing is clipped, ",
              apart_counts[1], " and ", apart_counts[2], " where something is"),
       apart_counts[0] == 0 && apart_counts[1] > 0 && apart_counts[2] > 0});
}

}  // namespace

void scaler_order(const Options& options, Result& result) {
  const Dataset data = study_data(
      options,
      {.train_scenes = 40, .validation_scenes = 4, .test_scenes = 4, .images_per_scene = 25});
  divide(options, data, result);
  clip_and_divide(options, data, result);
  clip_and_unscale(options, data, result);
  clip_parts(options, data, result);
}

}  // namespace roundoff::study
