#include "kernels/norm/layer_norm.h"

#include "tests/kernels/norm_bound.h"
#include "tests/simt_kernels/norm_support.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

struct Forward {
  Array y, mean, rstd;
};

// gamma and beta may be null.
Forward forward(SimDevice& device, const LayerNormParams& params, const Array& x,
                const Array* gamma = nullptr, const Array* beta = nullptr,
                DType output = DType::i64) {
  const Shape& shape = x.shape();
  std::int64_t rows = 1;
  for (int a = 0; a < shape.rank() - params.axes; ++a) rows *= shape[a];
  const DType stats = params.accumulator == Accumulator::fp64 ? DType::fp64 : wide(x.dtype());
  Forward r{Array(output == DType::i64 ? x.dtype() : output, shape), Array(stats, {rows}),
            Array(stats, {rows})};
  const Array none(DType::fp32, {1});
  SimScratch scratch(device);
  const Resident xs(device, x), g(device, gamma == nullptr ? none : *gamma),
      b(device, beta == nullptr ? none : *beta);
  Resident y(device, r.y), mean(device, r.mean), rstd(device, r.rstd);
  layer_norm_forward(device.target(), params, *xs,
                     gamma == nullptr ? ConstView::absent() : ConstView(*g),
                     beta == nullptr ? ConstView::absent() : ConstView(*b), y.out(), mean.out(),
                     rstd.out(), scratch);
  for (Resident* array : {&y, &mean, &rstd}) array->fetch();
  for (const Array* array : {&r.y, &r.mean, &r.rstd}) CHECK(array->guards_intact());
  return r;
}

struct Gradients {
  Array dx, dgamma, dbeta;
};
Gradients backward(SimDevice& device, const LayerNormParams& params, const Array& x,
                   const Array* gamma, const Forward& f, const Array& dy,
                   DType output = DType::i64) {
  const Shape& shape = x.shape();
  std::int64_t width = 1;
  for (int a = shape.rank() - params.axes; a < shape.rank(); ++a) width *= shape[a];
  Gradients r{Array(output == DType::i64 ? x.dtype() : output, shape),
              Array(wide(x.dtype()), {width}), Array(wide(x.dtype()), {width})};
  const Array none(DType::fp32, {1});
  SimScratch scratch(device);
  const Resident xs(device, x), g(device, gamma == nullptr ? none : *gamma), mean(device, f.mean),
      rstd(device, f.rstd), dys(device, dy);
  Resident dx(device, r.dx), dgamma(device, r.dgamma), dbeta(device, r.dbeta);
  layer_norm_backward(device.target(), params, *xs,
                      gamma == nullptr ? ConstView::absent() : ConstView(*g), *mean, *rstd, *dys,
                      dx.out(), dgamma.out(), dbeta.out(), scratch);
  for (Resident* array : {&dx, &dgamma, &dbeta}) array->fetch();
  for (const Array* array : {&r.dx, &r.dgamma, &r.dbeta}) CHECK(array->guards_intact());
  return r;
}

}  // namespace

TEST_CASE("case 52 [NORM] LayerNorm with large mean") {
  SimDevice device;
  for (const double base : {40000.0, 80000.0}) {
    const Array x(DType::fp32, {1, 4}, {base, base + 1, base + 2, base + 3});
    const Values y = forward(device, {.eps = 1e-5}, x).y.values();
    const double want[] = {-1.34163542, -0.44721181, 0.44721181, 1.34163542};
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(y[i] - want[i]) <= 1e-5);
  }
}

