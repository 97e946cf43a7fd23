// Gradient accumulation: when a window of micro-batches is the large batch, and when it is not.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "models/zoo.h"
#include "ops/dropout.h"
#include "ops/shape.h"
#include "study/accumulation_parts.h"
#include "study/list.h"
#include "study/mlp_bound.h"

namespace roundoff::study {

namespace {

constexpr auto kCounted = Provenance::counted;
constexpr auto kMeasured = Provenance::measured;
constexpr auto kModelled = Provenance::modelled;

constexpr std::int64_t kBatch = 64;
constexpr std::int64_t kIgnored = -100;
constexpr double kDropout = 0.2;

using Sizes = std::vector<std::int64_t>;

// tiny-mlp behind dropout of its inputs, whose masks belong to samples or to calls.
class DropoutMlp : public Mlp {
 public:
  DropoutMlp(const ModelSettings& settings, bool by_call)
      : Mlp("dropout-mlp", settings), by_call_(by_call) {}
  Tensor forward(Context& context, const Tensor& x) override {
    return Mlp::forward(context, masked(context, x));
  }
  bool has_dropout() const override { return true; }
  // What the network behind the dropout sees.
  Tensor masked(Context& context, const Tensor& x) {
    const Tensor flat = flatten(context, x, 1);
    if (!by_call_) return dropout(context, flat, kDropout, /*tensor=*/1);
    // As a generator that is drawn from call after call.
    const Scoped<RngKey> from_start(context.rng, {context.rng.seed, calls_++, 0, nullptr});
    return dropout(context, flat, kDropout, /*tensor=*/1);
  }
  void restart() { calls_ = 0; }

 private:
  bool by_call_;
  std::uint64_t calls_ = 0;
};

ModelSettings tiny(const Dataset& data) {
  return {.model = "tiny-mlp", .input = data.image, .classes = data.classes, .hidden = {16}};
}

// The mean of micro-batches' mean losses: each of them counts 1 / A, whatever it holds.
std::vector<double> naive(Experiment& e, const std::vector<MicroBatch>& window, double divisor) {
  e.model->parameters().zero_grad();
  for (const MicroBatch& micro : window)
    accumulate_window(e.context, *e.model, {&micro, 1}, 1 / divisor, {});
  std::vector<double> g = e.flat_gradient();
  e.model->parameters().discard_buffers();
  e.model->parameters().zero_grad();
  return g;
}

// Takes the targets of `ignored` samples out of a window.
void ignore(std::vector<MicroBatch>& window, const std::vector<bool>& ignored) {
  std::size_t at = 0;
  for (MicroBatch& micro : window) {
    std::vector<std::int64_t> labels(static_cast<std::size_t>(micro.labels.numel()));
    micro.host_labels.read(labels.data());
    for (std::int64_t& label : labels)
      if (ignored[at++]) label = kIgnored;
    micro.labels.write(labels.data());
    micro.host_labels.write(labels.data());
  }
}

// How far `g` is from the batch's gradient, in units of what rounding explains.
struct Judged {
  double difference = 0;     // |g - batch| / |batch|
  double worst = 0;          // largest |g - batch| over twice the bound
  std::int64_t outside = 0;  // elements beyond it
};
Judged judge(const std::vector<double>& g, const std::vector<double>& batch,
             const std::vector<double>& bound) {
  Judged j;
  j.difference = relative_difference(g, batch);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double d = std::abs(g[i] - batch[i]);
    if (d == 0) continue;
    j.outside += d > 2 * bound[i];
    j.worst = std::max(j.worst, bound[i] == 0 ? HUGE_VAL : d / (2 * bound[i]));
  }
  return j;
}

std::string cut_name(const Sizes& sizes) {
  if (sizes.size() > 2 && std::equal(sizes.begin() + 1, sizes.end(), sizes.begin()))
    return concat(sizes.size(), " x ", sizes.front());
  std::string text;
  for (const std::int64_t n : sizes) text += concat(text.empty() ? "" : " + ", n);
  return text;
}

BoundedGradient bound_of(Experiment& e, const Dataset& data, const std::vector<double>& x,
                         const std::vector<MicroBatch>& whole) {
  std::vector<std::int64_t> labels(static_cast<std::size_t>(whole[0].labels.numel()));
  whole[0].host_labels.read(labels.data());
  return bounded_gradient({data.image.numel(), 16, data.classes}, e.weights(), x, labels, kBatch);
}

}  // namespace

