#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/base/device_error.h"
#include "kernels/loss/cross_entropy.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/bound/loss.h"
#include "verify/compare.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

DType wide(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }

// A NaN equals a NaN.
bool same_values(const Array& a, const Array& b) {
  const std::vector<double> as = a.values(), bs = b.values();
  for (std::size_t i = 0; i < as.size(); ++i)
    if (!(as[i] == bs[i] || (std::isnan(as[i]) && std::isnan(bs[i])))) return false;
  return as.size() == bs.size();
}

struct Options {
  CrossEntropyParams params{};
  double seed = 1;
  DType gradient = DType::i64;  // i64: the logits' type, in place over them
  bool label_errors = false;
};

struct Result {
  Array loss, valid, stats, dlogits;
};

// In one call: the same bits.
void check_at_once(SimDevice& device, const Result& want, const Array& logits,
                   const ConstView& target, const ConstView& weight, const ConstView& dloss,
                   const Options& o) {
  const bool in_place = o.gradient == DType::i64;
  Array loss(want.loss.dtype(), want.loss.shape()), valid(want.valid.dtype(), {});
  Array dlogits = in_place ? logits : Array(o.gradient, logits.shape());
  SimScratch scratch(device);
  const Resident x(device, logits);
  Resident to_loss(device, loss), to_valid(device, valid), dx(device, dlogits);
  cross_entropy_with_gradient(device.target(), o.params, in_place ? ConstView(*dx) : ConstView(*x),
                              target, weight, dloss, to_loss.out(), to_valid.out(), dx.out(),
                              scratch);
  for (Resident* array : {&to_loss, &to_valid, &dx}) array->fetch();
  CHECK(same_values(loss, want.loss));
  CHECK(same_values(valid, want.valid));
  CHECK(same_values(dlogits, want.dlogits));
  CHECK(dlogits.guards_intact());
}

Result run(SimDevice& device, const Array& logits, const Array& target, const Options& o = {},
           const Array* weight = nullptr) {
  const Shape& shape = logits.shape();
  const Shape batch(shape.extents().first(static_cast<std::size_t>(shape.rank() - 1)));
  const Shape loss_shape = o.params.reduction == Reduction::none ? batch : Shape{};
  const DType w = wide(logits.dtype());
  Result r{Array(w, loss_shape), Array(w, {}),
           Array(row_stats_dtype(o.params.accumulator, logits.dtype()), {batch.numel(), 2}),
           o.gradient == DType::i64 ? logits : Array(o.gradient, shape)};
  const Array dloss(w, loss_shape,
                    std::vector<double>(static_cast<std::size_t>(loss_shape.numel()), o.seed));
  SimScratch scratch(device);
  const Resident x(device, logits), t(device, target), d(device, dloss);
  const Array one(DType::fp32, {1});
  const Resident weights(device, weight == nullptr ? one : *weight);
  const ConstView view = weight == nullptr ? ConstView::absent() : ConstView(*weights);
  Resident loss(device, r.loss), valid(device, r.valid), stats(device, r.stats),
      dx(device, r.dlogits);
  cross_entropy_forward(device.target(), o.params, *x, *t, view, loss.out(), valid.out(),
                        stats.out(), scratch);
  // The gradient in place over the logits, or beside them.
  const ConstView from = o.gradient == DType::i64 ? ConstView(*dx) : ConstView(*x);
  cross_entropy_backward(device.target(), o.params, from, *t, view, *valid, *stats, *d, dx.out());
  for (Resident* array : {&loss, &valid, &stats, &dx}) array->fetch();
  for (const Array* array : {&r.loss, &r.valid, &r.stats, &r.dlogits})
    CHECK(array->guards_intact());
  check_at_once(device, r, logits, *t, view, *d, o);
  if (!o.label_errors) CHECK(device.take_errors().code == 0);
  return r;
}

