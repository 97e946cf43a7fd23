// How the error of a sum grows with its length, by accumulator, against the computed bounds; which
// accumulators lean to one side; and what that does to a training run.
#include <cmath>
#include <random>

#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "study/accumulator_parts.h"
#include "study/chained_product.h"
#include "study/experiment.h"
#include "study/list.h"
#include "study/statistics.h"
#include "verify/bound/linear.h"
#include "verify/bound/reduce.h"
#include "verify/bound/softmax.h"

namespace roundoff::study {

namespace {

constexpr Accumulator kCompared[] = {Accumulator::fp32, Accumulator::h100, Accumulator::a100,
                                     Accumulator::v100, Accumulator::fp16};
// Beyond it every fp16 chain of positive terms has long stopped growing.
constexpr std::int64_t kLongestFp16 = 4096;

using Values = std::vector<double>;

constexpr std::string_view kQuestion =
    "How does the error of a sum grow with its length, and does the accumulator change a training "
    "run?";

std::string label(Accumulator a) {
  if (a == Accumulator::fp16) return "fp16";
  std::string text = name(a);
  for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return text;
}

Arithmetic arithmetic_of(Accumulator a) {
  switch (a) {
    case Accumulator::fp16:
      return {.accumulator = kFp16, .output = kFp16};
    case Accumulator::v100:
      return {.tensor_core = kV100};
    case Accumulator::a100:
      return {.tensor_core = kA100};
    case Accumulator::h100:
      return {.tensor_core = kH100};
    default:
      return {};
  }
}

// fp16 values: uniform in [0, 1), or standard normal.
Values draw(std::size_t n, bool positive, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform;
  std::normal_distribution<double> normal;
  Values values(n);
  for (double& v : values)
    v = round_to_format(positive ? uniform(random) : normal(random), kFp16).value;
  return values;
}

// Sums of every row of x [rows, n] by the engine's sum.
Values row_sums(Accumulator a, std::int64_t rows, std::int64_t n, const Values& x) {
  Context context;
  context.accumulator = a;
  context.output_dtype = DType::fp32;
  return sum(context, Tensor::from(context.allocator, x, {rows, n}, DType::fp16), 1).to_vector();
}

// The bound of those sums. Tensor cores add the products of the terms with ones, and cut.
Bound row_sum_bound(Accumulator a, std::int64_t rows, std::int64_t n, const Values& x) {
  const std::int64_t axes[] = {1};
  if (truncates(a))
    return bound::matmul({.m = rows, .n = 1, .k = n}, x, Values(static_cast<std::size_t>(n), 1.0),
                         {}, arithmetic_of(a));
  return bound::reduce(oracle::Reduce::sum, x, {rows, n}, axes, arithmetic_of(a));
}

// What a study says of the errors of one case.
struct Errors {
  double largest = 0;          // |error| / S, S the sum of magnitudes
  double bound = 0;            // of the same element
  double ratio = 0;            // largest |error| / bound
  double lean = 0;             // mean of sign(result) error / S: below 0, towards zero
  double lean_deviations = 0;  // lean in standard errors
};
Errors judge(const Values& actual, const Bound& bound, const Values& magnitude) {
  Errors e;
  Values signed_errors;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double off = actual[i] - bound.reference[i];
    const double relative = std::abs(off) / magnitude[i];
    signed_errors.push_back((bound.reference[i] < 0 ? -off : off) / magnitude[i]);
    e.ratio = std::max(e.ratio, std::abs(off) / bound.tolerance[i]);
    if (relative < e.largest) continue;
    e.largest = relative;
    e.bound = bound.tolerance[i] / magnitude[i];
  }
  e.lean = mean(signed_errors);
  const double deviation = standard_deviation(signed_errors);
  e.lean_deviations =
      deviation > 0 ? e.lean / deviation * std::sqrt(static_cast<double>(signed_errors.size())) : 0;
  return e;
}

// A random walk of roundings grows with the square root of the length, a bias with the length: what
// lies above the middle of the two slopes is closer to a bias.
constexpr double kBetweenSlopes = (0.5 + 1.0) / 2;

// Slope of log error against log length.
double slope(const Values& x, const Values& y) {
  double sx = 0, sy = 0, sxx = 0, sxy = 0, n = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!(y[i] > 0)) continue;
    const double a = std::log(x[i]), b = std::log(y[i]);
    sx += a, sy += b, sxx += a * a, sxy += a * b, n += 1;
  }
  return n < 2 ? 0 : (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

struct Collected {
  Accumulator accumulator = Accumulator::fp32;
  Values length, largest, bound, lean;
  double worst_ratio = 0;
  double weakest_lean = -HUGE_VAL;  // in standard errors, over the longer half
};

struct Grid {
  std::vector<std::int64_t> lengths;
  std::int64_t side = 16;  // of the product: side^2 sums a case
  std::int64_t rows = 64;  // of sums and softmax
};

using Progress = std::function<void(std::string_view)>;

// One operation over all lengths and accumulators: case(accumulator, length) gives its errors.
template <class Case>
std::vector<Collected> collect(const Grid& grid, const Options& options, std::string_view what,
                               Table& table, Case&& one) {
  std::vector<Collected> all;
  for (const Accumulator a : kCompared) {
    if (options.stop && options.stop()) throw Interrupted("[study] accumulator interrupted");
    if (options.progress) options.progress(concat("accumulator: ", what, ", ", label(a)));
    Collected c;
    c.accumulator = a;
    for (const std::int64_t k : grid.lengths) {
      if (a == Accumulator::fp16 && k > kLongestFp16) continue;
      const Errors e = one(a, k);
      table.add_row(
          {std::string(what), k, label(a), e.largest, e.bound, e.ratio, e.lean, e.lean_deviations});
      c.length.push_back(static_cast<double>(k));
      c.largest.push_back(e.largest);
      c.bound.push_back(e.bound);
      c.lean.push_back(std::abs(e.lean));
      c.worst_ratio = std::max(c.worst_ratio, e.ratio);
      if (k >= 1024) c.weakest_lean = std::max(c.weakest_lean, e.lean_deviations);
    }
    all.push_back(std::move(c));
  }
  return all;
}

Figure growth_figure(const std::string& name, const std::string& caption,
                     const std::vector<Collected>& all) {
  Figure figure{.name = name,
                .caption = caption,
                .x_label = "length of the sum (terms)",
                .y_label = "error / sum of magnitudes",
                .log_x = true,
                .log_y = true,
                .provenance = Provenance::modelled};
  for (const Collected& c : all) {
    figure.series.push_back(
        {label(c.accumulator), c.length, c.largest, Series::Style::line_and_dots});
    if (c.accumulator == Accumulator::fp32 || c.accumulator == Accumulator::h100)
      figure.series.push_back({label(c.accumulator) + ", bound", c.length, c.bound});
  }
  return figure;
}

const Collected& of(const std::vector<Collected>& all, Accumulator a) {
  for (const Collected& c : all)
    if (c.accumulator == a) return c;
  return all.front();
}

void claim_bounds(Result& result, const std::string& what, const std::vector<Collected>& all) {
  double worst = 0;
  for (const Collected& c : all) worst = std::max(worst, c.worst_ratio);
  result.claims.push_back({what + ": every error is within its computed bound",
                           concat("largest error / bound ", digits(worst)), worst <= 1});
}

void products(const Options& options, const Grid& grid, std::uint64_t seed, Result& result,
              Table& table) {
  for (const bool positive : {true, false}) {
    const std::string operands = positive ? "uniform" : "normal";
    const auto all =
        collect(grid, options, "product, " + operands, table, [&](Accumulator a, std::int64_t k) {
          const std::int64_t n = grid.side;
          const Values x = draw(static_cast<std::size_t>(n * k), positive, seed + 1);
          const Values y = draw(static_cast<std::size_t>(k * n), positive, seed + 2);
          const oracle::MatmulParams shape{.m = n, .n = n, .k = k};
          Values ax = x, ay = y;
          for (double& v : ax) v = std::abs(v);
          for (double& v : ay) v = std::abs(v);
          return judge(chained_product(a, n, n, k, x, y),
                       bound::matmul(shape, x, y, {}, arithmetic_of(a)),
                       positive ? oracle::matmul(shape, x, y) : oracle::matmul(shape, ax, ay));
        });
    result.figures.push_back(growth_figure(
        "product-" + operands,
        concat("Largest error of ", grid.side * grid.side, " sums of products of ", operands,
               positive ? " operands in [0, 1)" : " operands N(0, 1)",
               ", relative to the sum of magnitudes, by accumulator; lines without dots are the "
               "computed bounds."),
        all));
    claim_bounds(result, "Products of " + operands + " operands", all);
    if (!positive) continue;
    Figure lean{.name = "lean",
                .caption =
                    "Mean signed error of sums of positive products, by magnitude: the "
                    "accumulators that truncate lean towards zero, and the mean grows with "
                    "the number of blocks; rounding to nearest averages out.",
                .x_label = "length of the sum (terms)",
                .y_label = "|mean signed error| / sum of magnitudes",
                .log_x = true,
                .log_y = true,
                .provenance = Provenance::modelled};
    for (const Collected& c : all)
      lean.series.push_back({label(c.accumulator), c.length, c.lean, Series::Style::line_and_dots});
    result.figures.push_back(std::move(lean));
    for (const Collected& c : all) {
      if (!truncates(c.accumulator)) continue;
      result.claims.push_back(
          {concat(
               "Products on ", label(c.accumulator),
               ": truncation is biased, positive sums of 1,024 terms and more come out too small"),
           concat("mean error at least ", digits(-c.weakest_lean),
                  " standard errors below 0; 5 asked"),
           c.weakest_lean < -5});
      const double s = slope(c.length, c.lean);
      result.claims.push_back(
          {concat("Products on ", label(c.accumulator),
                  ": the bias grows in proportion to the length, and not to its square root"),
           concat("slope of log error over log length ", digits(s), "; above ",
                  digits(kBetweenSlopes), " asked, midway between the two"),
           s > kBetweenSlopes});
    }
    const Collected& fma = of(all, Accumulator::fp32);
    result.claims.push_back(
        {"Products in fp32 FMA: the largest error grows slower than the length",
         concat("slope ", digits(slope(fma.length, fma.largest)), "; below ",
                digits(kBetweenSlopes), " asked, midway between a random walk and the length"),
         slope(fma.length, fma.largest) < kBetweenSlopes});
    const double ratio = of(all, Accumulator::v100).largest.back() / fma.largest.back();
    result.claims.push_back(
        {"At the longest sum V100's error is larger than fp32's, and H100's is between them",
         concat("V100 / fp32 ", digits(ratio), ", H100 / fp32 ",
                digits(of(all, Accumulator::h100).largest.back() / fma.largest.back())),
         ratio > 1 &&
             of(all, Accumulator::h100).largest.back() <
                 of(all, Accumulator::v100).largest.back() &&
             of(all, Accumulator::h100).largest.back() > fma.largest.back()});
  }
}

void sums(const Options& options, const Grid& grid, std::uint64_t seed, Result& result,
          Table& table) {
  const std::int64_t axes[] = {1};
  const auto all =
      collect(grid, options, "sum, uniform", table, [&](Accumulator a, std::int64_t n) {
        const Values x = draw(static_cast<std::size_t>(grid.rows * n), true, seed + 3);
        return judge(row_sums(a, grid.rows, n, x), row_sum_bound(a, grid.rows, n, x),
                     oracle::reduce(oracle::Reduce::sum, x, {grid.rows, n}, axes));
      });
  result.figures.push_back(growth_figure(
      "sum",
      concat("Largest error of ", grid.rows,
             " sums of uniform terms in [0, 1). The engine adds in fp32 by a tree, and as "
             "fp16 and as GPUs' tensor cores (a product with ones) in index order."),
      all));
  claim_bounds(result, "Sums", all);
  const double ones = row_sums(Accumulator::fp16, 1, 4096, Values(4096, 1.0))[0];
  result.claims.push_back(
      {"Adding 4,096 ones in fp16 stops at 2,048: 2,048 + 1 is a tie, and goes back",
       concat("sum ", digits(ones)), ones == 2048});
}

// The denominators of softmax, formed by each accumulator from exponentials in fp16.
void softmaxes(const Options& options, const Grid& grid, std::uint64_t seed, Result& result,
               Table& table) {
  const std::int64_t axes[] = {1};
  const auto logits = [&](std::int64_t n) {
    Values x = draw(static_cast<std::size_t>(grid.rows * n), false, seed + 4);
    return x;
  };
  const auto all =
      collect(grid, options, "softmax denominator", table, [&](Accumulator a, std::int64_t n) {
        Context context;
        const Tensor x = Tensor::from(context.allocator, logits(n), {grid.rows, n}, DType::fp16);
        const Tensor shifted = sub(context, x, max(context, x, 1, /*keepdim=*/true));
        const Values e = exp(context, shifted).to_vector();
        return judge(row_sums(a, grid.rows, n, e), row_sum_bound(a, grid.rows, n, e),
                     oracle::reduce(oracle::Reduce::sum, e, {grid.rows, n}, axes));
      });
  result.figures.push_back(growth_figure(
      "softmax",
      "Largest relative error of a softmax's denominator, formed from fp16 exponentials of N(0, 1) "
      "logits: it is the relative error that all of the row's probabilities share.",
      all));
  claim_bounds(result, "Softmax's denominators", all);
  double worst = 0;
  for (const std::int64_t n : grid.lengths) {
    Context context;
    const Values x = logits(n);
    const Values y =
        softmax(context, Tensor::from(context.allocator, x, {grid.rows, n}, DType::fp32))
            .to_vector();
    const Bound b = bound::softmax({.outer = grid.rows, .n = n}, x, {});
    for (std::size_t i = 0; i < y.size(); ++i)
      worst = std::max(worst, std::abs(y[i] - b.reference[i]) / b.tolerance[i]);
  }
  result.claims.push_back({"The engine's softmax in fp32 is within its bound at every length",
                           concat("largest error / bound ", digits(worst)), worst <= 1});
}

}  // namespace

