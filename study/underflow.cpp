// Exponents of gradients by layer, the share that fp16 flushes to zero at several loss scales, and
// the angle between what is left and the fp64 gradient. Both are shown, because the first may be
// large where the second is small.
#include "study/experiment.h"
#include "study/list.h"

#include <algorithm>
#include <cmath>

#include "engine/data/dataset.h"
#include "engine/probe.h"
#include "models/trainer.h"
#include "study/citation.h"

namespace roundoff::study {

namespace {

using Values = std::vector<double>;
using Kind = ProbedTensor::Kind;

constexpr std::string_view kQuestion =
    "How much of the gradient is flushed to zero in fp16, and what does loss scaling bring back?";

struct Settings {
  // Windows of fp32 training before the gradient is taken: few, and enough to fit the data.
  std::int64_t early = 0, late = 0;
  std::int64_t batch = 0;  // samples of the window, in one micro-batch
  int sweep = 4;           // powers of two between the scales of the figure
};

void check_stop(const Options& options, std::string_view doing) {
  if (options.stop && options.stop()) throw Interrupted("[study] underflow interrupted");
  if (options.progress) options.progress(concat("underflow: ", doing));
}

TrainConfig train_config(const Options& options, const Settings& settings, Precision precision,
                         std::uint64_t seed) {
  TrainConfig config;
  config.model.model = "convnet";
  config.precision = precision;
  config.device = options.device;
  config.micro_batch = settings.batch;
  config.steps = settings.late;
  config.schedule.lr = 3e-3;
  config.seed = seed;
  // A weight's gradient is rounded to the 16-bit type, as PyTorch's autocast has it.
  config.weight_grad_16bit = low_dtype(precision) != DType::fp32;
  return config;
}

// One gradient of the window, and what the probe saw of it.
struct Gradient {
  Values flat;                       // of all parameters, unscaled
  std::vector<ProbedTensor> layers;  // gradients of the outputs of products and convolutions
  TensorStats parameters;            // of all of them, as stored
  bool finite = true;
  double loss = 0;
  FittedScale fitted;
};

Gradient gradient(Context& context, Model& model, const MicroBatch& micro, double scale) {
  Probe probe(context);
  probe.begin(scale);
  const Scoped<NodeObserver*> observed(context.observer, &probe);
  model.parameters().zero_grad();
  Gradient g;
  g.loss = accumulate_window(context, model, {&micro, 1}, scale, {}).loss;
  probe.has_gradients(model.parameters());
  g.finite = !probe.first_nonfinite();
  g.fitted = probe.fitted_scale();
  for (const ProbedTensor* t : probe.tensors()) {
    if (t->kind == Kind::parameter) {
      g.parameters.dtype = t->stats.dtype;
      g.parameters.add(t->stats);
    }
    if (t->kind == Kind::gradient && (t->operation == "conv2d" || t->operation == "linear"))
      g.layers.push_back(*t);
  }
  for (const ParameterEntry& entry : model.parameters().entries())
    for (const double v : entry.tensor.leaf()->grad.to_vector()) g.flat.push_back(v / scale);
  model.parameters().zero_grad();
  model.parameters().discard_buffers();
  return g;
}

void copy_weights(const Model& from, Model& to) {
  Allocator allocator;
  for (std::size_t i = 0; i < from.parameters().entries().size(); ++i) {
    const Tensor& target = to.parameters().entries()[i].tensor;
    const Values values = from.parameters().entries()[i].tensor.to_vector();
    target.copy_from(Tensor::from(allocator, values, target.shape(), target.dtype()));
  }
  to.parameters().changed(/*copies_written=*/false);
}

// Share of the non-zero elements of an fp64 gradient, taken at scale 1, that the format rounds to
// zero at 2^k.
double flushed(const TensorStats& exact, int k, const Format& format) {
  const auto lost = exact.below_exponent(format.min_subnormal_exponent() - 1 - k);
  return static_cast<double>(lost) /
         static_cast<double>(std::max<std::int64_t>(exact.nonzero(), 1));
}

std::string layer_of(const ProbedTensor& t) { return t.name.substr(0, t.name.find('.')); }

TensorStats all_layers(const Gradient& g) {
  TensorStats sum;
  for (const ProbedTensor& t : g.layers) sum.add(t.stats);
  return sum;
}

// One row of the table.
struct Row {
  Precision precision = Precision::fp16;
  std::string how;  // "scale 1", ...
  double scale = 1;
  double flushed_layers = 0;   // counted in the fp64 gradient
  double more_zeros = 0;       // measured: zeros that the run has and fp64 has not
  double flushed_weights = 0;  // counted in the fp64 gradient
  double more_zero_weights = 0;
  double cosine = 0;
  double error = 0;
  bool finite = true;
};

// The models of one seed, all with the weights that fp32 training reached.
class Seed {
 public:
  Seed(const Options& options, const Settings& settings, const Dataset& data, std::uint64_t seed)
      : trained_(train_config(options, settings, Precision::fp32, seed), data),
        half_(train_config(options, settings, Precision::fp16, seed), data),
        bfloat_(train_config(options, settings, Precision::bf16, seed), data) {
    ModelSettings model = trained_.config().model;
    model.input = data.image;
    model.classes = data.classes;
    twin_ = make_model(model);
    twin_->parameters().allocate(exact_context_.allocator, {.master = DType::fp64});
    exact_context_.accumulator = Accumulator::fp64;
  }