void accumulation_cuts(const Options& options, const Dataset& data, Result& result) {
  begin(options, "accumulation: cuts of a window");
  Experiment e({.model = tiny(data), .seed = first_seed(options), .device = options.device}, data);
  const std::vector<std::int64_t> indices = first_samples(kBatch);
  const auto whole = e.window(indices, kBatch);
  const std::vector<double> x = whole[0].x.to_vector();
  const std::vector<double> batch = e.gradient(whole);
  const BoundedGradient bounded = bound_of(e, data, x, whole);

  // Three samples in four of the window's first half have no target, as padded tokens have none.
  std::vector<bool> ignored(static_cast<std::size_t>(kBatch));
  for (std::size_t i = 0; i < ignored.size() / 2; ++i) ignored[i] = i % 4 != 0;
  auto whole_tokens = e.window(indices, kBatch);
  ignore(whole_tokens, ignored);
  const std::vector<double> tokens = e.gradient(whole_tokens);
  const BoundedGradient tokens_bounded = bound_of(e, data, x, whole_tokens);

  Table table("A window of 64 images against the batch of 64: tiny-mlp, fp32",
              {{"window"},
               {"weighting"},
               {"relative difference", kMeasured, 3},
               {"largest difference over its bound", kMeasured, 3},
               {"elements beyond the bound", kCounted},
               {"of", kCounted}});
  const auto row = [&](const std::string& window, const char* weighting, const Judged& j) {
    table.add_row({window, weighting, j.difference, j.worst, j.outside,
                   static_cast<std::int64_t>(batch.size())});
    return j;
  };
  const Sizes equal(4, 16), singles(64, 1), unequal{36, 20, 7, 1}, short_last{24, 24, 16};
  std::int64_t right_outside = 0;
  double right_worst = 0;
  const auto right = [&](const Judged& j) {
    right_outside += j.outside;
    right_worst = std::max(right_worst, j.worst);
  };
  for (const Sizes& sizes : {equal, singles, unequal, short_last})
    right(row(cut_name(sizes), "by samples",
              judge(e.gradient(e.window(indices, sizes)), batch, bounded.bound)));
  auto tokens_window = e.window(indices, equal);
  ignore(tokens_window, ignored);
  right(row("4 x 16, 24 targets missing", "by valid targets",
            judge(e.gradient(tokens_window), tokens, tokens_bounded.bound)));
  const Judged naive_equal =
      row("4 x 16", "mean of means",
          judge(naive(e, e.window(indices, equal), 4), batch, bounded.bound));
  const Judged naive_unequal =
      row(cut_name(unequal), "mean of means",
          judge(naive(e, e.window(indices, unequal), 4), batch, bounded.bound));
  const Judged naive_tokens = row("4 x 16, 24 targets missing", "mean of means",
                                  judge(naive(e, tokens_window, 4), tokens, tokens_bounded.bound));
  // The epoch ends inside a window: three of four micro-batches, divided by four.
  const std::vector<double> late = naive(e, e.window(first_samples(48), Sizes(3, 16)), 4);
  const auto whole_late = e.window(first_samples(48), 48);
  const BoundedGradient late_bounded = bound_of(
      e, data, std::vector<double>(x.begin(), x.begin() + 48 * data.image.numel()), whole_late);
  const std::vector<double> batch_late = e.gradient(whole_late);
  const Judged late_judged = row("3 x 16, the epoch's end", "divided by A = 4",
                                 judge(late, batch_late, late_bounded.bound));
  right(row("3 x 16, the epoch's end", "by samples",
            judge(e.gradient(e.window(first_samples(48), Sizes(3, 16))), batch_late,
                  late_bounded.bound)));
  table.add_note(
      "Bound: twice a proven bound on the rounding of one gradient, element by element, for any "
      "order of summation. 'Mean of means' gives every micro-batch 1/A, whatever it holds.");
  result.tables.push_back(std::move(table));

  result.claims.push_back(
      {"Windows, equal or not, weighted by their samples or valid targets, give the large batch's "
       "gradient up to rounding, a short last window included.",
       concat(right_outside, " elements beyond the bound in 6 windows; largest difference ",
              digits(right_worst, 3), " of its bound"),
       right_outside == 0});
  result.claims.push_back({"The mean of means agrees where micro-batches are equal.",
                           concat(naive_equal.outside, " elements beyond the bound"),
                           naive_equal.outside == 0});
  result.claims.push_back(
      {"The mean of means differs where micro-batches are unequal, or hold unequal numbers of "
       "targets, and so does a short last window that is divided by A.",
       concat(naive_unequal.outside, ", ", naive_tokens.outside, " and ", late_judged.outside,
              " elements beyond the bound; relative differences ",
              digits(naive_unequal.difference, 3), ", ", digits(naive_tokens.difference, 3),
              " and ", digits(late_judged.difference, 3)),
       naive_unequal.outside > 0 && naive_tokens.outside > 0 && late_judged.outside > 0});
  // The norm comes out at three quarters: each element of both is off by at most its bound.
  const double ratio = norm(late) / norm(batch_late);
  const double slack = 2 * norm(late_bounded.bound) / norm(batch_late);
  result.claims.push_back(
      {"Divided by A = 4, an epoch's last window of 3 micro-batches comes out at 3/4.",
       concat("norm ", digits(ratio, 10), " of the right one; 3/4 within ", digits(slack, 2)),
       std::abs(ratio - 0.75) <= slack});

  // What is rounding follows the precision of the sums over samples, which is fp32 in mixed
  // precision, too; what is a mistake stays.
  Table formats("Rounding or mistake: the same in other precisions",
                {{"precision"},
                 {"4 x 16 by samples", kMeasured, 3},
                 {"36 + 20 + 7 + 1 by samples", kMeasured, 3},
                 {"36 + 20 + 7 + 1, mean of means", kMeasured, 3}});
  struct Row {
    const char* name;
    Precision precision;
    bool fp64;
  };
  Figure figure{.name = "rounding-or-mistake",
                .caption =
                    "Relative difference to the batch. Rounding follows the sums over "
                    "samples, which are fp32 in mixed precision, too; the mean of means of "
                    "unequal micro-batches is as wrong in fp64.",
                .x_label = "precision",
                .y_label = "relative difference",
                .series = {{"by samples", {}, {}, Series::Style::dots},
                           {"mean of means", {}, {}, Series::Style::dots}},
                .log_y = true};
  double x_at = 0;
  for (const Row& r :
       {Row{"fp64", Precision::fp32, true}, Row{"fp32", Precision::fp32, false},
        Row{"fp16 mixed", Precision::fp16, false}, Row{"bf16 mixed", Precision::bf16, false}}) {
    if (r.fp64 && options.device != Device::cpu) continue;
    Experiment p({.model = tiny(data),
                  .precision = r.precision,
                  .fp64 = r.fp64,
                  .seed = first_seed(options),
                  .device = options.device},
                 data);
    // A scale that fp16 bears here; all others do not care.
    const double scale = r.precision == Precision::fp16 ? 0x1p10 : 1;
    const std::vector<double> reference = p.gradient(p.window(indices, kBatch), scale);
    const double a = relative_difference(p.gradient(p.window(indices, equal), scale), reference);
    const double b = relative_difference(p.gradient(p.window(indices, unequal), scale), reference);
    std::vector<double> wrong = naive(p, p.window(indices, unequal), 4 / scale);
    for (double& v : wrong) v /= scale;
    const double c = relative_difference(wrong, reference);
    formats.add_row({r.name, a, b, c});
    figure.categories.emplace_back(r.name);
    figure.series[0].x.push_back(x_at);
    figure.series[0].y.push_back(b);
    figure.series[1].x.push_back(x_at);
    figure.series[1].y.push_back(c);
    x_at += 1;
  }
  result.tables.push_back(std::move(formats));
  result.figures.push_back(std::move(figure));
}