TEST_CASE("case 53 [NORM] constant row") {
  SimDevice device;
  for (const double value : {1234.0, 0.1, -1.0 / 3.0, 3e5, 1e-30}) {
    for (const std::int64_t n : {1, 3, 31, 257, 1000, 5000, 9000}) {
      for (const DType dtype : {DType::fp32, DType::bf16}) {
        CAPTURE(value);
        CAPTURE(n);
        const Array x(dtype, {1, n}, Values(static_cast<std::size_t>(n), value));
        const Forward f = forward(device, {.eps = 1e-8}, x);
        bool zero = true;
        for (const double y : f.y.values()) zero = zero && y == 0;
        const Array dy(dtype, {1, n}, Values(static_cast<std::size_t>(n), 0.7));
        for (const double dx : backward(device, {.eps = 1e-8}, x, nullptr, f, dy).dx.values())
          zero = zero && dx == 0;
        CHECK(zero);
        CHECK(std::abs(f.rstd[0] - 1e4) <= 1e4 * 4 * 0x1p-24);
      }
    }
  }
}

TEST_CASE("case 63 [NORM] LayerNorm width 1") {
  SimDevice device;
  const Array x(DType::fp32, {2, 1}, {5, 7}), gamma(DType::fp32, {1}, {2}),
      beta(DType::fp32, {1}, {0.5}), dy(DType::fp32, {2, 1}, {1, -3});
  const Forward f = forward(device, {}, x, &gamma, &beta);
  CHECK(f.y.values() == Values{0.5, 0.5});
  const Gradients g = backward(device, {}, x, &gamma, f, dy);
  CHECK(g.dx.values() == Values{0, 0});
  CHECK(g.dgamma.values() == Values{0});
  CHECK(g.dbeta.values() == Values{-2});
}

TEST_CASE("LayerNorm and its gradients within the computed bounds: widths, types, places") {
  struct Case {
    std::int64_t rows, n;
    std::uint64_t schedules = 1;
  };
  const Case cases[] = {{1, 1},     {5, 2},       {65, 3},   {9, 16, 4}, {7, 31},      {7, 32},
                        {7, 33, 4}, {3, 128},     {3, 255},  {300, 257}, {2, 1000, 2}, {2, 1024},
                        {2, 5000},  {1, 8192, 2}, {2, 8200}, {1, 200000}};
  for (const Case& c : cases) {
    for (std::uint64_t k = 0; k < c.schedules; ++k) {
      SimDevice device(k);
      for (const DType dtype : kFloating) {
        if (c.n > 100000 && dtype != DType::fp16) continue;
        for (const DType parameters : {DType::fp32, DType::bf16}) {
          for (const int offset : {0, 1}) {
            if ((offset == 1 || parameters == DType::bf16) && c.n > 300) continue;
            CAPTURE(c.rows);
            CAPTURE(c.n);
            CAPTURE(name(dtype));
            CAPTURE(name(parameters));
            CAPTURE(offset);
            const std::int64_t size = c.rows * c.n;
            const Array x(dtype, {c.rows, c.n}, normal_values(size, 1, 3), offset);
            const Array dy(dtype, {c.rows, c.n}, normal_values(size, 2), offset);
            const Array gamma(parameters, {c.n}, normal_values(c.n, 3));
            const Array beta(parameters, {c.n}, normal_values(c.n, 4), offset);
            const Values xs = x.values(), gs = gamma.values(), bs = beta.values();
            const Forward f = forward(device, {}, x, &gamma, &beta);
            const oracle::LayerNormParams p{.rows = c.rows, .n = c.n, .eps = 1e-5};
            check_bound(f.y, bound::layer_norm(p, xs, gs, bs, norm_arithmetic(dtype, dtype)));
            const double u = arithmetic_roundoff(dtype);
            for (std::int64_t r = 0; r < std::min<std::int64_t>(c.rows, 5); ++r) {
              const auto group =
                  norm_bound::forward(Values(xs.begin() + r * c.n, xs.begin() + (r + 1) * c.n),
                                      1e-5, static_cast<double>(norm_depth(c.n)), u);
              CHECK(std::abs(f.mean[r] - group.mean) <= group.mean_tol + u * std::abs(group.mean));
              CHECK(std::abs(f.rstd[r] - group.rstd) <= group.rstd * (group.rstd_rel + u));
            }
            if (c.n > 100000) continue;
            const Gradients g = backward(device, {}, x, &gamma, f, dy);
            const Arithmetic a = norm_arithmetic(dtype, dtype);
            check_bound(g.dx, bound::layer_norm_backward(p, xs, gs, dy.values(), a).x);
            const bound::NormGradients sums = bound::layer_norm_backward(
                p, xs, gs, dy.values(), norm_arithmetic(dtype, wide(dtype)));
            check_bound(g.dgamma, sums.gamma);
            check_bound(g.dbeta, sums.beta);
          }
        }
      }
    }
  }
}

