#include "kernels/conv2d/conv2d.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "tests/kernels/sum_bound.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/oracle/conv2d.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

// [outer, channels, h, w] as [outer, h, w, channels]: NCHW to NHWC, KCRS to KRSC.
std::vector<double> channels_last(const std::vector<double>& v, const Shape& nchw) {
  std::vector<double> out(v.size());
  std::size_t from = 0;
  for (std::int64_t n = 0; n < nchw[0]; ++n)
    for (std::int64_t c = 0; c < nchw[1]; ++c)
      for (std::int64_t y = 0; y < nchw[2]; ++y)
        for (std::int64_t x = 0; x < nchw[3]; ++x)
          out[oracle::at(((n * nchw[2] + y) * nchw[3] + x) * nchw[1] + c)] = v[from++];
  return out;
}

// v[i] = i mod period - offset.
std::vector<double> pattern(std::int64_t n, int period, int offset) {
  std::vector<double> v(oracle::at(n));
  for (std::int64_t i = 0; i < n; ++i) v[oracle::at(i)] = static_cast<double>(i % period - offset);
  return v;
}

double sum(const std::vector<double>& v) { return std::accumulate(v.begin(), v.end(), 0.0); }

struct Results {
  std::vector<double> y, dx, dw, db;
};

SimDevice& shared_device() {
  static SimDevice device;
  return device;
}

// y on a device.
std::vector<double> forward(const Conv2dParams& p, const Array& x, const Array& w,
                            const Array* bias, Array y, SimDevice& device = shared_device()) {
  SimScratch scratch(device);
  const Resident in(device, x), weights(device, w);
  Resident out(device, y);
  if (bias != nullptr) {
    const Resident offsets(device, *bias);
    conv2d_forward(device.target(), p, *in, *weights, *offsets, out.out(), scratch);
  } else {
    conv2d_forward(device.target(), p, *in, *weights, ConstView::absent(), out.out(), scratch);
  }
  out.fetch();
  CHECK(y.guards_intact());
  return y.values();
}

// All four passes, outputs in `out`: overwriting, or added to ones.
Results run_all(const Conv2dParams& p, const Array& x, const Array& w, const Array& bias,
                const Array& dy, DType out, Write write = Write::overwrite,
                SimDevice& device = shared_device(), std::int64_t offset = 0) {
  SimScratch workspace(device);
  Scratch& scratch = workspace;
  const auto output = [&](const Shape& shape) {
    return write == Write::overwrite ? Array(out, shape, offset)
                                     : Array(out, shape, ones(shape.numel()), offset);
  };
  Array y = output(dy.shape()), dx = output(x.shape()), dw = output(w.shape()),
        db = output({w.shape()[0]});
  {
    const Resident in(device, x), weights(device, w), offsets(device, bias), grad(device, dy);
    Resident to_y(device, y), to_dx(device, dx), to_dw(device, dw), to_db(device, db);
    const SimTarget sim = device.target();
    const ConstView b = bias.size() == 0 ? ConstView::absent() : *offsets;
    conv2d_forward(sim, p, *in, *weights, b, to_y.out(write), scratch);
    conv2d_grad_input(sim, p, *grad, *weights, to_dx.out(write), scratch);
    conv2d_grad_weight(sim, p, *in, *grad, to_dw.out(write), scratch);
    conv2d_grad_bias(sim, p, *grad, to_db.out(write), scratch);
    for (Resident* r : {&to_y, &to_dx, &to_dw, &to_db}) r->fetch();
  }
  for (const Array* a : {&y, &dx, &dw, &db}) CHECK(a->guards_intact());
  return {y.values(), dx.values(), dw.values(), db.values()};
}

const Array& no_bias() {
  static const Array none(DType::fp32, {0});
  return none;
}