void accumulation_layers(const Options& options, const Dataset& data, Result& result) {
  begin(options, "accumulation: BatchNorm and dropout");
  const std::vector<std::int64_t> indices = first_samples(kBatch);
  const Sizes equal(4, 16);
  Table table("Layers that know of the batch: 4 x 16 against 64",
              {{"layer"},
               {"relative difference", kMeasured, 3},
               {"what rounding explains", kModelled, 3},
               {"elements beyond it", kCounted}});

  // Dropout: with the masks known, the network behind them is tiny-mlp.
  std::array<Judged, 2> dropped;
  for (const bool by_call : {false, true}) {
    Experiment e({.seed = first_seed(options), .device = options.device}, data,
                 std::make_unique<DropoutMlp>(tiny(data), by_call));
    auto& model = static_cast<DropoutMlp&>(*e.model);
    const auto whole = e.window(indices, kBatch);
    std::vector<double> x;
    {
      const NoGrad no_grad(e.context);
      e.context.rng.sample0 = 0;
      x = model.masked(e.context, whole[0].x).to_vector();
    }
    const BoundedGradient bounded = bound_of(e, data, x, whole);
    model.restart();
    const std::vector<double> batch = e.gradient(whole);
    model.restart();
    const Judged j = judge(e.gradient(e.window(indices, equal)), batch, bounded.bound);
    dropped[by_call ? 1 : 0] = j;
    table.add_row({by_call ? "dropout, masks drawn call after call" : "dropout, masks by sample",
                   j.difference, 2 * norm(bounded.bound) / norm(batch), j.outside});
  }

  // BatchNorm: in fp64, against all that fp32's rounding does to the batch's gradient.
  const ModelSettings bn{.model = "bn-mlp", .hidden = {16}};
  double bn_difference = 0, bn_rounding = 0;
  std::int64_t bn_outside = 0;
  if (options.device == Device::cpu) {
    Experiment low({.model = bn, .seed = first_seed(options)}, data);
    Experiment high({.model = bn, .fp64 = true, .seed = first_seed(options)}, data);
    const std::vector<double> batch = high.gradient(high.window(indices, kBatch));
    const std::vector<double> cut = high.gradient(high.window(indices, equal));
    const std::vector<double> rounded = low.gradient(low.window(indices, kBatch));
    bn_difference = relative_difference(cut, batch);
    bn_rounding = relative_difference(rounded, batch);
    double largest = 0;
    for (std::size_t i = 0; i < batch.size(); ++i)
      largest = std::max(largest, std::abs(rounded[i] - batch[i]));
    for (std::size_t i = 0; i < batch.size(); ++i)
      bn_outside += std::abs(cut[i] - batch[i]) > largest;
    result.claims.push_back(
        {"With BatchNorm a window is not the batch: computed in fp64, it differs by more than "
         "fp32's rounding changes the batch's gradient.",
         concat("relative difference ", digits(bn_difference, 3), " in fp64; fp32's rounding ",
                digits(bn_rounding, 3)),
         bn_difference > bn_rounding && bn_outside > 0});
  } else {
    result.skipped.emplace_back("BatchNorm's window in fp64: the reference path (cpu) only");
  }
  table.add_note(
      "Dropout: a proven bound, as above, behind the same masks; BatchNorm is in the next table.");
  result.tables.push_back(std::move(table));
  if (options.device == Device::cpu) {
    Table norms("BatchNorm: 4 x 16 against 64, in fp64",
                {{"relative difference of the window", kMeasured, 3},
                 {"relative difference of the batch in fp32", kMeasured, 3},
                 {"elements further off than fp32's largest", kCounted}});
    norms.add_row({bn_difference, bn_rounding, bn_outside});
    result.tables.push_back(std::move(norms));
  }
  result.claims.push_back(
      {"With dropout masks drawn call after call a window is not the batch; with masks that "
       "belong to samples it is.",
       concat(dropped[1].outside, " elements beyond rounding against ", dropped[0].outside,
              "; relative differences ", digits(dropped[1].difference, 3), " and ",
              digits(dropped[0].difference, 3)),
       dropped[1].outside > 0 && dropped[0].outside == 0});
}

