#include "kernels/norm/batch_norm.h"

#include "tests/simt_kernels/norm_support.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// A layer with its buffers on the host; every call goes to the device and back.
struct Layer {
  SimDevice& device;
  BatchNormParams params;
  std::int64_t channels;
  DType stats;
  Array running_mean, running_var, mean, rstd;

  Layer(SimDevice& d, std::int64_t c, const BatchNormParams& p, DType s = DType::fp32)
      : device(d),
        params(p),
        channels(c),
        stats(s),
        running_mean(s, {c}, Values(static_cast<std::size_t>(c), 0.0)),
        running_var(s, {c}, Values(static_cast<std::size_t>(c), 1.0)),
        mean(s, {c}),
        rstd(s, {c}) {}

  Array train(const Array& x, DType output, const Array* gamma = nullptr,
              const Array* beta = nullptr) {
    Array y(output, x.shape()), next_mean(stats, {channels}), next_var(stats, {channels});
    const Array none(DType::fp32, {1});
    SimScratch scratch(device);
    const Resident xs(device, x), g(device, gamma == nullptr ? none : *gamma),
        b(device, beta == nullptr ? none : *beta), rm(device, running_mean),
        rv(device, running_var);
    Resident to(device, y), m(device, mean), r(device, rstd), nm(device, next_mean),
        nv(device, next_var);
    batch_norm_forward_training(device.target(), params, *xs,
                                gamma == nullptr ? ConstView::absent() : ConstView(*g),
                                beta == nullptr ? ConstView::absent() : ConstView(*b), *rm, *rv,
                                to.out(), m.out(), r.out(), nm.out(), nv.out(), scratch);
    for (Resident* array : {&to, &m, &r, &nm, &nv}) array->fetch();
    for (const Array* array : {&y, &mean, &rstd, &next_mean, &next_var})
      CHECK(array->guards_intact());
    running_mean = next_mean;
    running_var = next_var;
    return y;
  }

  struct Gradients {
    Array dx, dgamma, dbeta;
  };
  // From the batch's statistics, or from the running ones.
  Gradients gradients(bool training, const Array& x, const Array& dy,
                      const Array* gamma = nullptr) {
    Gradients g{Array(x.dtype(), x.shape()), Array(stats, {channels}), Array(stats, {channels})};
    const Array none(DType::fp32, {1});
    SimScratch scratch(device);
    const Resident xs(device, x), dys(device, dy), scale(device, gamma == nullptr ? none : *gamma),
        m(device, training ? mean : running_mean), r(device, training ? rstd : running_var);
    const ConstView gv = gamma == nullptr ? ConstView::absent() : ConstView(*scale);
    Resident dx(device, g.dx), dgamma(device, g.dgamma), dbeta(device, g.dbeta);
    const auto run = training ? batch_norm_backward_training<Sim> : batch_norm_backward_eval<Sim>;
    run(device.target(), params, *xs, gv, *m, *r, *dys, dx.out(), dgamma.out(), dbeta.out(),
        scratch);
    for (Resident* array : {&dx, &dgamma, &dbeta}) array->fetch();
    for (const Array* array : {&g.dx, &g.dgamma, &g.dbeta}) CHECK(array->guards_intact());
    return g;
  }

  Array eval(const Array& x, DType output, const Array* gamma = nullptr,
             const Array* beta = nullptr) {
    Array y(output, x.shape());
    const Array none(DType::fp32, {1});
    SimScratch scratch(device);
    const Resident xs(device, x), g(device, gamma == nullptr ? none : *gamma),
        b(device, beta == nullptr ? none : *beta), rm(device, running_mean),
        rv(device, running_var);
    Resident to(device, y);
    batch_norm_forward_eval(
        device.target(), params, *xs, gamma == nullptr ? ConstView::absent() : ConstView(*g),
        beta == nullptr ? ConstView::absent() : ConstView(*b), *rm, *rv, to.out(), scratch);
    to.fetch();
    CHECK(y.guards_intact());
    return y;
  }
};

bool near(double got, double want) { return std::abs(got - want) <= 1e-6 * std::abs(want); }

}  // namespace