oracle::Conv2dParams oracle_params(const Shape& x, const Shape& w, const Conv2dParams& p) {
  return {.n = x[0],
          .h = x[1],
          .w = x[2],
          .c = x[3],
          .k = w[0],
          .r = w[1],
          .s = w[2],
          .stride_h = p.stride[0],
          .stride_w = p.stride[1],
          .pad_h = p.padding[0],
          .pad_w = p.padding[1],
          .dilation_h = p.dilation[0],
          .dilation_w = p.dilation[1],
          .groups = p.groups};
}

}  // namespace

TEST_CASE("case 26 [CONV] grouped conv with Cout >> groups") {
  for (const DType dtype : kFloating) {
    const Array x(dtype, {1, 1, 1, 4}, std::vector<double>{0, 0, 0, 1});
    const std::vector<double> y = forward({.groups = 2}, x, Array(dtype, {16, 1, 1, 2}, ones(32)),
                                          nullptr, Array(dtype, {1, 1, 1, 16}));
    for (std::size_t k = 0; k < 16; ++k) CHECK(y[k] == (k < 8 ? 0 : 1));

    std::vector<double> w(27);
    for (std::size_t i = 0; i < 27; ++i) w[i] = static_cast<double>(i / 9 + 1);
    const std::vector<double> z =
        forward({.groups = 3}, Array(dtype, {1, 4, 4, 3}, ones(48)), Array(dtype, {3, 3, 3, 1}, w),
                nullptr, Array(dtype, {1, 2, 2, 3}));
    for (std::size_t i = 0; i < 12; ++i) CHECK(z[i] == static_cast<double>(9 * (i % 3 + 1)));
  }
}

TEST_CASE("case 28 [CONV] stride 2, pad 1, dilation 2") {
  const Conv2dParams p{.stride = {2, 2}, .padding = {1, 1}, .dilation = {2, 2}};
  const std::vector<double> nine = {64, 102, 72, 138, 216, 150, 120, 186, 128};
  std::vector<double> image(49);
  std::iota(image.begin(), image.end(), 0.0);
  for (const DType dtype : kFloating) {
    const Results r =
        run_all(p, Array(dtype, {1, 7, 7, 1}, image), Array(dtype, {1, 3, 3, 1}, ones(9)),
                no_bias(), Array(dtype, {1, 3, 3, 1}, ones(9)), dtype);
    CHECK(r.y == nine);
    CHECK(r.dw == nine);
    const std::vector<double> odd = {4, 6, 4, 6, 9, 6, 4, 6, 4};
    for (std::size_t i = 0; i < 49; ++i) {
      const std::size_t row = i / 7, column = i % 7;
      const double want = row % 2 == 1 && column % 2 == 1 ? odd[row / 2 * 3 + column / 2] : 0;
      CHECK(r.dx[i] == want);
    }
    CHECK(r.db == std::vector<double>{9});
  }
}

TEST_CASE("case 30 [CONV] odd channels, full fwd/dgrad/wgrad/bias check") {
  const Conv2dParams p{.stride = {2, 2}, .padding = {1, 1}};
  const std::vector<double> x = channels_last(pattern(2 * 3 * 49, 5, 2), {2, 3, 7, 7});
  const std::vector<double> w = channels_last(pattern(5 * 3 * 9, 3, 1), {5, 3, 3, 3});
  const std::vector<double> dy = channels_last(pattern(2 * 5 * 16, 3, 1), {2, 5, 4, 4});
  for (const DType dtype : kFloating) {
    const Array bias(dtype, {5}, std::vector<double>{1, -1, 2, -2, 3});
    const Results r = run_all(p, Array(dtype, {2, 7, 7, 3}, x), Array(dtype, {5, 3, 3, 3}, w), bias,
                              Array(dtype, {2, 4, 4, 5}, dy), dtype);
    CHECK(sum(r.y) == 96);
    const std::vector<double> magnitude = absolute(r.y);
    CHECK(*std::max_element(magnitude.begin(), magnitude.end()) == 6);
    const std::vector<double> last = {4, 0, 5, 3, 4, 1, 6, 1, 5, 1, 1, 5, 4, 0, 5, 3};
    for (std::size_t i = 0; i < 16; ++i) CHECK(r.y[(16 + i) * 5 + 4] == last[i]);
    CHECK(sum(r.dx) == 0);
    CHECK(sum(absolute(r.dx)) == 168);
    CHECK(sum(r.dw) == -1);
    CHECK(sum(absolute(r.dw)) == 389);
    CHECK(r.db == std::vector<double>{0, -1, 1, 0, -1});
  }
}