void check(const Array& got, const Bound& want) {
  const Comparison c = compare(got, want);
  CHECK_MESSAGE(c.holds, describe(c));
}

void check_near(double got, double want, double tolerance) {
  CAPTURE(got);
  CAPTURE(want);
  CHECK(std::abs(got - want) <= tolerance);
}
// The same number to within a few roundings of fp32.
void check_fp32(double got, double want) {
  check_near(got, want, 8 * 0x1p-24 * std::max(std::abs(want), 1.0));
}

// Roundings of a term of a sum over classes (cross_entropy.cu, softmax's depth): up to 97 elements
// a thread in registers, or every 256th of the row (fewer in a cluster), and the tree. Rows are
// added in fp64.
std::int64_t depth(std::int64_t n) {
  if (n <= 16384) return std::min<std::int64_t>(n, 97) + 8;
  return n / 256 + 8 + 4 * (n / 512 + 8);
}

Arithmetic arithmetic(DType in, DType out) {
  return {
      .accumulator = in == DType::fp64 ? kFp64 : kFp32, .output = format_of(out), .depth = depth};
}

std::vector<double> positive(std::vector<double> v, double least) {
  for (double& x : v) x = std::abs(x) + least;
  return v;
}

}  // namespace

TEST_CASE("case 35 [LOSS] log(softmax) is not log_softmax") {
  SimDevice device;
  const Result r =
      run(device, Array(DType::fp32, {1, 3}, {0, -104, -200}), Array(DType::i64, {1}, {2}));
  CHECK(r.loss[0] == 200);
  CHECK(r.dlogits[0] == 1);
  CHECK(r.dlogits[2] == -1);
  check_near(r.dlogits[1], 0, 1e-44);
}

TEST_CASE("case 36 [LOSS] extreme logits") {
  SimDevice device;
  const Array x(DType::fp16, {1, 2}, {65504, 0});
  CHECK(run(device, x, Array(DType::i64, {1}, {1})).loss[0] == 65504);
  CHECK(run(device, x, Array(DType::i32, {1}, {0})).loss[0] == 0);
  for (const std::int64_t classes : {70000, 50257}) {
    const Array equal(DType::fp16, {1, classes},
                      std::vector<double>(static_cast<std::size_t>(classes), 3.5));
    const Result r = run(device, equal, Array(DType::i64, {1}, {17}));
    const double exact = std::log(static_cast<double>(classes));
    check_near(r.loss[0], exact,
               roundoff::gamma(static_cast<double>(depth(classes)), 0x1p-24) + 4 * 0x1p-24 * exact);
  }
  for (const std::int64_t classes : {2, 40, 2000, 9000}) {
    for (const double bad : {kInf, kNan}) {
      std::vector<double> row(static_cast<std::size_t>(classes), 0.0);
      row[0] = bad;
      const Result r = run(device, Array(DType::fp32, {1, classes}, row),
                           Array(DType::i64, {1}, {static_cast<double>(classes - 1)}));
      CHECK(std::isnan(r.loss[0]));
      bool all = true;
      for (const double g : r.dlogits.values()) all = all && std::isnan(g);
      CHECK(all);
    }
    const Result none = run(device,
                            Array(DType::fp32, {1, classes},
                                  std::vector<double>(static_cast<std::size_t>(classes), -kInf)),
                            Array(DType::i64, {1}, {0}));
    CHECK(std::isnan(none.loss[0]));
    CHECK(none.stats[0] == -kInf);
    CHECK(std::isnan(none.stats[1]));
  }
}