Result run_accumulator(const Options& options) {
  Grid grid;
  grid.lengths = options.quick ? std::vector<std::int64_t>{16, 64, 256, 1024, 4096, 16384}
                               : std::vector<std::int64_t>{16, 64, 256, 1024, 4096, 16384, 65536};
  grid.side = options.quick ? 12 : 32;
  grid.rows = options.quick ? 64 : 256;
  Result result;
  result.title = "Accumulators";
  result.question = std::string(kQuestion);
  result.seeds = study_seeds(options, options.quick ? 3 : 5);
  result.method = {
      "Operands are fp16 numbers. Each sum is formed as a chain of fp32 fused multiply-adds, as "
      "the "
      "tensor cores of a V100, A100 and H100 form it in the published model of their arithmetic "
      "(in "
      "blocks, aligned to the largest exponent and cut), and with every multiply-add rounded to "
      "fp16. The reference is exact to fp64. Errors are given relative to the sum of magnitudes, "
      "beside the bound that is computed from the arithmetic and the operands.",
      "For the training runs, one network is trained from the same weights on the same data, and "
      "the accumulator of its products and sums is the only thing that differs."};
  Table table("Errors by length and accumulator",
              {{"operation"},
               {"length"},
               {"accumulator"},
               {"largest error", Provenance::modelled, 3},
               {"its bound", Provenance::modelled, 3},
               {"largest error / bound", Provenance::modelled, 3},
               {"mean signed error", Provenance::modelled, 3},
               {"in standard errors", Provenance::modelled, 3}});
  table.add_note(
      "Errors are relative to the sum of magnitudes; a mean signed error below 0 leans towards "
      "zero.");
  const std::uint64_t seed = result.seeds.front() * 1000;
  products(options, grid, seed, result, table);
  sums(options, grid, seed, result, table);
  softmaxes(options, grid, seed, result, table);
  result.tables.push_back(std::move(table));
  accumulator_training(options, result.seeds, result);
  result.shows = {
      "Rounding to nearest errs to both sides: the error of fp32 sums grows slowly with their "
      "length and has little mean. Tensor cores cut, always towards zero: their error grows with "
      "the number of blocks, and all of it has one sign where terms have.",
      "H100 keeps two more bits than V100 and adds blocks four times as long: its error is smaller "
      "by about that.",
      "An fp16 accumulator does not lose precision gradually: from a few thousand positive terms "
      "on "
      "it stops adding."};
  result.does_not_show = {
      "What a GPU gives: these are models of its arithmetic, in our order of summation. A "
      "library's "
      "kernels split and order sums their own way.",
      "Anything on long training runs: these are short, of a small network."};
  result.references = {
      {"fasi2021",
       "article",
       {{"author",
         "Fasi, Massimiliano and Higham, Nicholas J. and Mikaitis, Mantas and Pranesh, Srikara"},
        {"title", "Numerical behavior of {NVIDIA} tensor cores"},
        {"journal", "PeerJ Computer Science"},
        {"volume", "7"},
        {"pages", "e330"},
        {"year", "2021"}}},
      {"higham2002",
       "book",
       {{"author", "Higham, Nicholas J."},
        {"title", "Accuracy and Stability of Numerical Algorithms"},
        {"edition", "2"},
        {"publisher", "SIAM"},
        {"year", "2002"}}},
      {"highammary2019",
       "article",
       {{"author", "Higham, Nicholas J. and Mary, Theo"},
        {"title", "A New Approach to Probabilistic Rounding Error Analysis"},
        {"journal", "SIAM Journal on Scientific Computing"},
        {"volume", "41"},
        {"number", "5"},
        {"pages", "A2815--A2835"},
        {"year", "2019"}}}};
  return result;
}

}  // namespace roundoff::study