  // Trains on until so many windows are done, and takes the next one's gradient in fp64.
  void train_to(std::int64_t windows) {
    while (trained_.steps_done() < windows) trained_.step();
    trained_.settle();
    for (Model* m : {twin_.get(), &half_.model(), &bfloat_.model()})
      copy_weights(trained_.model(), *m);
    sampler_ = trained_.sampler().state();
    const MicroBatch micro = window(trained_);
    const MicroBatch exact_micro{.x = Tensor::from(exact_context_.allocator, micro.x.to_vector(),
                                                   micro.x.shape(), DType::fp64),
                                 .labels = micro.host_labels.to(exact_context_.allocator),
                                 .sample0 = micro.sample0};
    exact = gradient(exact_context_, *twin_, exact_micro, 1.0);
  }

  Gradient low(Precision precision, double scale) {
    Trainer& trainer = precision == Precision::fp16 ? half_ : bfloat_;
    return gradient(trainer.context(), trainer.model(), window(trainer), scale);
  }

  Row row(Precision precision, std::string how, double scale) {
    const Gradient g = low(precision, scale);
    const Format format = format_of(low_dtype(precision));
    const int k = std::ilogb(scale);
    const TensorStats layers = all_layers(exact), low_layers = all_layers(g);
    const auto more = [](const TensorStats& low_stats, const TensorStats& exact_stats) {
      return static_cast<double>(low_stats.zeros - exact_stats.zeros) /
             static_cast<double>(exact_stats.nonzero());
    };
    Row row{.precision = precision, .how = std::move(how), .scale = scale};
    row.flushed_layers = flushed(layers, k, format);
    row.more_zeros = more(low_layers, layers);
    row.flushed_weights = flushed(exact.parameters, k, format);
    row.more_zero_weights = more(g.parameters, exact.parameters);
    row.finite = g.finite;
    row.cosine = g.finite ? cosine(g.flat, exact.flat) : std::nan("");
    row.error = g.finite ? relative_difference(g.flat, exact.flat) : std::nan("");
    return row;
  }

  Gradient exact;

 private:
  MicroBatch window(Trainer& trainer) {
    const SamplerState before = trainer.sampler().state();
    trainer.sampler().restore(sampler_);
    MicroBatch micro = trainer.cut(trainer.sampler().next(), trainer.config().micro_batch).front();
    trainer.sampler().restore(before);
    return micro;
  }