TEST_CASE("case 31 [CONV] bias for every batch element") {
  for (const DType dtype : kFloating) {
    for (const std::int64_t kernel : {1, 2}) {
      const Array bias(dtype, {3}, std::vector<double>{1, 2, 3});
      const std::vector<double> got =
          forward({}, Array(dtype, {8, 2, 2, 1}, ones(32)),
                  Array(dtype, {3, kernel, kernel, 1},
                        std::vector<double>(oracle::at(3 * kernel * kernel))),
                  &bias, Array(dtype, {8, 3 - kernel, 3 - kernel, 3}));
      for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == static_cast<double>(i % 3 + 1));
      if (kernel == 1) CHECK(sum(got) == 192);
    }
  }
}

TEST_CASE("case 33 [CONV] geometry errors and empty batch") {
  // Bad geometry launches nothing.
  SimDevice device;
  Scratch scratch;
  const Array x(DType::fp32, {2, 8, 8, 4}), w(DType::fp32, {4, 3, 3, 4}),
      tiny(DType::fp32, {1, 2, 2, 4});
  Array y(DType::fp32, {2, 6, 6, 4});
  const auto run = [&](const Conv2dParams& p, const Array& in) {
    conv2d_forward(device.target(), p, *in, *w, ConstView::absent(), y.view(), scratch);
  };
  CHECK_THROWS_WITH_AS(run({}, tiny),
                       "[conv2d] vertical kernel 3 with dilation 1 exceeds the padded image 2",
                       Error);
  CHECK_THROWS_AS(run({.stride = {0, 1}}, x), Error);
  CHECK_THROWS_AS(run({.stride = {2, 2}}, x), Error);
  CHECK_THROWS_AS(run({.dilation = {0, 1}}, x), Error);
  CHECK_THROWS_AS(run({.padding = {0, -1}}, x), Error);
  CHECK_THROWS_WITH_AS(run({.groups = 3}, x),
                       "[conv2d] 3 groups do not divide input channels 4 and output channels 4",
                       Error);
  Array nothing(DType::fp32, {0, 6, 6, 4}), no_gradient(DType::fp32, {0, 8, 8, 4});
  const Array empty(DType::fp32, {0, 8, 8, 4});
  conv2d_forward(device.target(), {}, *empty, *w, ConstView::absent(), nothing.view(), scratch);
  conv2d_grad_input(device.target(), {}, *nothing, *w, no_gradient.view(), scratch);
  CHECK(device.emulator().counters().launches == 0);

  for (const DType dtype : kFloating) {
    const Results r = run_all({}, Array(dtype, {0, 8, 8, 3}), Array(dtype, {4, 3, 3, 3}, ones(108)),
                              no_bias(), Array(dtype, {0, 6, 6, 4}), dtype);
    CHECK(r.y.empty());
    CHECK(r.dx.empty());
    CHECK(r.dw == std::vector<double>(108));
    CHECK(r.db == std::vector<double>(4));
  }
}