TEST_CASE("case 39 [LOSS] class weights: mean divides by the sum of weights") {
  SimDevice device;
  const Array x(DType::fp32, {2, 3}, {.2, .3, .5, .5, .2, .3});
  const Array y(DType::i64, {2}, {2, 1});
  const Array w(DType::fp32, {3}, {2, 4, 6});
  const Result none = run(device, x, y, {.params = {.reduction = Reduction::none}}, &w);
  check_fp32(none.loss[0], 5.63898637);
  check_fp32(none.loss[1], 4.95932424);
  check_fp32(run(device, x, y, {.params = {.reduction = Reduction::sum}}, &w).loss[0], 10.59831061);
  const Result mean = run(device, x, y, {}, &w);
  check_fp32(mean.loss[0], 1.05983106);
  CHECK(mean.valid[0] == 10);
  const Array x3(DType::fp32, {3, 3}, {.2, .3, .5, .5, .2, .3, 9, 9, -9});
  const Result ignored = run(device, x3, Array(DType::i64, {3}, {2, 1, -100}), {}, &w);
  CHECK(ignored.loss[0] == mean.loss[0]);
  CHECK(ignored.valid[0] == 10);
}

TEST_CASE("case 40 [LOSS] all targets ignored") {
  SimDevice device;
  for (const DType dtype : kFloating) {
    const Array x(dtype, {2, 3}, {1, 2, 3, kNan, kInf, 6});
    const Array y(DType::i64, {2}, {-100, -100});
    for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
      for (const double smoothing : {0.0, 0.1}) {
        const Result r =
            run(device, x, y, {.params = {.label_smoothing = smoothing, .reduction = reduction}});
        for (const double loss : r.loss.values()) CHECK(loss == 0);
        CHECK(r.valid[0] == 0);
        CHECK(r.dlogits.values() == std::vector<double>(6, 0.0));
        CHECK(r.stats.values() == std::vector<double>{0, 1, 0, 1});
      }
    }
    const Result empty = run(device, Array(dtype, {0, 3}), Array(DType::i64, {0}));
    CHECK(empty.loss[0] == 0);
    CHECK(empty.valid[0] == 0);
  }
}

TEST_CASE("case 42 [LOSS] ignore_index value and out-of-range labels") {
  const Array x(DType::fp32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Array one(DType::fp32, {1, 3}, {1, 2, 3});
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    const Array y(DType::u8, {2}, {2, 255});
    for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
      const Result r = run(device, x, y, {.params = {.ignore_index = 255, .reduction = reduction}});
      const Result alone =
          run(device, one, Array(DType::i64, {1}, {2}), {.params = {.reduction = reduction}});
      CHECK(r.loss[0] == alone.loss[0]);
      if (reduction == Reduction::none) CHECK(r.loss[1] == 0);
      for (std::int64_t i = 3; i < 6; ++i) CHECK(r.dlogits[i] == 0);
    }
    for (const double label : {-4.0, 3.0, 255.0}) {
      // The bad row counts as an ignored one, and the report says which it was.
      const Result r = run(device, x, Array(DType::i64, {2}, {2, label}), {.label_errors = true});
      CHECK(r.loss[0] ==
            run(device, one, Array(DType::i64, {1}, {2}), {.label_errors = true}).loss[0]);
      CHECK(r.valid[0] == 1);
      for (std::int64_t i = 3; i < 6; ++i) CHECK(r.dlogits[i] == 0);
      const DeviceErrors errors = device.take_errors();
      CHECK(describe(errors).find(
                concat("[cross_entropy] row 1 has label ", label, ", expected 0 to 2")) == 0);
    }
    const Array w(DType::fp32, {3}, {1, -1, 1});
    run(device, x, Array(DType::i64, {2}, {0, 2}), {.label_errors = true}, &w);
    CHECK(describe(device.take_errors()) ==
          "[cross_entropy] weight of class 1 is -1, expected a finite value >= 0");
  }
}

TEST_CASE("case 43 [LOSS] ignore_index inside the class range") {
  SimDevice device;
  const Array x(DType::fp32, {2, 3}, std::vector<double>(6, 1));
  const Result r = run(device, x, Array(DType::i64, {2}, {1, 2}), {.params = {.ignore_index = 0}});
  check_fp32(r.loss[0], 1.0986122887);
  const double want[] = {1. / 6, -1. / 3, 1. / 6, 1. / 6, 1. / 6, -1. / 3};
  for (std::int64_t i = 0; i < 6; ++i) check_fp32(r.dlogits[i], want[i]);
}

