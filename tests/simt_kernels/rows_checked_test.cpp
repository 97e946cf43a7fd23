// The kernels of rows and channels under the sanitizer: silent under many schedules, and the same
// bits under each.
#include <doctest/doctest.h>

#include <vector>

#include "kernels/loss/cross_entropy.h"
#include "kernels/loss/pointwise.h"
#include "kernels/norm/batch_norm.h"
#include "kernels/norm/layer_norm.h"
#include "kernels/softmax/softmax.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr std::uint64_t kManySchedules = 16;
using Values = std::vector<double>;

// Everything that a schedule computed, in order.
struct Results {
  Values all;
  void add(Resident& resident, const Array& array) {
    resident.fetch();
    CHECK(array.guards_intact());
    for (const double v : array.values()) all.push_back(v);
  }
};

bool same(const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i] && !(a[i] != a[i] && b[i] != b[i])) return false;
  return true;
}

// The results of f(device, results) are those of the first schedule.
template <class F>
void under_schedules(F f) {
  Values first;
  for (std::uint64_t k = 0; k < kManySchedules; ++k) {
    CAPTURE(k);
    SimDevice device(k);
    Results results;
    f(device, results);
    CHECK(!results.all.empty());
    if (k == 0) first = results.all;
    CHECK(same(results.all, first));
  }
}

Array filled(DType dtype, const Shape& shape, std::uint64_t seed, double scale = 4) {
  return Array(dtype, shape, Uniform(seed).take(shape.numel(), scale));
}

}  // namespace

TEST_CASE("softmax: every width of row, long rows, other axes, mixed types") {
  struct Case {
    Shape shape;
    int axis;
    DType dtype, gradient;
  };
  const Case cases[] = {
      {{9, 3}, 1, DType::fp32, DType::fp32},    {{9, 100}, 1, DType::bf16, DType::bf16},
      {{5, 99}, 1, DType::fp64, DType::fp64},   {{5, 600}, 1, DType::fp16, DType::fp16},
      {{2, 2001}, 1, DType::fp32, DType::fp32}, {{1, 4104}, 1, DType::bf16, DType::bf16},
      {{2, 8193}, 1, DType::fp16, DType::fp16}, {{9, 2100}, 1, DType::fp16, DType::fp16},
      {{3, 4200}, 1, DType::bf16, DType::bf16}, {{3, 11, 5}, 1, DType::bf16, DType::bf16},
      {{3, 70}, 1, DType::fp16, DType::fp32}};
  under_schedules([&](SimDevice& device, Results& results) {
    for (const Case& c : cases) {
      const Array x = filled(c.dtype, c.shape, 1), dy = filled(c.gradient, c.shape, 2);
      Array y(c.dtype, c.shape), dx(c.dtype, c.shape);
      SimScratch scratch(device);
      const Resident rx(device, x), rdy(device, dy);
      Resident ry(device, y), rdx(device, dx);
      const SoftmaxParams params{.axis = c.axis};
      softmax_forward(device.target(), params, *rx, ry.out(), scratch);
      softmax_backward(device.target(), params, *ry, *rdy, rdx.out());
      results.add(rdx, dx);
      log_softmax_forward(device.target(), params, *rx, ry.out());
      results.add(ry, y);
    }
  });
}