  Trainer trained_, half_, bfloat_;
  Context exact_context_;
  std::unique_ptr<Model> twin_;
  SamplerState sampler_;  // before the window that is looked at
};

// Where PyTorch's rule takes the scale: fp16 training that raises it often.
double dynamic_scale(const Options& options, const Settings& settings, const Dataset& data,
                     std::uint64_t seed, std::int64_t windows, std::int64_t& skipped) {
  TrainConfig config = train_config(options, settings, Precision::fp16, seed);
  config.steps = windows;
  config.scaler.growth_interval = options.quick ? 3 : 20;
  Trainer trainer(config, data);
  double scale = trainer.scaler().scale();
  while (!trainer.done()) {
    const StepResult result = trainer.step();
    // The last one that a window passed with.
    if (result.did_step) scale = result.scale;
  }
  trainer.settle();
  skipped = trainer.skipped();
  return scale;
}

Table textbook(Result& result) {
  Table table("Numbers of a textbook in fp16", {{"value"},
                                                {"scale"},
                                                {"stored", Provenance::modelled, 0},
                                                {"class"},
                                                {"unscaled", Provenance::modelled, 8},
                                                {"relative error", Provenance::modelled, 3}});
  const auto round = [](double v) { return round_to_format(v, kFp16); };
  for (const double value : {1e-4, 1e-5, 1e-6, 1e-7, 3e-8, 1e-8}) {
    for (const int k : {0, 7, 16}) {
      const double scale = std::ldexp(1.0, k);
      const Rounded r = round(value * scale);
      table.add_row({digits(value), concat("2^", k), r.value, std::string(name(r.value_class)),
                     r.value / scale, std::abs(r.value / scale - value) / value});
    }
  }
  const Rounded plain = round(1e-6), scaled = round(1e-6 * 0x1p7), tiny = round(1e-8);
  const double plain_error = std::abs(plain.value - 1e-6) / 1e-6;
  const double scaled_error = std::abs(scaled.value / 0x1p7 - 1e-6) / 1e-6;
  result.claims.push_back(
      {"1e-6 is not lost in fp16: it becomes the subnormal 17 x 2^-24, 1.3% off, which no normal "
       "number is; at scale 2^7 it is normal and within half an ulp",
       concat("stored ", digits(plain.value), " (", name(plain.value_class), "), off by ",
              digits(plain_error), "; at 2^7 off by ", digits(scaled_error)),
       plain.value == 0x11p-24 && plain.value_class == ValueClass::subnormal &&
           plain_error > 0x1p-11 && plain_error <= 0x1p-25 / 1e-6 &&
           scaled.value_class == ValueClass::normal && scaled_error <= 0x1p-11});
  result.claims.push_back({"What fp16 loses for good lies at or below 2^-25, as 1e-8 does",
                           concat("1e-8 becomes ", digits(tiny.value), "; 2^-25 becomes ",
                                  digits(round(0x1p-25).value)),
                           tiny.value == 0 && round(0x1p-25).value == 0 &&
                               round(std::nextafter(0x1p-25, 1.0)).value > 0});
  return table;
}

Figure histogram(const Gradient& exact, std::int64_t windows, bool late) {
  Figure figure{
      .name = late ? "exponents-late" : "exponents-early",
      .caption = concat("After ", windows, " windows (loss ", digits(exact.loss),
                        "): exponents of the fp64 gradients of each layer's output and of all "
                        "weights, unscaled, as a share of their non-zero elements. fp16 is "
                        "subnormal below -14 and rounds to zero below -25; a loss scale of 2^k "
                        "moves everything to the right by k."),
      .x_label = "exponent (floor of log2 of the magnitude)",
      .y_label = "share of non-zero elements"};
  figure.provenance = Provenance::counted;
  const auto add = [&](const std::string& label, const TensorStats& s) {
    Series series{.name = label};
    for (int e = -60; e <= 2; ++e) {
      series.x.push_back(e);
      series.y.push_back(static_cast<double>(s.at_exponent(e)) / static_cast<double>(s.nonzero()));
    }
    figure.series.push_back(std::move(series));
  };
  for (const ProbedTensor& t : exact.layers) add(layer_of(t), t.stats);
  add("weights", exact.parameters);
  return figure;
}

// The exponent below which half of the non-zero elements lie.
int middle_exponent(const TensorStats& s) {
  int e = TensorStats::kLowest;
  while (e < TensorStats::kHighest && 2 * s.below_exponent(e + 1) < s.nonzero()) ++e;
  return e;
}

void add_layers(Table& table, const Gradient& exact, std::uint64_t seed, std::int64_t windows) {
  const auto add = [&](const std::string& label, const TensorStats& s) {
    table.add_row({static_cast<std::int64_t>(seed), windows, label, s.elements,
                   static_cast<double>(s.zeros) / static_cast<double>(s.elements),
                   std::int64_t{middle_exponent(s)}, flushed(s, 0, kFp16), flushed(s, 7, kFp16),
                   flushed(s, 16, kFp16)});
  };
  for (const ProbedTensor& t : exact.layers) add(layer_of(t), t.stats);
  add("weights", exact.parameters);
}

std::vector<Series> sweep_series(const Options& options, const Settings& settings, Seed& seed) {
  Series share{
      .name = "flushed", .style = Series::Style::line_and_dots, .provenance = Provenance::counted};
  Series angle{.name = "1 - cosine", .style = Series::Style::line_and_dots};
  Series error{.name = "relative error", .style = Series::Style::line_and_dots};
  for (int k = -4; k <= 28; k += settings.sweep) {
    check_stop(options, concat("scale 2^", k));
    const Row r = seed.row(Precision::fp16, "", std::ldexp(1.0, k));
    for (Series* series : {&share, &angle, &error}) series->x.push_back(k);
    // Nothing is shown of 0 on a logarithmic axis.
    share.y.push_back(r.flushed_layers > 0 ? r.flushed_layers : std::nan(""));
    angle.y.push_back(r.cosine < 1 ? 1 - r.cosine : std::nan(""));
    error.y.push_back(r.error);
  }
  return {share, angle, error};
}

// What the claims are judged by, over all seeds.
struct Judged {
  double worst_gain = 0;  // of networks that fit their data
  double bf16_ratio = HUGE_VAL, bf16_flushed = 0;
  bool falls = true, fits = true, grows = true, bf16_holds = true, small = true;
  double early_flushed = 0;
  std::string falls_seen, fits_seen, grows_seen, small_seen;