TEST_CASE("conv2d on a device agrees with the oracle within the bound, over types and geometries") {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  double worst = 0;
  int ran = 0;
  for (int trial = 0; trial < 400; ++trial) {
    CAPTURE(trial);
    Conv2dParams p;
    p.groups = pick({1, 1, 1, 2, 3, 20, 32});
    const std::int64_t c_group = pick({0, 1, 1, 2, 3, 4, 8}), k_group = pick({0, 1, 1, 2, 4, 5});
    const Shape x{pick({0, 1, 2, 5}), pick({1, 2, 5, 8}), pick({1, 3, 6, 11}), c_group * p.groups};
    const Shape w{k_group * p.groups, pick({1, 2, 3}), pick({1, 2, 3, 5}), c_group};
    p.stride = {pick({1, 1, 2}), pick({1, 1, 2, 3})};
    p.padding = {pick({0, 1, 2}), pick({0, 1, 2, 4})};
    p.dilation = {pick({1, 1, 2}), pick({1, 1, 2, 3})};
    p.accumulator = random() % 4 == 0 ? Accumulator::fp64 : Accumulator::fp32;
    if ((w[1] - 1) * p.dilation[0] + 1 > x[1] + 2 * p.padding[0] ||
        (w[2] - 1) * p.dilation[1] + 1 > x[2] + 2 * p.padding[1]) {
      CHECK_THROWS_AS(conv2d_shape(x, w, p), Error);
      continue;
    }
    ++ran;
    const DType dtype = kFloating[random() % 4], out = kFloating[random() % 4];
    const DType acc = p.accumulator == Accumulator::fp64 ? DType::fp64 : widest(dtype, DType::fp32);
    const oracle::Conv2dParams o = oracle_params(x, w, p);
    const Shape y = conv2d_shape(x, w, p).y();
    REQUIRE(y == Shape{o.n, o.p(), o.q(), o.k});
    const std::vector<double> xv = normal(o.x_size(), dtype, random),
                              wv = normal(o.w_size(), dtype, random),
                              bv = normal(o.k, DType::fp32, random),
                              gv = normal(o.y_size(), dtype, random);
    const Array bias(DType::fp32, {o.k}, bv);
    const bool accumulate = !is_16bit(out) && random() % 2 == 0;
    SimDevice device(static_cast<std::uint64_t>(trial) % kSchedules);
    const std::int64_t offset = pick({0, 0, 1});
    const Results r = run_all(p, Array(dtype, x, xv, offset), Array(dtype, w, wv, offset), bias,
                              Array(dtype, y, gv, offset), out,
                              accumulate ? Write::accumulate : Write::overwrite, device, offset);
    const auto judge = [&](const std::vector<double>& got, std::vector<double> want,
                           std::vector<double> sums, std::int64_t terms) {
      for (std::size_t i = 0; accumulate && i < want.size(); ++i) {
        want[i] += 1;
        sums[i] += 1;
      }
      const double ratio = worst_ratio(got, want, sums, terms + 1, acc, out);
      CHECK(ratio <= 1);
      worst = std::max(worst, ratio);
    };
    const std::vector<double> xa = absolute(xv), wa = absolute(wv), ba = absolute(bv),
                              ga = absolute(gv);
    judge(r.y, oracle::conv2d(o, xv, wv, bv), oracle::conv2d(o, xa, wa, ba),
          o.c / o.groups * o.r * o.s + 1);
    judge(r.dx, oracle::conv2d_dgrad(o, wv, gv), oracle::conv2d_dgrad(o, wa, ga),
          o.k / o.groups * o.r * o.s + 1);
    judge(r.dw, oracle::conv2d_wgrad(o, xv, gv), oracle::conv2d_wgrad(o, xa, ga),
          o.n * o.p() * o.q() + 1);
    judge(r.db, oracle::conv2d_bias_grad(o, gv), oracle::conv2d_bias_grad(o, ga),
          o.n * o.p() * o.q() + 1);
  }
  CHECK(ran > 200);
  MESSAGE("largest error / bound: ", worst);
}