TEST_CASE("case 44 [LOSS] label smoothing formula") {
  SimDevice device;
  const Array x(DType::fp64, {1, 3}, {2, 1, 0});
  const Array y(DType::i64, {1}, {0});
  const Result r = run(device, x, y, {.params = {.label_smoothing = 0.1}});
  check_near(r.loss[0], 0.5076059644, 1e-10);
  check_near(r.dlogits[0], -0.2680923776, 1e-10);
  check_near(r.dlogits[1], 0.2113951377, 1e-10);
  check_near(r.dlogits[2], 0.0566972398, 1e-10);
  for (const double e : {0.0, 0.1, 0.5, 1.0})
    check_near(
        run(device, Array(DType::fp64, {1, 3}, {7, 7, 7}), y, {.params = {.label_smoothing = e}})
            .loss[0],
        std::log(3.0), 8 * 0x1p-53);
}

TEST_CASE("case 47 [LOSS] soft targets divide by N, not by weights") {
  SimDevice device;
  const Array x(DType::fp64, {2, 3}, {2, 1, 0, 0, 3, 1});
  const Array w(DType::fp64, {3}, {1, 2, 5});
  const Array q(DType::fp64, {2, 3}, {.7, .2, .1, .1, .1, .8});
  const Result soft = run(device, x, q, {}, &w);
  check_near(soft.loss[0], 5.5412537136, 1e-10);
  CHECK(soft.valid[0] == 2);
}

TEST_CASE("case 48 [LOSS] mean over many positions in fp16") {
  SimDevice device;
  const std::int64_t rows = 70000;
  const Array x(DType::fp16, {rows, 2}, std::vector<double>(140000, 2));
  const Array y(DType::i64, {rows}, std::vector<double>(70000, 1));
  const Result mean = run(device, x, y, {.seed = 65536});
  check_fp32(mean.loss[0], 0.6931471806);
  CHECK(mean.valid[0] == 70000);
  const double scaled = 0.5 / 70000 * 65536;
  for (const std::int64_t i : {0, 1, 139998, 139999})
    check_near(mean.dlogits[i], i % 2 == 0 ? scaled : -scaled,
               test::rounded_tolerance(scaled, 4 * 0x1p-24 * scaled, DType::fp16));
}

