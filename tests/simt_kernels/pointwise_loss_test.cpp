#include "kernels/loss/pointwise.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/bound/loss.h"
#include "verify/compare.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void check(const Array& got, const Bound& want) {
  const Comparison c = compare(got, want);
  CHECK_MESSAGE(c.holds, describe(c));
}

struct Pointwise {
  Array loss, dx, dtarget;
};
Pointwise run(SimDevice& device, const Array& x, const Array& t, const PointwiseLossParams& params,
              double seed = 1) {
  const DType w = widest(widest(x.dtype(), t.dtype()), DType::fp32);
  const Shape shape = params.reduction == Reduction::none ? x.shape() : Shape{};
  Pointwise r{Array(w, shape, 1), Array(x.dtype(), x.shape()), Array(t.dtype(), x.shape())};
  const Array dloss(w, shape, std::vector<double>(static_cast<std::size_t>(shape.numel()), seed));
  SimScratch scratch(device);
  const Resident xs(device, x), ts(device, t), d(device, dloss);
  Resident loss(device, r.loss), dx(device, r.dx), dt(device, r.dtarget);
  pointwise_loss_forward(device.target(), params, *xs, *ts, loss.out(), scratch);
  pointwise_loss_backward(device.target(), params, *xs, *ts, *d, dx.out(), dt.out());
  for (Resident* array : {&loss, &dx, &dt}) array->fetch();
  for (const Array* array : {&r.loss, &r.dx, &r.dtarget}) CHECK(array->guards_intact());
  return r;
}

}  // namespace

TEST_CASE("case 50 [LOSS] MSE and BCE ranges") {
  SimDevice device;
  const PointwiseLossParams mse{.loss = PointwiseLoss::mse};
  const Pointwise r =
      run(device, Array(DType::fp16, {1}, {300}), Array(DType::fp16, {1}, {0}), mse);
  CHECK(r.loss[0] == 90000);
  CHECK(r.dx[0] == 600);
  CHECK(r.dtarget[0] == -600);
  const PointwiseLossParams bce{.loss = PointwiseLoss::bce_with_logits,
                                .reduction = Reduction::none};
  for (const DType dtype : kFloating) {
    const Pointwise b = run(device, Array(dtype, {2}, {100, -100}), Array(dtype, {2}, {0, 1}), bce);
    CHECK(b.loss.values() == std::vector<double>{100, 100});
    CHECK(b.dx.values() == std::vector<double>{1, -1});
    const Pointwise c = run(device, Array(dtype, {2}, {100, -100}), Array(dtype, {2}, {1, 0}), bce);
    CHECK(c.loss[0] == c.loss[1]);
    CHECK(c.loss[0] > 0);
    const Pointwise d = run(device, Array(dtype, {4}, {kInf, -kInf, kInf, -kInf}),
                            Array(dtype, {4}, {1, 0, 0, 1}), bce);
    CHECK(d.loss.values() == std::vector<double>{0, 0, kInf, kInf});
  }
  // The mean of squares fits though a square and the sum do not.
  std::vector<double> v(1000, 0.0);
  v[17] = 1e20;
  const Array big(DType::fp32, {1000}, v);
  const Array zero(DType::fp32, {1000}, std::vector<double>(1000, 0.0));
  const double mean = run(device, big, zero, mse).loss[0];
  CHECK(std::abs(mean - 1e37) <= 1e37 * 4 * 0x1p-24);
}

TEST_CASE("mse and bce_with_logits within the computed bounds") {
  for (const PointwiseLoss which : {PointwiseLoss::mse, PointwiseLoss::bce_with_logits}) {
    const bool is_mse = which == PointwiseLoss::mse;
    for (const std::int64_t n : {1, 2, 3, 31, 257, 8193, 20000}) {
      SimDevice device(static_cast<std::uint64_t>(n) % 5);
      for (const DType dtype : kFloating) {
        for (const DType other : {dtype, DType::fp32}) {
          if (other != dtype && n != 257) continue;
          const Array x(dtype, {n}, Uniform(61).take(n, is_mse ? 3 : 12), n % 2);
          std::vector<double> targets = Uniform(62).take(n);
          if (!is_mse)
            for (std::size_t i = 0; i < targets.size(); ++i)
              targets[i] = i % 3 == 0 ? 1 : (i % 3 == 1 ? 0 : std::abs(targets[i]));
          const Array t(other, {n}, targets, n % 2);
          const std::vector<double> xs = x.values(), ts = t.values();
          // Sums are formed in fp64, far inside one rounding of fp32.
          const DType wide = widest(dtype, DType::fp32);
          Arithmetic a{.accumulator = format_of(wide), .output = format_of(wide)};
          a.depth = [wide](std::int64_t terms) { return wide == DType::fp64 ? terms : 1; };
          for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
            CAPTURE(name(which));
            CAPTURE(n);
            CAPTURE(name(dtype));
            CAPTURE(name(reduction));
            const auto o = static_cast<oracle::Reduction>(reduction);
            const Pointwise got = run(device, x, t, {.loss = which, .reduction = reduction}, 3);
            const std::vector<double> dloss(static_cast<std::size_t>(got.loss.size()), 3);
            Arithmetic g = a;
            g.output = format_of(dtype);
            check(got.loss,
                  is_mse ? bound::mse(o, xs, ts, a) : bound::bce_with_logits(o, xs, ts, a));
            check(got.dx, is_mse ? bound::mse_backward(o, xs, ts, dloss, g)
                                 : bound::bce_with_logits_backward(o, xs, ts, dloss, g));
            g.output = format_of(other);
            if (!is_mse)
              check(got.dtarget, bound::bce_with_logits_backward_target(o, xs, dloss, g));
            else if (other == dtype)
              for (std::int64_t i = 0; i < n; ++i)
                if (got.dtarget[i] != -got.dx[i]) REQUIRE(got.dtarget[i] == -got.dx[i]);
          }
        }
      }
    }
  }
}

TEST_CASE("losses of nothing are 0; shapes that differ are refused") {
  SimDevice device;
  for (const PointwiseLoss which : {PointwiseLoss::mse, PointwiseLoss::bce_with_logits}) {
    for (const Reduction reduction : {Reduction::none, Reduction::sum, Reduction::mean}) {
      const Pointwise r = run(device, Array(DType::fp32, {0}), Array(DType::fp32, {0}),
                              {.loss = which, .reduction = reduction});
      if (reduction != Reduction::none) CHECK(r.loss[0] == 0);
    }
    SimScratch scratch(device);
    const Resident two(device, Array(DType::fp32, {2}, {1, 2})),
        column(device, Array(DType::fp32, {2, 1}, {1, 2}));
    Array out(DType::fp32, {});
    Resident loss(device, out);
    CHECK_THROWS_WITH_AS(pointwise_loss_forward(device.target(), {.loss = which}, *two, *column,
                                                loss.out(), scratch),
                         concat("[", name(which), "] x has shape [2], target [2, 1]").c_str(),
                         Error);
  }
}
