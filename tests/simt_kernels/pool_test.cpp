#include "kernels/pool/pool.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/base/format.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/bound/reduce.h"
#include "verify/compare.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

// Everything that pooling writes, by the reference and by a device.
struct Pooled {
  Array max, argmax, mean, dmax, dmean;
};

Pooled on_reference(const Pool2dParams& p, Accumulator accumulator, const Array& x, const Array& dy,
                    Pooled to, Write write, Write write_dx) {
  Scratch scratch;
  max_pool2d_forward(Ref{}, p, *x, to.max.out(write), to.argmax.out(), scratch);
  avg_pool2d_forward(Ref{}, p, accumulator, *x, to.mean.out(write), scratch);
  max_pool2d_backward(Ref{}, p, *to.argmax, *dy, to.dmax.out(write_dx), scratch);
  avg_pool2d_backward(Ref{}, p, *dy, to.dmean.out(write_dx), scratch);
  return to;
}

Pooled on_device(SimDevice& device, const Pool2dParams& p, Accumulator accumulator, const Array& x,
                 const Array& dy, Pooled to, Write write, Write write_dx) {
  SimScratch workspace(device);
  Scratch& scratch = workspace;
  const Resident in(device, x), grad(device, dy);
  Resident max(device, to.max), argmax(device, to.argmax), mean(device, to.mean),
      dmax(device, to.dmax), dmean(device, to.dmean);
  max_pool2d_forward(device.target(), p, *in, max.out(write), argmax.out(), scratch);
  avg_pool2d_forward(device.target(), p, accumulator, *in, mean.out(write), scratch);
  max_pool2d_backward(device.target(), p, *argmax, *grad, dmax.out(write_dx), scratch);
  avg_pool2d_backward(device.target(), p, *grad, dmean.out(write_dx), scratch);
  for (Resident* r : {&max, &argmax, &mean, &dmax, &dmean}) r->fetch();
  return to;
}

}  // namespace

TEST_CASE("case 15 [RED] max must not swallow NaN: max pooling on a device") {
  SimDevice device;
  Scratch none;
  const std::vector<std::vector<double>> windows = {
      {1, kNaN, 2, 0}, {kNaN, 1, 0, 0}, {-kInf, kNaN, 0, 0}, {1, 2, 3, kNaN}};
  const double first_nan[] = {1, 0, 1, 3};
  for (const DType dtype : kFloating) {
    for (std::size_t i = 0; i < windows.size(); ++i) {
      const Array x(dtype, {1, 2, 2, 1}, windows[i]);
      Array y(dtype, {1, 1, 1, 1}), argmax(DType::i32, {1, 1, 1, 1});
      const Resident in(device, x);
      Resident out(device, y), winners(device, argmax);
      max_pool2d_forward(device.target(), {}, *in, out.out(), winners.out(), none);
      out.fetch();
      winners.fetch();
      CHECK(std::isnan(y.values()[0]));
      CHECK(argmax.values()[0] == first_nan[i]);
    }
    // The first of equal values wins; padding never does.
    Array y(dtype, {1, 2, 2, 1}), argmax(DType::i32, {1, 2, 2, 1});
    const Array x(dtype, {1, 2, 2, 1}, std::vector<double>(4, -kInf));
    const Resident in(device, x);
    Resident out(device, y), winners(device, argmax);
    max_pool2d_forward(device.target(), {.padding = {1, 1}}, *in, out.out(), winners.out(), none);
    out.fetch();
    winners.fetch();
    CHECK(y.values() == std::vector<double>(4, -kInf));
    CHECK(argmax.values() == std::vector<double>{0, 1, 2, 3});
  }
}