TEST_CASE("rows that a cluster holds on sm_90, and a block reads thrice elsewhere") {
  struct Case {
    std::int64_t rows, n;
    DType dtype;
    int offset;
  };
  for (const Case& c : {Case{20, 8200, DType::bf16, 0},
                        {3, 16385, DType::fp32, 0},
                        {17, 16392, DType::fp16, 1},
                        {2, 65536, DType::bf16, 0}}) {
    const std::int64_t size = c.rows * c.n;
    const Array x(c.dtype, {c.rows, c.n}, normal_values(size, 1, 3), c.offset);
    const Array dy(c.dtype, {c.rows, c.n}, normal_values(size, 2), c.offset);
    const Array gamma(DType::fp32, {c.n}, normal_values(c.n, 3));
    const oracle::LayerNormParams p{.rows = c.rows, .n = c.n, .eps = 1e-5};
    const Arithmetic a = norm_arithmetic(c.dtype, c.dtype);
    const Bound of_x = bound::layer_norm_backward(p, x.values(), gamma.values(), dy.values(), a).x;
    const bound::NormGradients sums = bound::layer_norm_backward(
        p, x.values(), gamma.values(), dy.values(), norm_arithmetic(c.dtype, DType::fp32));
    for (const auto architecture : {simt::SimArchitecture::sm_90a, simt::SimArchitecture::sm_80}) {
      CAPTURE(c.n);
      SimDevice device(6);
      device.emulator().config.architecture = architecture;
      const Forward f = forward(device, {}, x, &gamma);
      check_bound(f.y, bound::layer_norm(p, x.values(), gamma.values(), {}, a));
      const Gradients g = backward(device, {}, x, &gamma, f, dy);
      check_bound(g.dx, of_x);
      check_bound(g.dgamma, sums.gamma);
      check_bound(g.dbeta, sums.beta);
    }
  }
}

TEST_CASE("dgamma and dbeta beside dx: rows of a block in turns, of every shape; dx unwanted") {
  struct Case {
    std::int64_t rows, n;
  };
  for (const Case& c : {Case{5000, 24}, {1000, 100}, {600, 65}, {150, 1000}, {70, 3001}}) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      CAPTURE(c.rows);
      CAPTURE(c.n);
      SimDevice device(4);
      const std::int64_t size = c.rows * c.n;
      const Array x(dtype, {c.rows, c.n}, normal_values(size, 1, 3));
      const Array dy(dtype, {c.rows, c.n}, normal_values(size, 2));
      const Array gamma(DType::fp32, {c.n}, normal_values(c.n, 3));
      const oracle::LayerNormParams p{.rows = c.rows, .n = c.n, .eps = 1e-5};
      const Forward f = forward(device, {}, x, &gamma);
      const Gradients g = backward(device, {}, x, &gamma, f, dy);
      const auto bounds = [&](DType output) {
        return bound::layer_norm_backward(p, x.values(), gamma.values(), dy.values(),
                                          norm_arithmetic(dtype, output));
      };
      check_bound(g.dx, bounds(dtype).x);
      const bound::NormGradients sums = bounds(DType::fp32);
      check_bound(g.dgamma, sums.gamma);
      check_bound(g.dbeta, sums.beta);
      SimScratch scratch(device);
      Array alone(DType::fp32, {c.n}), dx(dtype, {c.rows, c.n});
      const Resident rx(device, x), rdy(device, dy), rg(device, gamma), rm(device, f.mean),
          rr(device, f.rstd);
      Resident to_beta(device, alone), to_dx(device, dx);
      layer_norm_backward(device.target(), {}, *rx, *rg, *rm, *rr, *rdy, {}, {}, to_beta.out(),
                          scratch);
      layer_norm_backward(device.target(), {}, *rx, *rg, *rm, *rr, *rdy, to_dx.out(), {}, {},
                          scratch);
      to_beta.fetch();
      to_dx.fetch();
      CHECK(same_bits(alone, g.dbeta));
      CHECK(same_bits(dx, g.dx));
    }
  }
}