TEST_CASE("case 56 [NORM] biased for output, unbiased for running_var") {
  SimDevice device;
  Values v, last;
  for (int n = 0; n < 4; ++n)
    for (int c = 0; c < 3; ++c)
      for (int l = 0; l < 4; ++l) v.push_back(1 + n + 4 * c + l);
  for (int n = 0; n < 4; ++n)
    for (int l = 0; l < 4; ++l)
      for (int c = 0; c < 3; ++c) last.push_back(1 + n + 4 * c + l);
  Layer first(device, 3, {.axis = 1}), second(device, 3, {});
  const Array y = first.train(Array(DType::fp32, {4, 3, 4}, v), DType::fp32);
  const Array z = second.train(Array(DType::fp32, {4, 4, 3}, last), DType::fp32);
  const double want[] = {-1.8973628, -1.2649086, -0.6324543, 0};
  for (std::int64_t i = 0; i < 4; ++i) {
    CHECK(std::abs(y[i] - want[i]) <= 2e-6);
    CHECK(std::abs(z[3 * i] - want[i]) <= 2e-6);
  }
  for (Layer* layer : {&first, &second})
    for (std::int64_t c = 0; c < 3; ++c) {
      CHECK(near(layer->running_mean[c], 0.4 * static_cast<double>(c + 1)));
      CHECK(near(layer->running_var[c], 1.1666667));
    }
}

TEST_CASE("case 57 [NORM] one value per channel in training") {
  SimDevice device;
  Layer layer(device, 2, {});
  CHECK_THROWS_WITH_AS(
      layer.train(Array(DType::fp32, {1, 2}, {1, 2}), DType::fp32),
      "[batch_norm] training needs at least 2 values a channel, shape [1, 2] has 1", Error);
  CHECK(device.emulator().counters().launches == 0);
  Layer other(device, 1, {.axis = 1});
  const Array y = other.train(Array(DType::fp32, {1, 1, 1, 2}, {1, 3}), DType::fp32);
  CHECK(near(y[0], -0.999995));
  CHECK(near(y[1], 0.999995));
  CHECK(near(other.running_mean[0], 0.2));
  CHECK(near(other.running_var[0], 1.1));
}

TEST_CASE("case 58 [NORM] momentum convention and cumulative mode") {
  SimDevice device;
  const Array x(DType::fp32, {2, 1}, {9, 11}), x20(DType::fp32, {2, 1}, {19, 21});
  Layer layer(device, 1, {.momentum = 0.1});
  layer.train(x, DType::fp32);
  CHECK(near(layer.running_mean[0], 1.0));
  layer.train(x, DType::fp32);
  CHECK(near(layer.running_mean[0], 1.9));
  CHECK(near(layer.running_var[0], 1.19));
  Layer cumulative(device, 1, {.momentum = 1.0});
  cumulative.train(x, DType::fp32);
  CHECK(cumulative.running_mean[0] == 10.0);
  cumulative.params.momentum = 1.0 / 2.0;
  cumulative.train(x20, DType::fp32);
  CHECK(cumulative.running_mean[0] == 15.0);
  CHECK(cumulative.running_var[0] == 2.0);
}

TEST_CASE("case 60 [NORM] eval mode forward and backward") {
  SimDevice device;
  const Array x(DType::fp32, {2, 1}, {6, 0}), dy(DType::fp32, {2, 1}, {1, 1});
  const Array gamma(DType::fp32, {1}, {3}), beta(DType::fp32, {1}, {1});
  Layer layer(device, 1, {.eps = 0.0});
  layer.running_mean = Array(DType::fp32, {1}, {2});
  layer.running_var = Array(DType::fp32, {1}, {4});
  CHECK(layer.eval(x, DType::fp32, &gamma, &beta).values() == Values{7, -2});
  const Layer::Gradients g = layer.gradients(false, x, dy, &gamma);
  CHECK(g.dx.values() == Values{1.5, 1.5});
  CHECK(g.dgamma.values() == Values{1});
  CHECK(g.dbeta.values() == Values{2});
}

TEST_CASE("case 61 [NORM] training backward") {
  SimDevice device;
  const Array x(DType::fp32, {3, 1}, {1, 2, 4}), dy(DType::fp32, {3, 1}, {1, 0, 0});
  Layer layer(device, 1, {.eps = 0.0});
  const Array y = layer.train(x, DType::fp32);
  const Array dx = layer.gradients(true, x, dy).dx;
  const double want_y[] = {-1.0690450, -0.2672612, 1.3363062};
  const double want[] = {0.2290811, -0.3436216, 0.1145405};
  for (std::int64_t i = 0; i < 3; ++i) {
    CHECK(std::abs(y[i] - want_y[i]) <= 1e-6);
    CHECK(std::abs(dx[i] - want[i]) <= 1e-6);
  }
  CHECK(std::abs(dx[0] + dx[1] + dx[2]) <= 4 * 0x1p-24);
}