TEST_CASE("conv2d on a device: sums over many pixels, in parts, and accumulating gradients") {
  std::mt19937 random(11);
  const Conv2dParams p{.padding = {1, 1}};
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const Shape x{9, 24, 24, 8}, w{40, 3, 3, 8}, y{9, 24, 24, 40};
    const oracle::Conv2dParams o = oracle_params(x, w, p);
    const auto whole = [&](std::int64_t n) {
      std::vector<double> v(oracle::at(n));
      for (double& e : v) e = static_cast<double>(random() % 5) - 2;
      return v;
    };
    // Integers: every order gives the same sums.
    const std::vector<double> xv = whole(o.x_size()), wv = whole(o.w_size()),
                              gv = whole(o.y_size());
    const Results r = run_all(p, Array(dtype, x, xv), Array(dtype, w, wv), no_bias(),
                              Array(dtype, y, gv), DType::fp32);
    CHECK(r.y == oracle::conv2d(o, xv, wv));
    CHECK(r.dx == oracle::conv2d_dgrad(o, wv, gv));
    CHECK(r.dw == oracle::conv2d_wgrad(o, xv, gv));
    CHECK(r.db == oracle::conv2d_bias_grad(o, gv));
    const Results added = run_all(p, Array(dtype, x, xv), Array(dtype, w, wv), no_bias(),
                                  Array(dtype, y, gv), DType::fp32, Write::accumulate);
    const auto plus_one = [](std::vector<double> v) {
      for (double& e : v) e += 1;
      return v;
    };
    CHECK(added.y == plus_one(r.y));
    CHECK(added.dx == plus_one(r.dx));
    CHECK(added.dw == plus_one(r.dw));
    CHECK(added.db == plus_one(r.db));
  }
}

TEST_CASE("conv2d on a device: a kernel for every channel, in runs of channels and one by one") {
  std::mt19937 random(14);
  for (const DType dtype : kFloating) {
    for (const std::int64_t channels : {2, 3, 32}) {
      const Conv2dParams p{.stride = {1, 2}, .padding = {1, 1}, .groups = channels};
      const Shape x{3, 28, 27, channels}, w{channels, 3, 3, 1};
      const oracle::Conv2dParams o = oracle_params(x, w, p);
      const Shape y{o.n, o.p(), o.q(), o.k};
      const auto whole = [&](std::int64_t n) {
        std::vector<double> v(oracle::at(n));
        for (double& e : v) e = static_cast<double>(random() % 5) - 2;
        return v;
      };
      const std::vector<double> xv = whole(o.x_size()), wv = whole(o.w_size()),
                                gv = whole(o.y_size()), bv = whole(channels);
      const Array bias(DType::bf16, {channels}, bv);
      const Results r = run_all(p, Array(dtype, x, xv), Array(dtype, w, wv), bias,
                                Array(dtype, y, gv), DType::fp32);
      CHECK(r.y == oracle::conv2d(o, xv, wv, bv));
      CHECK(r.dx == oracle::conv2d_dgrad(o, wv, gv));
      CHECK(r.dw == oracle::conv2d_wgrad(o, xv, gv));
    }
  }
}

TEST_CASE("conv2d on a device: an output's bits do not depend on the rest of the batch") {
  std::mt19937 random(12);
  const Conv2dParams p{.stride = {2, 1}, .padding = {1, 1}};
  const Shape x{5, 9, 11, 6}, w{7, 3, 3, 6};
  const Shape y = conv2d_shape(x, w, p).y();
  const std::vector<double> xv = normal(x.numel(), DType::fp16, random),
                            gv = normal(y.numel(), DType::fp16, random);
  const Array weights(DType::fp16, w, normal(w.numel(), DType::fp16, random));
  const Results all = run_all(p, Array(DType::fp16, x, xv), weights, no_bias(),
                              Array(DType::fp16, y, gv), DType::fp32);
  const auto one = [](const std::vector<double>& v) {
    const auto n = static_cast<std::ptrdiff_t>(v.size() / 5);
    return std::vector<double>(v.begin() + 3 * n, v.begin() + 4 * n);
  };
  const Results alone = run_all(p, Array(DType::fp16, {1, 9, 11, 6}, one(xv)), weights, no_bias(),
                                Array(DType::fp16, {1, y[1], y[2], y[3]}, one(gv)), DType::fp32);
  CHECK(alone.y == one(all.y));
  CHECK(alone.dx == one(all.dx));
}