TEST_CASE("cross-entropy and its gradient within the computed bounds, every option") {
  struct Case {
    std::int64_t rows, classes;
    std::uint64_t schedules = 1;
  };
  const Case cases[] = {{5, 1},   {7, 2},       {9, 10, 4}, {7, 31},      {7, 32},    {7, 33},
                        {3, 255}, {3, 1000, 2}, {2, 5000},  {2, 9001, 2}, {1, 200000}};
  for (const Case& c : cases) {
    const std::int64_t size = c.rows * c.classes;
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < c.rows; ++i)
      labels.push_back(i == 3 ? -100 : (5 * i + 1) % c.classes);
    const std::vector<double> label_values(labels.begin(), labels.end());
    for (std::uint64_t k = 0; k < c.schedules; ++k) {
      SimDevice device(k);
      int combination = 0;
      for (const DType dtype : kFloating) {
        if (size > 10000 && dtype != DType::bf16 && dtype != DType::fp32) continue;
        const Array x(dtype, {c.rows, c.classes}, Uniform(11).take(size, 9), k == 0 ? 1 : 0);
        const Array q(dtype, {c.rows, c.classes}, positive(Uniform(12).take(size), 0));
        const Array w(dtype, {c.classes}, positive(Uniform(13).take(c.classes), 0.25));
        const std::vector<double> xs = x.values(), ws = w.values(), qs = q.values();
        for (const bool soft : {false, true}) {
          for (const bool weighted : {false, true}) {
            for (const double smoothing : {0.0, 0.1}) {
              for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
                // Long rows and later schedules: every fifth combination.
                if ((c.classes > 256 || k > 0) && ++combination % 5 != 0) continue;
                CAPTURE(c.classes);
                CAPTURE(name(dtype));
                CAPTURE(soft);
                CAPTURE(weighted);
                CAPTURE(smoothing);
                CAPTURE(name(reduction));
                const DType label_dtype = combination % 2 == 0 ? DType::i32 : DType::i64;
                const Array y(label_dtype, {c.rows}, label_values);
                const Options o{.params = {.label_smoothing = smoothing, .reduction = reduction},
                                .seed = 3};
                const Result r = run(device, x, soft ? q : y, o, weighted ? &w : nullptr);
                const oracle::CrossEntropyParams p{
                    .rows = c.rows,
                    .classes = c.classes,
                    .label_smoothing = smoothing,
                    .reduction = static_cast<oracle::Reduction>(reduction)};
                const oracle::In weights = weighted ? oracle::In(ws) : oracle::In();
                const std::vector<double> dloss(static_cast<std::size_t>(r.loss.size()), 3);
                const Arithmetic a = arithmetic(dtype, wide(dtype));
                const Arithmetic g = arithmetic(dtype, dtype);
                if (soft) {
                  check(r.loss, bound::cross_entropy_soft(p, xs, qs, weights, a));
                  check(r.dlogits,
                        bound::cross_entropy_soft_backward(p, xs, qs, weights, dloss, g));
                } else {
                  check(r.loss, bound::cross_entropy(p, xs, labels, weights, a));
                  check(r.valid, bound::cross_entropy_valid_weight(p, labels, weights, a));
                  check(r.dlogits, bound::cross_entropy_backward(p, xs, labels, weights, dloss, g));
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("other types of gradient, an fp64 accumulator, gradients that are added to") {
  SimDevice device;
  const Array x(DType::fp16, {3, 40}, Uniform(21).take(120, 9));
  const Array y(DType::i64, {3}, {0, 39, 7});
  const Result half = run(device, x, y, {.seed = 3});
  const Result single = run(device, x, y, {.seed = 3, .gradient = DType::fp32});
  // fp16 is fp32 rounded once.
  CHECK(half.dlogits.values() == Array(DType::fp16, {3, 40}, single.dlogits.values()).values());
  CHECK(half.loss.values() == single.loss.values());
  const Options fp64{.params = {.accumulator = Accumulator::fp64}, .gradient = DType::fp64};
  const Result r = run(device, x, y, fp64);
  const std::vector<std::int64_t> labels{0, 39, 7};
  const oracle::CrossEntropyParams p{.rows = 3, .classes = 40};
  const std::vector<double> one{1};
  check(r.dlogits, bound::cross_entropy_backward(p, x.values(), labels, {}, one,
                                                 {.accumulator = kFp64, .output = kFp64}));
  Array added(DType::fp32, {3, 40}, std::vector<double>(120, 0.0));
  const Resident logits(device, x), t(device, y), valid(device, single.valid),
      stats(device, single.stats), seed(device, Array(DType::fp32, {}, {3}));
  Resident to(device, added);
  for (int i = 0; i < 2; ++i)
    cross_entropy_backward(device.target(), {}, *logits, *t, ConstView::absent(), *valid, *stats,
                           *seed, to.out(Write::accumulate));
  to.fetch();
  for (std::int64_t i = 0; i < 120; ++i) REQUIRE(added[i] == 2 * single.dlogits[i]);
}

TEST_CASE("rows that a cluster holds on sm_90, and a block reads twice elsewhere") {
  struct Case {
    std::int64_t rows, classes;
    DType dtype;
  };
  for (const Case& c : {Case{3, 16392, DType::bf16},
                        {2, 33001, DType::fp32},
                        {1, 70000, DType::fp16},
                        {1, 131072, DType::bf16}}) {
    const std::int64_t size = c.rows * c.classes;
    const Array x(c.dtype, {c.rows, c.classes}, Uniform(21).take(size, 9), c.rows % 2);
    const Array w(DType::fp32, {c.classes}, positive(Uniform(22).take(c.classes), 0.25));
    const std::vector<std::int64_t> labels{c.classes - 1, 0, -100};
    const std::vector<double> label_values(labels.begin(), labels.begin() + c.rows);
    const Array y(DType::i64, {c.rows}, label_values);
    for (const auto architecture : {simt::SimArchitecture::sm_90a, simt::SimArchitecture::sm_80}) {
      CAPTURE(c.classes);
      SimDevice device(3);
      device.emulator().config.architecture = architecture;
      const Options o{.params = {.reduction = Reduction::mean}, .seed = 3};
      const Result r = run(device, x, y, o, &w);
      const oracle::CrossEntropyParams p{
          .rows = c.rows, .classes = c.classes, .reduction = oracle::Reduction::mean};
      const std::vector<double> xs = x.values(), ws = w.values(), dloss{3};
      const std::vector<std::int64_t> own(labels.begin(), labels.begin() + c.rows);
      check(r.loss, bound::cross_entropy(p, xs, own, ws, arithmetic(c.dtype, DType::fp32)));
      check(r.dlogits,
            bound::cross_entropy_backward(p, xs, own, ws, dloss, arithmetic(c.dtype, c.dtype)));
    }
  }
}

TEST_CASE("a row has the same loss and gradient wherever it stands in a batch") {
  SimDevice device;
  for (const std::int64_t classes : {3, 19, 257, 1001, 9001, 20001}) {
    const std::int64_t rows = 3;
    const std::vector<double> values = Uniform(33).take(rows * classes, 9);
    const Options o{.params = {.label_smoothing = 0.1, .reduction = Reduction::none}};
    const Result whole = run(device, Array(DType::bf16, {rows, classes}, values),
                             Array(DType::i64, {rows}, {2, 1, 0}), o);
    const std::vector<double> dx = whole.dlogits.values();
    for (std::int64_t r = 0; r < rows; ++r) {
      CAPTURE(classes);
      CAPTURE(r);
      const auto part = [&](const std::vector<double>& v) {
        return std::vector<double>(v.begin() + r * classes, v.begin() + (r + 1) * classes);
      };
      const Result alone = run(device, Array(DType::bf16, {1, classes}, part(values)),
                               Array(DType::i64, {1}, {static_cast<double>(2 - r)}), o);
      CHECK(alone.loss[0] == whole.loss[r]);
      CHECK(alone.dlogits.values() == part(dx));
    }
  }
}

TEST_CASE("the same loss and gradient under every schedule") {
  const Array x(DType::bf16, {300, 37}, Uniform(31).take(300 * 37, 9));
  const Array y(DType::i64, {300}, std::vector<double>(300, 5));
  SimDevice first(0);
  const Result want = run(first, x, y);
  for (std::uint64_t k = 1; k < 2 * kSchedules; ++k) {
    SimDevice device(k);
    const Result got = run(device, x, y);
    CHECK(got.loss.values() == want.loss.values());
    CHECK(got.dlogits.values() == want.dlogits.values());
  }
}

TEST_CASE("cross-entropy refuses what does not fit, before a launch; unwanted outputs stay") {
  SimDevice device;
  SimScratch scratch(device);
  Array x(DType::fp32, {2, 3}, std::vector<double>(6, 0)), y(DType::i64, {2}, {0, 1}),
      three(DType::i64, {3}, {0, 0, 0}), w(DType::fp32, {2}, {1, 1}), out(DType::fp32, {});
  const Resident logits(device, x), labels(device, y), bad(device, three), weight(device, w);
  Resident loss(device, out);
  const ConstView none = ConstView::absent();
  const auto forward = [&](const ConstView& t, const ConstView& weights,
                           const CrossEntropyParams& params, const Out& to) {
    cross_entropy_forward(device.target(), params, *logits, t, weights, to, Out(), Out(), scratch);
  };
  CHECK_THROWS_WITH_AS(forward(*bad, none, {}, loss.out()),
                       "[cross_entropy] labels have shape [3], logits [2, 3] expect [2]", Error);
  CHECK_THROWS_WITH_AS(forward(*labels, none, {.label_smoothing = 1.5}, loss.out()),
                       "[cross_entropy] label smoothing is 1.5, expected a value in [0, 1]", Error);
  CHECK_THROWS_WITH_AS(forward(*labels, *weight, {}, loss.out()),
                       "[cross_entropy] class weights have shape [2], 3 classes expected", Error);
  CHECK(device.emulator().counters().launches == 0);
  CHECK_THROWS_WITH_AS(cross_entropy_with_gradient(device.target(), {}, *logits, *labels, none,
                                                   *weight, Out(), Out(), Out(), scratch),
                       "[cross_entropy] dloss has shape [2], expected []", Error);
  CHECK(device.emulator().counters().launches == 0);
  forward(*labels, none, {}, loss.out());
  loss.fetch();
  check_fp32(out[0], std::log(3.0));
}

TEST_CASE("loss and gradient at once: what is not wanted is left out; many rows; no rows") {
  SimDevice device;
  SimScratch scratch(device);
  const std::int64_t rows = 20000;
  const Array x(DType::fp32, {rows, 3}, Uniform(41).take(3 * rows, 4));
  std::vector<double> labels;
  for (std::int64_t i = 0; i < rows; ++i)
    labels.push_back(i % 7 == 6 ? -100.0 : static_cast<double>(i % 3));
  // Sums of several stages; every check of run() compares with the two calls.
  const Result r = run(device, x, Array(DType::i64, {rows}, labels));
  CHECK(r.valid[0] == static_cast<double>(rows - rows / 7));
  const Array y(DType::i64, {rows}, labels), seed(DType::fp32, {}, {1.0});
  const Resident rx(device, x), ry(device, y), rs(device, seed);
  Array loss(DType::fp32, {}), dx(DType::fp32, {rows, 3});
  Resident to_loss(device, loss), to_dx(device, dx);
  const ConstView none = ConstView::absent();
  cross_entropy_with_gradient(device.target(), {}, *rx, *ry, none, *rs, Out(), Out(), to_dx.out(),
                              scratch);
  cross_entropy_with_gradient(device.target(), {}, *rx, *ry, none, *rs, to_loss.out(), Out(), Out(),
                              scratch);
  to_loss.fetch();
  to_dx.fetch();
  CHECK(loss[0] == r.loss[0]);
  CHECK(same_values(dx, r.dlogits));
  // The reference: its own bits, from one call.
  Scratch host;
  Array ref_loss(DType::fp32, {}), ref_stats(DType::fp32, {rows, 2}), ref_valid(DType::fp32, {}),
      at_once = x, apart(DType::fp32, {rows, 3});
  cross_entropy_forward(Ref{}, {}, *x, *y, none, ref_loss.out(), ref_valid.out(), ref_stats.out());
  cross_entropy_backward(Ref{}, {}, *x, *y, none, *ref_valid, *ref_stats, *seed, apart.out());
  Array loss_at_once(DType::fp32, {});
  cross_entropy_with_gradient(Ref{}, {}, *at_once, *y, none, *seed, loss_at_once.out(), Out(),
                              at_once.out(), host);
  CHECK(loss_at_once[0] == ref_loss[0]);
  CHECK(same_values(at_once, apart));
  const Result nothing = run(device, Array(DType::fp32, {0, 3}), Array(DType::i64, Shape{0}));
  CHECK(nothing.loss[0] == 0);
}