TEST_CASE("several trailing axes are one row; other types of output; an fp64 accumulator") {
  SimDevice device;
  const Values v = normal_values(2 * 40, 1);
  const Array flat(DType::fp32, {2, 40}, v), deep(DType::fp32, {2, 8, 5}, v);
  const Forward a = forward(device, {}, flat);
  CHECK(forward(device, {.axes = 2}, deep).y.values() == a.y.values());
  const oracle::LayerNormParams p{.rows = 2, .n = 40, .eps = 1e-5};
  check_bound(
      forward(device, {}, flat, nullptr, nullptr, DType::fp16).y,
      bound::layer_norm(p, flat.values(), {}, {}, norm_arithmetic(DType::fp32, DType::fp16)));
  const Forward f64 =
      forward(device, {.accumulator = Accumulator::fp64}, flat, nullptr, nullptr, DType::fp64);
  check_bound(f64.y, bound::layer_norm(p, flat.values(), {}, {},
                                       norm_arithmetic(DType::fp64, DType::fp64)));
  const Array dy(DType::bf16, {2, 40}, normal_values(80, 2));
  check_bound(backward(device, {}, flat, nullptr, a, dy).dx,
              bound::layer_norm_backward(p, flat.values(), {}, dy.values(),
                                         norm_arithmetic(DType::fp32, DType::fp32))
                  .x);
}

TEST_CASE("squares that leave fp32 do not turn into a silent zero; NaN and infinity show") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const std::int64_t n : {4, 40, 600, 3000, 9000}) {
    SimDevice device(static_cast<std::uint64_t>(n) % 5);
    // The second row is an ordinary neighbour.
    Values v = normal_values(2 * n, 7);
    for (std::int64_t i = 0; i < n; ++i)
      v[static_cast<std::size_t>(i)] = (i % 4 == 0 ? 1e20 : i % 4 == 1 ? -1e20 : 3e20);
    const Array x(DType::fp32, {2, n}, v);
    const Forward f = forward(device, {}, x);
    const oracle::LayerNormParams p{.rows = 2, .n = n, .eps = 1e-5};
    check_bound(
        f.y, bound::layer_norm(p, x.values(), {}, {}, norm_arithmetic(DType::fp32, DType::fp32)));
    for (const double bad : {kInf, std::numeric_limits<double>::quiet_NaN()}) {
      v[static_cast<std::size_t>(n - 1)] = bad;
      const Values y = forward(device, {}, Array(DType::fp32, {2, n}, v)).y.values();
      bool right = true;
      for (std::int64_t i = 0; i < n; ++i)
        right = right && std::isnan(y[static_cast<std::size_t>(i)]) &&
                std::isfinite(y[static_cast<std::size_t>(n + i)]);
      CHECK(right);
    }
  }
}