TEST_CASE(
    "conv2d applies an activation before its one rounding, on the reference and on a device") {
  std::mt19937 random(13);
  const Shape x{2, 6, 5, 3};
  for (const std::int64_t kernel : {1, 3}) {
    for (const std::int64_t groups : {1, 3}) {
      const Shape w{3 * 4, kernel, kernel, 3 / groups};
      Conv2dParams p{.groups = groups};
      const Shape y = conv2d_shape(x, w, p).y();
      const Array in(DType::fp32, x, normal(x.numel(), DType::bf16, random)),
          weights(DType::fp32, w, normal(w.numel(), DType::bf16, random)),
          bias(DType::fp32, {12}, normal(12, DType::bf16, random));
      std::vector<double> want = forward(p, in, weights, &bias, Array(DType::fp32, y));
      for (double& v : want) v = v <= 0 ? 0 : v;
      p.activation = Activation::relu;
      CHECK(forward(p, in, weights, &bias, Array(DType::fp32, y)) == want);
      const oracle::Conv2dParams o = oracle_params(x, w, p);
      std::vector<double> exact = oracle::conv2d(o, in.values(), weights.values(), bias.values());
      for (double& v : exact) v = v <= 0 ? 0 : v;
      Scratch scratch;
      Array on_host(DType::fp32, y);
      conv2d_forward(Ref{}, p, *in, *weights, *bias, on_host.view(), scratch);
      CHECK(worst_ratio(on_host.values(), exact,
                        oracle::conv2d(o, absolute(in.values()), absolute(weights.values()),
                                       absolute(bias.values())),
                        kernel * kernel * 3 + 1, DType::fp32, DType::fp32) <= 1);
      CHECK_THROWS_AS(
          conv2d_forward(Ref{}, p, *in, *weights, *bias, on_host.out(Write::accumulate), scratch),
          Error);
    }
  }
}

TEST_CASE("conv2d on a device refuses views that do not fit, and skips what is not wanted") {
  SimDevice device;
  const SimTarget sim = device.target();
  Scratch scratch;
  const Array x(DType::fp32, {1, 4, 4, 2}, ones(32)), w(DType::fp32, {3, 3, 3, 2}, ones(54)),
      dy(DType::fp32, {1, 2, 2, 3}, ones(12)), bias(DType::fp32, {2}, ones(2)),
      integers(DType::i32, {1, 4, 4, 2});
  Array y(DType::fp32, {1, 2, 2, 3}), wrong(DType::fp32, {1, 2, 3, 3}),
      dw(DType::fp16, {3, 3, 3, 2}), db(DType::fp32, {2});
  const ConstView none = ConstView::absent();
  CHECK_THROWS_WITH_AS(conv2d_forward(sim, {}, *x, *w, none, wrong.view(), scratch),
                       "[conv2d] y of shape [1, 2, 3, 3], [1, 2, 2, 3] expected", Error);
  CHECK_THROWS_AS(conv2d_forward(sim, {}, *x, *w, *bias, y.view(), scratch), Error);
  CHECK_THROWS_AS(conv2d_forward(sim, {}, *integers, *w, none, y.view(), scratch), Error);
  CHECK_THROWS_AS(conv2d_grad_weight(sim, {}, *x, *dy, Out(dw.view(), Write::accumulate), scratch),
                  Error);
  CHECK_THROWS_AS(conv2d_grad_input(sim, {}, *x, *w, y.view(), scratch), Error);
  CHECK_THROWS_AS(conv2d_grad_bias(sim, {}, *dy, db.view(), scratch), Error);
  conv2d_forward(sim, {}, *x, *w, none, Out(), scratch);
  conv2d_grad_input(sim, {}, *dy, *w, Out(), scratch);
  conv2d_grad_weight(sim, {}, *x, *dy, Out(), scratch);
  conv2d_grad_bias(sim, {}, *dy, Out(), scratch);
  CHECK(device.emulator().counters().launches == 0);
}