  void add(std::uint64_t seed, std::int64_t windows, bool late, const std::vector<Row>& rows) {
    const Row &plain = rows[0], &middle = rows[1], &scaled = rows[2], &bf16 = rows[4];
    // Of nothing, nothing is left to fall.
    falls = falls && plain.flushed_layers >= middle.flushed_layers &&
            middle.flushed_layers >= scaled.flushed_layers &&
            (plain.flushed_layers == 0 || plain.flushed_layers > scaled.flushed_layers);
    falls_seen += concat(falls_seen.empty() ? "" : "; ", "seed ", seed, ", ", windows,
                         " windows: ", digits(plain.flushed_layers), ", ",
                         digits(middle.flushed_layers), ", ", digits(scaled.flushed_layers));
    bf16_ratio = std::min(bf16_ratio, bf16.error / scaled.error);
    bf16_flushed = std::max({bf16_flushed, bf16.flushed_layers, bf16.flushed_weights});
    bf16_holds = bf16_holds && bf16.flushed_layers <= scaled.flushed_layers &&
                 bf16.flushed_weights <= scaled.flushed_weights;
    if (!late) {
      early_flushed = plain.flushed_layers;
      return;
    }
    const double sine = std::sqrt(std::max(0.0, 1 - plain.cosine * plain.cosine));
    small = small && plain.flushed_layers > sine;
    small_seen += concat(small_seen.empty() ? "" : "; ", "seed ", seed, ": flushed ",
                         digits(plain.flushed_layers), ", sine ", digits(sine), ", cosine ",
                         digits(plain.cosine, 6));
    worst_gain = std::max(worst_gain, scaled.error / plain.error);
    grows = grows && plain.flushed_layers > early_flushed;
    grows_seen += concat(grows_seen.empty() ? "" : "; ", "seed ", seed, ": ", digits(early_flushed),
                         ", then ", digits(plain.flushed_layers));
  }