Result run_accumulation(const Options& options) {
  Result result;
  result.title = "Gradient accumulation: when a window is the large batch";
  result.question =
      "Does a window of micro-batches give the large batch's gradient, and what breaks it?";
  const Dataset data = study_data(
      options,
      {.train_scenes = 40, .validation_scenes = 10, .test_scenes = 1, .images_per_scene = 25});
  need_samples("accumulation", data, 512);
  result.method = {
      "The mean loss over n samples is a sum over samples divided by n. A window of micro-batches "
      "adds the same terms in another order, so its gradient differs by rounding only, provided "
      "that every micro-batch counts by its samples and that no layer looks at the batch.",
      concat("For the network ", data.image.numel(), "-16-", data.classes,
             " a bound on the rounding of every element of the gradient is derived in closed form, "
             "valid for every order of summation (study/mlp_bound.h). Two gradients that differ by "
             "more than twice the bound are different gradients."),
      "BatchNorm has no such bound here: its window is computed in fp64, where rounding is 2^29 "
      "times finer, and compared with what fp32 does to the batch's gradient.",
      "The loop that forgets to wait, and steps at every micro-batch, runs beside the right one "
      "from the same weights on the same samples. The variance of the gradient is measured over "
      "random batches and compared with the variance of single samples, divided by n and "
      "corrected for drawing without replacement."};
  accumulation_cuts(options, data, result);
  accumulation_layers(options, data, result);
  accumulation_loop(options, data, result);
  accumulation_variance(options, data, result);
  accumulation_bitwise(options, data, result);
  result.shows = {
      // NOLINTNEXTLINE(bugprone-suspicious-missing-comma)
      "Accumulation is exact up to rounding for networks without batch statistics, however the "
      "window is cut, if micro-batches count by their valid targets.",
      "The usual mean of means is wrong for unequal micro-batches and for token counts that "
      "differ; the error does not shrink with the precision.",
      "BatchNorm cannot be accumulated. Dropout can, if its masks belong to samples.",
      "With sums in the order of the samples, a window is the batch to the bit, however it is cut.",
      "Noise of the gradient falls as 1/n: a window buys the same variance as the batch."};
  result.does_not_show = {"That a large batch trains better: only that a window is one.",
                          "That plain windows are equal to the bit: their sums have another order. "
                          "--reproducible is for "
                          "that, and its cost here is of this machine's CPU."};
  result.references = {
      {"goyal2017accurate",
       "misc",
       {{"author",
         "Goyal, Priya and Doll{\\'a}r, Piotr and Girshick, Ross and Noordhuis, Pieter and "
         "Wesolowski, Lukasz and Kyrola, Aapo and Tulloch, Andrew and Jia, Yangqing and He, "
         "Kaiming"},
        {"title", "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour"},
        {"year", "2017"},
        {"eprint", "1706.02677"},
        {"archiveprefix", "arXiv"}}},
      {"higham2002accuracy",
       "book",
       {{"author", "Higham, Nicholas J."},
        {"title", "Accuracy and Stability of Numerical Algorithms"},
        {"publisher", "SIAM"},
        {"edition", "2"},
        {"year", "2002"}}},
      {"ioffe2015batch",
       "inproceedings",
       {{"author", "Ioffe, Sergey and Szegedy, Christian"},
        {"title",
         "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate "
         "Shift"},
        {"booktitle", "International Conference on Machine Learning"},
        {"year", "2015"}}},
      {"srivastava2014dropout",
       "article",
       {{"author",
         "Srivastava, Nitish and Hinton, Geoffrey and Krizhevsky, Alex and Sutskever, Ilya and "
         "Salakhutdinov, Ruslan"},
        {"title", "Dropout: A Simple Way to Prevent Neural Networks from Overfitting"},
        {"journal", "Journal of Machine Learning Research"},
        {"volume", "15"},
        {"year", "2014"}}}};
  set_one_seed(options, result);
  return result;
}

}  // namespace roundoff::study