TEST_CASE("BatchNorm forward and backward within their bounds, every dtype, layout and ragged n") {
  struct Case {
    Shape shape;
    int axis;
    std::uint64_t schedules = 1;
  };
  const Case cases[] = {{{2, 3}, -1, 4},   {{65, 1}, -1},         {{200, 17}, -1, 2},
                        {{40, 16}, -1, 4}, {{3, 5, 6, 8}, -1, 2}, {{3, 5, 6, 4}, 1, 4},
                        {{2, 3, 300}, 1},  {{500, 2, 1}, 1},      {{2, 33, 2}, 1},
                        {{2000, 24}, -1},  {{2, 600}, -1},        {{3, 9, 31}, 0},
                        {{1, 4, 5000}, 1}};
  for (const Case& c : cases) {
    const int axis = c.shape.normalize_axis(c.axis, "test");
    oracle::BatchNormParams p{.n = 1, .c = c.shape[axis], .l = 1, .eps = 1e-5};
    for (int a = 0; a < c.shape.rank(); ++a)
      if (a != axis) (a < axis ? p.n : p.l) *= c.shape[a];
    for (std::uint64_t k = 0; k < c.schedules; ++k) {
      SimDevice device(k);
      for (const DType dtype : kFloating) {
        for (const int offset : {0, 1}) {
          if (offset == 1 && k > 0) continue;
          CAPTURE(c.shape);
          CAPTURE(c.axis);
          CAPTURE(name(dtype));
          CAPTURE(offset);
          const DType stats = wide(dtype);
          const std::int64_t size = c.shape.numel();
          const Array x(dtype, c.shape, normal_values(size, 1, 3), offset);
          const Array dy(dtype, c.shape, normal_values(size, 2), offset);
          const Array gamma(offset == 0 ? stats : DType::bf16, {p.c}, normal_values(p.c, 3));
          const Array beta(DType::fp32, {p.c}, normal_values(p.c, 4));
          const Values xs = x.values(), dys = dy.values(), g = gamma.values(), b = beta.values();
          const Arithmetic a = norm_arithmetic(dtype, dtype);
          const Arithmetic sums = norm_arithmetic(dtype, stats);
          Layer layer(device, p.c, {.axis = c.axis}, stats);
          const Values before_mean = layer.running_mean.values(),
                       before_var = layer.running_var.values();
          const Array y = layer.train(x, dtype, &gamma, &beta);
          const bound::BatchNorm want =
              bound::batch_norm_train(p, xs, g, b, 0.1, 0, before_mean, before_var, a);
          check_bound(y, want.y);
          check_bound(layer.running_mean, want.running_mean);
          check_bound(layer.running_var, want.running_var);
          const Layer::Gradients got = layer.gradients(true, x, dy, &gamma);
          check_bound(got.dx, bound::batch_norm_train_backward(p, xs, g, dys, a).x);
          const bound::NormGradients want_sums =
              bound::batch_norm_train_backward(p, xs, g, dys, sums);
          check_bound(got.dgamma, want_sums.gamma);
          check_bound(got.dbeta, want_sums.beta);

          const Values rm = layer.running_mean.values(), rv = layer.running_var.values();
          check_bound(layer.eval(x, dtype, &gamma, &beta),
                      bound::batch_norm_eval(p, xs, g, b, rm, rv, a));
          const Layer::Gradients eval = layer.gradients(false, x, dy, &gamma);
          check_bound(eval.dx, bound::batch_norm_eval_backward(p, xs, g, rm, rv, dys, a).x);
          const bound::NormGradients eval_sums =
              bound::batch_norm_eval_backward(p, xs, g, rm, rv, dys, sums);
          check_bound(eval.dgamma, eval_sums.gamma);
          check_bound(eval.dbeta, eval_sums.beta);
        }
      }
    }
  }
}

TEST_CASE("a constant channel gives beta exactly, whatever its value") {
  SimDevice device;
  for (const double value : {0.1, 1234.0, -7e4}) {
    for (const Shape& shape : {Shape{1000, 4}, Shape{999, 3}}) {
      Layer layer(device, shape[1], {});
      const Values y = layer
                           .train(Array(DType::fp32, shape,
                                        Values(static_cast<std::size_t>(shape.numel()), value)),
                                  DType::fp32)
                           .values();
      CHECK(std::all_of(y.begin(), y.end(), [](double v) { return v == 0; }));
    }
  }
}