TEST_CASE("rows of clusters: softmax, losses and norms over shared memory of other blocks") {
  under_schedules([&](SimDevice& device, Results& results) {
    SimScratch scratch(device);
    const ConstView none = ConstView::absent();
    const auto target = device.target();
    {
      // Just beyond what a block holds: a cluster of two.
      const Shape shape{1, 16392};
      Array x = filled(DType::bf16, shape, 1), y(DType::bf16, shape), loss(DType::fp32, {});
      const Array labels(DType::i64, {1}, {16391}), seed(DType::fp32, {}, {2.0});
      Resident rx(device, x), ry(device, y), rl(device, loss);
      const Resident rt(device, labels), rs(device, seed);
      softmax_forward(target, {}, *rx, ry.out(), scratch);
      results.add(ry, y);
      layer_norm_forward(target, {}, *rx, none, none, ry.out(), {}, {}, scratch);
      results.add(ry, y);
      cross_entropy_with_gradient(target, {}, *rx, *rt, none, *rs, rl.out(), {}, rx.out(), scratch);
      results.add(rl, loss);
      results.add(rx, x);
    }
    const Shape shape{2, 8200};
    const Array x = filled(DType::bf16, shape, 3), dy = filled(DType::bf16, shape, 2),
                mean(DType::fp32, {2}, {0.1, 0}), rstd(DType::fp32, {2}, {1, 0.5});
    Array dx(DType::bf16, shape), dgamma(DType::fp32, {8200});
    const Resident rx(device, x), rdy(device, dy), rm(device, mean), rr(device, rstd);
    Resident rdx(device, dx), rg(device, dgamma);
    softmax_backward(target, {}, *rx, *rdy, rdx.out());
    results.add(rdx, dx);
    layer_norm_backward(target, {}, *rx, none, *rm, *rr, *rdy, rdx.out(), rg.out(), {}, scratch);
    results.add(rdx, dx);
    results.add(rg, dgamma);
    CHECK(device.take_errors().code == 0);
  });
}

TEST_CASE("losses: labels and probabilities, in place, sums of many rows") {
  struct Case {
    std::int64_t rows, classes;
    DType dtype;
    bool soft;
    double smoothing;
  };
  const Case cases[] = {{300, 10, DType::fp32, false, 0},  {9, 40, DType::bf16, true, 0.1},
                        {3, 700, DType::fp16, false, 0.1}, {1, 3000, DType::fp32, true, 0},
                        {2, 8200, DType::bf16, false, 0},  {2, 30, DType::fp64, false, 0.1}};
  under_schedules([&](SimDevice& device, Results& results) {
    for (const Case& c : cases) {
      const Shape shape{c.rows, c.classes};
      Array x = filled(c.dtype, shape, 3);
      const Array q = filled(DType::fp32, shape, 4, 1),
                  w(DType::bf16, {c.classes}, ones(c.classes));
      // One label in five is out of range: it is reported, and never used as an index.
      Values labels;
      for (std::int64_t i = 0; i < c.rows; ++i)
        labels.push_back(i % 5 == 4 ? 1e6 : static_cast<double>(i % c.classes));
      const Array y(DType::i32, {c.rows}, labels);
      const DType wide = c.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
      Array loss(wide, {}), valid(wide, {}), stats(wide, {c.rows, 2});
      const Array seed(wide, {}, {2.0});
      SimScratch scratch(device);
      Resident rx(device, x), rl(device, loss), rv(device, valid), rs(device, stats);
      const Resident rt(device, c.soft ? q : y), rw(device, w), rg(device, seed);
      const CrossEntropyParams params{.label_smoothing = c.smoothing};
      cross_entropy_forward(device.target(), params, *rx, *rt, *rw, rl.out(), rv.out(), rs.out(),
                            scratch);
      Array at_once = x;
      Resident ra(device, at_once);
      cross_entropy_with_gradient(device.target(), params, *ra, *rt, *rw, *rg, rl.out(), rv.out(),
                                  ra.out(), scratch);
      results.add(ra, at_once);
      cross_entropy_backward(device.target(), params, *rx, *rt, *rw, *rv, *rs, *rg, rx.out());
      results.add(rl, loss);
      results.add(rx, x);
      CHECK((device.take_errors().code != 0) == (!c.soft && c.rows >= 5));
    }
    const Array x = filled(DType::fp32, {9001}, 5), t = filled(DType::fp32, {9001}, 6, 1);
    Array loss(DType::fp32, {}), dx(DType::fp32, {9001});
    const Array seed(DType::fp32, {}, {1.0});
    SimScratch scratch(device);
    const Resident rx(device, x), rt(device, t), rg(device, seed);
    Resident rl(device, loss), rdx(device, dx);
    for (const PointwiseLoss which : {PointwiseLoss::mse, PointwiseLoss::bce_with_logits}) {
      const PointwiseLossParams params{.loss = which};
      pointwise_loss_forward(device.target(), params, *rx, *rt, rl.out(), scratch);
      pointwise_loss_backward(device.target(), params, *rx, *rt, *rg, rdx.out(), {});
      results.add(rl, loss);
      results.add(rdx, dx);
    }
  });
}