  void claim(Result& result) const {
    result.claims.push_back(
        {"What vanishes is small: of a network that fits its data unscaled fp16 flushes a larger "
         "share of the outputs' gradients than the sine of the angle by which the weights' "
         "gradient "
         "turns",
         small_seen, small});
    result.claims.push_back({"The better the network fits its data, the more is flushed at scale 1",
                             grows_seen, grows});
    result.claims.push_back(
        {"The share that is flushed falls from scale 1 to 2^7 and to 2^16", falls_seen, falls});
    result.claims.push_back({"Scaling by 2^16 brings that gradient closer to fp64's",
                             concat("relative error at 2^16 / at 1: at most ", digits(worst_gain)),
                             worst_gain < 1});
    result.claims.push_back(
        {"bf16 flushes no more without a scale than fp16 at 2^16, and its gradient is further off",
         concat("flushed at most ", digits(bf16_flushed),
                "; relative error of bf16 / of fp16 at 2^16: at least ", digits(bf16_ratio)),
         bf16_holds && bf16_ratio > 1});
    result.claims.push_back(
        {"The scale that the probe says would have fitted fits, and twice that overflows",
         fits_seen, fits});
  }
};

}  // namespace

Result run_underflow(const Options& options) {
  // As many images as a window has: the network sees all of them in each, and comes to fit them.
  Settings settings{.early = 8, .late = options.quick ? 120 : 600};
  settings.sweep = options.quick ? 4 : 1;
  GlyphSettings glyphs;
  glyphs.train_scenes = options.quick ? 2 : 6;
  glyphs.validation_scenes = glyphs.test_scenes = 1;
  Dataset data = study_data(options, glyphs);
  keep_first(data.train, 25 * glyphs.train_scenes);
  settings.batch = data.train.size();
  Result result;
  result.title = "Underflow";
  result.question = std::string(kQuestion);
  result.seeds = study_seeds(options, options.quick ? 2 : 5);
  result.method = {
      concat("A small convolutional network is trained in fp32. After ", settings.early,
             " windows, and after ", settings.late,
             ", when it fits its few images, the gradient of one window of ", settings.batch,
             " images is formed in fp64, in fp16 mixed precision at several loss scales, and in "
             "bf16 without one. Weights' gradients are rounded to the 16-bit type, as PyTorch's "
             "autocast has them."),
      "'Flushed' counts the non-zero elements of the fp64 gradient that the format would round to "
      "zero at that scale; 'more zeros' is the share of zeros in the 16-bit run minus that in the "
      "fp64 run, which includes what underflow upstream took away, and elements on the other side "
      "of a kink of relu. The cosine and the relative error (L2) compare the whole gradient, "
      "unscaled, "
      "with fp64's."};
  result.tables.push_back(textbook(result));
  Table layers("Gradients in fp64 by layer", {{"seed"},
                                              {"windows", Provenance::counted},
                                              {"layer"},
                                              {"elements", Provenance::counted},
                                              {"zeros", Provenance::counted, 3},
                                              {"median exponent", Provenance::counted},
                                              {"flushed at scale 1", Provenance::counted, 3},
                                              {"flushed at 2^7", Provenance::counted, 3},
                                              {"flushed at 2^16", Provenance::counted, 3}});
  Table table("One window's gradient by scale", {{"seed"},
                                                 {"windows", Provenance::counted},
                                                 {"precision"},
                                                 {"run"},
                                                 {"scale", Provenance::counted, 0},
                                                 {"outputs flushed", Provenance::counted, 3},
                                                 {"outputs, more zeros", Provenance::measured, 3},
                                                 {"weights flushed", Provenance::counted, 3},
                                                 {"weights, more zeros", Provenance::measured, 3},
                                                 {"cosine", Provenance::measured, 9},
                                                 {"relative error", Provenance::measured, 3},
                                                 {"overflow"}});
  Figure sweep{.name = "scales",
               .caption =
                   "Share of the weights' fp64 gradients that fp16 flushes, and what the "
                   "fp16 run's gradient is off: 1 - cosine, and the relative error. First "
                   "seed. Nothing is drawn of zero, nor of a run that overflowed.",
               .x_label = "log2 of the loss scale",
               .y_label = "share, 1 - cosine, relative error",
               .log_y = true};

  Judged judged;
  for (const std::uint64_t seed : result.seeds) {
    Seed s(options, settings, data, seed);
    for (const std::int64_t windows : {settings.early, settings.late}) {
      check_stop(options, concat("seed ", seed, ", ", windows, " windows in fp32"));
      s.train_to(windows);
      add_layers(layers, s.exact, seed, windows);
      check_stop(options, concat("seed ", seed, ", ", windows, " windows, gradients by scale"));
      std::int64_t skipped = 0;
      const double dynamic = dynamic_scale(options, settings, data, seed, windows, skipped);
      const std::vector<Row> rows{
          s.row(Precision::fp16, "scale 1", 1), s.row(Precision::fp16, "scale 2^7", 0x1p7),
          s.row(Precision::fp16, "scale 2^16", 0x1p16),
          s.row(Precision::fp16, concat("dynamic, ", skipped, " skipped"), dynamic),
          s.row(Precision::bf16, "unscaled", 1)};
      for (const Row& r : rows)
        table.add_row({static_cast<std::int64_t>(seed), windows, std::string(name(r.precision)),
                       r.how, r.scale, r.flushed_layers, r.more_zeros, r.flushed_weights,
                       r.more_zero_weights, r.cosine, r.error,
                       std::string(r.finite ? "no" : "yes")});
      judged.add(seed, windows, windows == settings.late, rows);
      // The probe's word against trying it.
      const double fitted = s.low(Precision::fp16, 1024).fitted.largest;
      judged.fits = judged.fits && fitted > 0 && s.low(Precision::fp16, fitted).finite &&
                    !s.low(Precision::fp16, 2 * fitted).finite;
      judged.fits_seen += concat(judged.fits_seen.empty() ? "" : "; ", "seed ", seed, ", ", windows,
                                 " windows: ", power_of_two(fitted));
      if (seed == result.seeds.front())
        result.figures.push_back(histogram(s.exact, windows, windows == settings.late));
    }
    if (seed == result.seeds.front()) sweep.series = sweep_series(options, settings, s);
  }
  result.figures.push_back(std::move(sweep));
  layers.add_note(
      "Shares of the non-zero elements; 'zeros' of all. Half of the non-zero elements have an "
      "exponent of at most the median.");
  table.add_note(
      "Shares of the elements of one window: they say nothing of other windows, networks or data.");
  result.tables.push_back(std::move(layers));
  result.tables.push_back(std::move(table));

  judged.claim(result);
  result.shows = {
      "How many elements vanish and how far the gradient turns are two questions: small elements "
      "are many and weigh little.",
      "A loss scale moves the exponents and nothing else. Between the scale at which nothing is "
      "flushed and the one that overflows there is room, and dynamic scaling stays below its top.",
      "bf16 needs no scale: it has fp32's exponents, and pays with three bits of every element."};
  result.does_not_show = {
      "That small elements do not matter in a long run: a gradient that is zero for thousands of "
      "steps never moves its weight. Here one window is looked at.",
      "Other networks: depth, normalisation and the loss move these exponents by many binades."};
  result.references = {mixed_precision_training()};
  return result;
}

}  // namespace roundoff::study