TEST_CASE("squares that leave fp32, and non-finite channels") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const bool last : {true, false}) {
      // Channels: far out, infinite, ordinary.
      const Values v = last ? Values{1e20, 1, 1, -1e20, 2, 2, 3e20, kInf, 4}
                            : Values{1e20, -1e20, 3e20, 1, 2, kInf, 1, 2, 4};
      Layer layer(device, 3, {.axis = last ? -1 : 0});
      const Array x(DType::fp32, {3, 3}, v);
      const Values y = layer.train(x, DType::fp32).values();
      const oracle::BatchNormParams p{.n = 3, .c = 1, .l = 1, .eps = 1e-5};
      const Bound big = bound::batch_norm_train(p, Values{1e20F, -1e20F, 3e20F}, {}, {}, 0.1, 0, {},
                                                {}, norm_arithmetic(DType::fp32, DType::fp32))
                            .y;
      const std::size_t row = last ? 3 : 1, channel = last ? 1 : 3;
      for (std::size_t i = 0; i < 3; ++i) {
        CHECK(std::abs(y[row * i] - big.reference[i]) <= big.tolerance[i]);
        CHECK(std::isnan(y[row * i + channel]));
        CHECK(std::isfinite(y[row * i + 2 * channel]));
      }
    }
  }
}

TEST_CASE("other types of output; the same bits under every schedule; sums and dx accumulate") {
  const Array x(DType::bf16, {300, 24}, normal_values(300 * 24, 1, 1));
  const Array dy(DType::bf16, {300, 24}, normal_values(300 * 24, 2));
  SimDevice first(0);
  Layer layer(first, 24, {});
  const Array y = layer.train(x, DType::bf16);
  Layer other(first, 24, {});
  // fp32 rounded once is bf16.
  CHECK(Array(DType::bf16, {300, 24}, other.train(x, DType::fp32).values()).values() == y.values());
  const Layer::Gradients g = layer.gradients(true, x, dy);
  for (std::uint64_t k = 1; k < 2 * kSchedules; ++k) {
    SimDevice device(k);
    Layer again(device, 24, {});
    CHECK(again.train(x, DType::bf16).values() == y.values());
    const Layer::Gradients h = again.gradients(true, x, dy);
    CHECK(h.dx.values() == g.dx.values());
    CHECK(h.dgamma.values() == g.dgamma.values());
  }
  SimScratch scratch(first);
  Array once(DType::fp32, {300, 24}), sums = g.dgamma;
  const Resident rx(first, x), rdy(first, dy), mean(first, layer.mean), rstd(first, layer.rstd);
  Resident dx(first, once), dgamma(first, sums);
  const ConstView none = ConstView::absent();
  const auto run = [&](const Out& to, const Out& scale) {
    batch_norm_backward_training(first.target(), {}, *rx, none, *mean, *rstd, *rdy, to, scale, {},
                                 scratch);
  };
  run(dx.out(), {});
  dx.fetch();
  const Values single = once.values();
  run(dx.out(Write::accumulate), dgamma.out(Write::accumulate));
  dx.fetch();
  dgamma.fetch();
  for (std::int64_t i = 0; i < 24; ++i) REQUIRE(sums[i] == 2 * g.dgamma[i]);
  for (std::int64_t i = 0; i < once.size(); ++i)
    REQUIRE(once[i] == 2 * single[static_cast<std::size_t>(i)]);
}

TEST_CASE("bad input is refused before a launch; channels and batches of nothing") {
  SimDevice device;
  SimScratch scratch(device);
  const Array x(DType::fp32, {6, 2}, normal_values(12, 1)), three(DType::fp32, {3}, {1, 1, 1});
  Array out(DType::fp32, {6, 2}), next(DType::fp32, {2});
  const Resident rx(device, x), r3(device, three);
  Resident y(device, out), n(device, next);
  const ConstView none = ConstView::absent();
  const auto bad = [&](const BatchNormParams& params, const ConstView& gamma, const Out& to) {
    CHECK_THROWS_AS(batch_norm_forward_training(device.target(), params, *rx, gamma, none, none,
                                                none, y.out(), {}, {}, to, {}, scratch),
                    Error);
  };
  bad({}, *r3, {});
  bad({.axis = 2}, none, {});
  bad({.eps = -1}, none, {});
  bad({.momentum = 1.5}, none, {});
  bad({}, none, n.out());
  CHECK_THROWS_AS(
      batch_norm_forward_eval(device.target(), {}, *rx, none, none, none, none, y.out(), scratch),
      Error);
  CHECK(device.emulator().counters().launches == 0);
  Layer layer(device, 0, {});
  CHECK(layer.train(Array(DType::fp32, {5, 0}), DType::fp32).size() == 0);
  Layer two(device, 2, {});
  const Array empty(DType::fp32, {0, 2});
  CHECK(two.eval(empty, DType::fp32).size() == 0);
  two.mean = two.rstd = Array(DType::fp32, {2}, {1, 1});
  CHECK(two.gradients(true, empty, empty).dgamma.values() == Values{0, 0});
}