TEST_CASE("norms: rows and channels, statistics that are formed again in fp64") {
  struct Case {
    Shape shape;
    DType dtype;
  };
  const Case cases[] = {{{40, 16}, DType::bf16},  {{7, 33}, DType::fp32},
                        {{5, 700}, DType::fp16},  {{2, 3001}, DType::fp32},
                        {{2, 8200}, DType::bf16}, {{6, 20}, DType::fp64},
                        {{300, 24}, DType::bf16}, {{3, 5, 70}, DType::fp32},
                        {{40, 600}, DType::bf16}, {{3, 5, 64}, DType::fp16}};
  under_schedules([&](SimDevice& device, Results& results) {
    for (const Case& c : cases) {
      for (const double scale : {3.0, 1e20}) {
        if (scale > 10 && c.dtype != DType::fp32) continue;
        const Shape& shape = c.shape;
        const std::int64_t width = shape[-1], rows = shape.numel() / width;
        const DType stats = c.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
        const Array x = filled(c.dtype, shape, 7, scale), dy = filled(c.dtype, shape, 8);
        const Array gamma = filled(DType::bf16, {width}, 9),
                    beta = filled(DType::fp32, {width}, 10);
        Array y(c.dtype, shape), mean(stats, {rows}), rstd(stats, {rows}), dx(c.dtype, shape),
            dgamma(stats, {width}), dbeta(stats, {width});
        SimScratch scratch(device);
        const Resident rx(device, x), rdy(device, dy), rg(device, gamma), rb(device, beta);
        Resident ry(device, y), rm(device, mean), rr(device, rstd), rdx(device, dx),
            rdg(device, dgamma), rdb(device, dbeta);
        layer_norm_forward(device.target(), {}, *rx, *rg, *rb, ry.out(), rm.out(), rr.out(),
                           scratch);
        layer_norm_backward(device.target(), {}, *rx, *rg, *rm, *rr, *rdy, rdx.out(), rdg.out(),
                            rdb.out(), scratch);
        results.add(ry, y);
        results.add(rdx, dx);
        results.add(rdg, dgamma);
        if (width > 3001) continue;
        // Channels last, or in the middle.
        const int axis = shape.rank() - 1 - (shape.rank() == 3 ? 1 : 0);
        const std::int64_t channels = shape[axis];
        Array cm(stats, {channels}), cr(stats, {channels}), cg(stats, {channels}),
            next(stats, {channels});
        const Array running(stats, {channels}, ones(channels));
        const ConstView none = ConstView::absent();
        const Resident rrun(device, running);
        Resident rcm(device, cm), rcr(device, cr), rcg(device, cg), rn(device, next);
        const BatchNormParams params{.axis = axis};
        batch_norm_forward_training(device.target(), params, *rx, none, none, *rrun, *rrun,
                                    ry.out(), rcm.out(), rcr.out(), rn.out(), {}, scratch);
        results.add(ry, y);
        results.add(rn, next);
        batch_norm_backward_training(device.target(), params, *rx, none, *rcm, *rcr, *rdy,
                                     rdx.out(), rcg.out(), {}, scratch);
        results.add(rdx, dx);
        results.add(rcg, cg);
        batch_norm_forward_eval(device.target(), params, *rx, none, none, *rrun, *rrun, ry.out(),
                                scratch);
        results.add(ry, y);
      }
    }
  });
}