TEST_CASE(
    "in order, dgamma and dbeta have the same bits however rows are cut, and the reference's") {
  const std::int64_t rows = 37, n = 19;
  const Values xs = normal_values(rows * n, 1), dys = normal_values(rows * n, 2);
  const LayerNormParams params{.in_order = true};
  SimDevice device;
  const auto run = [&](std::initializer_list<std::int64_t> cuts, bool reference) {
    Array dgamma(DType::fp32, {n}, Values(static_cast<std::size_t>(n), 0.0)), dbeta = dgamma;
    std::int64_t row = 0;
    for (const std::int64_t m : cuts) {
      const auto part = [&](const Values& v) {
        return Array(DType::fp32, {m, n}, Values(v.begin() + row * n, v.begin() + (row + m) * n));
      };
      const Array x = part(xs), dy = part(dys);
      const Forward f = forward(device, params, x);
      const ConstView none = ConstView::absent();
      if (reference) {
        Scratch scratch;
        layer_norm_backward(Ref{}, params, *x, none, *f.mean, *f.rstd, *dy, {},
                            dgamma.out(Write::accumulate), dbeta.out(Write::accumulate), scratch);
      } else {
        SimScratch scratch(device);
        const Resident rx(device, x), mean(device, f.mean), rstd(device, f.rstd), rdy(device, dy);
        Resident to_gamma(device, dgamma), to_beta(device, dbeta);
        layer_norm_backward(device.target(), params, *rx, none, *mean, *rstd, *rdy, {},
                            to_gamma.out(Write::accumulate), to_beta.out(Write::accumulate),
                            scratch);
        to_gamma.fetch();
        to_beta.fetch();
      }
      row += m;
    }
    Values all = dgamma.values();
    for (const double v : dbeta.values()) all.push_back(v);
    return all;
  };
  const Values whole = run({37}, false);
  CHECK(run({12, 12, 13}, false) == whole);
  CHECK(run({5, 1, 30, 1}, false) == whole);
  CHECK(run({37}, true) == whole);
}

TEST_CASE("the same bits under every schedule; sums accumulate; nothing of nothing; bad input") {
  const Array x(DType::bf16, {200, 72}, normal_values(200 * 72, 1));
  const Array dy(DType::bf16, {200, 72}, normal_values(200 * 72, 2));
  SimDevice first(0);
  const Forward f = forward(first, {}, x);
  const Gradients g = backward(first, {}, x, nullptr, f, dy);
  for (std::uint64_t k = 1; k < 2 * kSchedules; ++k) {
    SimDevice device(k);
    CHECK(forward(device, {}, x).y.values() == f.y.values());
    const Gradients again = backward(device, {}, x, nullptr, f, dy);
    CHECK(again.dx.values() == g.dx.values());
    CHECK(again.dgamma.values() == g.dgamma.values());
  }
  SimScratch scratch(first);
  Array twice = g.dgamma, half(DType::fp16, {200, 72});
  const Resident rx(first, x), mean(first, f.mean), rstd(first, f.rstd), rdy(first, dy);
  Resident to(first, twice), bad(first, half);
  const ConstView none = ConstView::absent();
  layer_norm_backward(first.target(), {}, *rx, none, *mean, *rstd, *rdy, {},
                      to.out(Write::accumulate), {}, scratch);
  to.fetch();
  for (std::int64_t i = 0; i < 72; ++i) REQUIRE(twice[i] == 2 * g.dgamma[i]);
  const std::uint64_t launches = first.emulator().counters().launches;
  CHECK_THROWS_AS(layer_norm_backward(first.target(), {}, *rx, none, *mean, *rstd, *rdy,
                                      bad.out(Write::accumulate), {}, {}, scratch),
                  Error);
  CHECK_THROWS_AS(
      layer_norm_forward(first.target(), {.axes = 3}, *rx, none, none, bad.out(), {}, {}, scratch),
      Error);
  CHECK_THROWS_AS(
      layer_norm_forward(first.target(), {.eps = -1}, *rx, none, none, bad.out(), {}, {}, scratch),
      Error);
  CHECK_THROWS_AS(
      layer_norm_forward(first.target(), {}, *rx, *mean, none, bad.out(), {}, {}, scratch), Error);
  CHECK(first.emulator().counters().launches == launches);

  CHECK(forward(first, {}, Array(DType::fp32, {0, 4})).y.size() == 0);
  CHECK(forward(first, {}, Array(DType::fp32, {3, 0})).mean.values() == Values{0, 0, 0});
  const Array empty(DType::fp32, {0, 4});
  const Gradients of_nothing =
      backward(first, {}, empty, nullptr,
               {empty, Array(DType::fp32, Shape{0}), Array(DType::fp32, Shape{0})}, empty);
  CHECK(of_nothing.dgamma.values() == Values{0, 0, 0, 0});
}