TEST_CASE("pooling on a device has the reference's bits, over types, geometries and schedules") {
  std::mt19937 random(5);
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(random() % from.size()));
  };
  int ran = 0;
  for (int trial = 0; trial < 400; ++trial) {
    CAPTURE(trial);
    Pool2dParams p;
    p.kernel = {pick({1, 2, 3}), pick({1, 2, 3, 5})};
    p.stride = {pick({1, 2, 3}), pick({1, 2, 4})};
    p.padding = {pick({0, 1}), pick({0, 1, 2})};
    p.count_include_pad = random() % 2 == 0;
    const Shape x{pick({0, 1, 3}), pick({1, 2, 5, 8}), pick({1, 3, 6, 9}),
                  pick({0, 1, 2, 4, 7, 8, 33, 160})};
    const auto fits = [&](std::size_t i, int axis) {
      return p.padding[i] <= p.kernel[i] / 2 && p.kernel[i] <= x[axis] + 2 * p.padding[i];
    };
    if (!fits(0, 1) || !fits(1, 2)) continue;
    ++ran;
    const DType dtype = kFloating[random() % 4], out = kFloating[random() % 4];
    const Shape y = pool2d_shape(x, p);
    const std::int64_t offset = pick({0, 0, 1, 2});
    std::vector<double> v = normal(x.numel(), dtype, random);
    // Ties, and values that nothing beats.
    for (double& e : v) e = random() % 3 == 0 ? std::round(e) : e;
    if (!v.empty() && random() % 4 == 0) v[random() % v.size()] = kNaN;
    const Array input(dtype, x, v, offset),
        grad(dtype, y, normal(y.numel(), dtype, random), offset);
    const Write write = !is_16bit(out) && random() % 2 == 0 ? Write::accumulate : Write::overwrite;
    const auto output = [&](DType d, const Shape& shape) {
      return Array(d, shape, normal(shape.numel(), d, random), offset);
    };
    const Pooled before{output(out, y), Array(DType::i32, y, offset), output(out, y),
                        output(out, x), output(out, x)};
    const Accumulator accumulator =
        std::array{Accumulator::fp32, Accumulator::fp64, Accumulator::fp16}[random() % 3];
    const Pooled want = on_reference(p, accumulator, input, grad, before, write, write);
    SimDevice device(static_cast<std::uint64_t>(trial) % kSchedules);
    const Pooled got = on_device(device, p, accumulator, input, grad, before, write, write);
    CHECK(same_bits(got.max, want.max));
    CHECK(same_bits(got.argmax, want.argmax));
    CHECK(same_bits(got.mean, want.mean));
    CHECK(same_bits(got.dmax, want.dmax));
    CHECK(same_bits(got.dmean, want.dmean));
  }
  CHECK(ran > 150);
}

TEST_CASE("pooling on a device meets the oracle within the bound") {
  std::mt19937 random(6);
  const oracle::Pool2dParams o{.n = 2,
                               .h = 7,
                               .w = 9,
                               .c = 20,
                               .kernel_h = 3,
                               .kernel_w = 2,
                               .stride_h = 2,
                               .stride_w = 1,
                               .pad_h = 1,
                               .pad_w = 1};
  const Pool2dParams p{.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 1}};
  for (const DType dtype : kFloating) {
    const Shape xs{2, 7, 9, 20}, ys = pool2d_shape(xs, p);
    const std::vector<double> x = normal(xs.numel(), dtype, random),
                              dy = normal(ys.numel(), dtype, random);
    SimDevice device;
    const Pooled got =
        on_device(device, p, Accumulator::fp32, Array(dtype, xs, x), Array(dtype, ys, dy),
                  {Array(dtype, ys), Array(DType::i32, ys), Array(dtype, ys), Array(dtype, xs),
                   Array(dtype, xs)},
                  Write::overwrite, Write::overwrite);
    const Arithmetic a{.accumulator = dtype == DType::fp64 ? kFp64 : kFp32,
                       .output = format_of(dtype)};
    CHECK(compare(*got.max, bound::max_pool2d(o, x, a)).holds);
    CHECK(compare(*got.mean, bound::avg_pool2d(o, x, a)).holds);
    CHECK(compare(*got.dmax, bound::max_pool2d_backward(o, x, dy, a)).holds);
    CHECK(compare(*got.dmean, bound::avg_pool2d_backward(o, dy, a)).holds);
  }
}

TEST_CASE(
    "pooling on a device launches nothing for bad input, empty batches and unwanted outputs") {
  SimDevice device;
  Scratch scratch;
  const Shape x{1, 4, 4, 2};
  const Array in(DType::fp32, x, ones(32)), dy(DType::fp32, {1, 2, 2, 2}, ones(8)),
      labels(DType::i64, {1, 2, 2, 2}), nothing(DType::fp32, {0, 4, 4, 2});
  Array y(DType::fp32, {1, 2, 2, 2}), wrong(DType::fp32, {1, 2, 2, 1}), dx(DType::fp32, x),
      half(DType::fp16, x), empty(DType::fp32, {0, 2, 2, 2});
  const auto sim = device.target();
  CHECK_THROWS_AS(max_pool2d_forward(sim, {}, *in, wrong.view(), Out(), scratch), Error);
  CHECK_THROWS_AS(max_pool2d_forward(sim, {}, *in, y.view(), y.view(), scratch), Error);
  CHECK_THROWS_AS(avg_pool2d_forward(sim, {}, Accumulator::fp32, *in, wrong.view(), scratch),
                  Error);
  CHECK_THROWS_AS(max_pool2d_backward(sim, {}, *labels, *dy, dx.view(), scratch), Error);
  CHECK_THROWS_AS(avg_pool2d_backward(sim, {}, *dy, Out(half.view(), Write::accumulate), scratch),
                  Error);
  avg_pool2d_backward(sim, {}, *dy, Out(), scratch);
  avg_pool2d_forward(sim, {}, Accumulator::fp32, *in, Out(), scratch);
  max_pool2d_forward(sim, {}, *nothing, empty.view(), Out(), scratch);
  CHECK(device.emulator().counters().launches == 0);
}
