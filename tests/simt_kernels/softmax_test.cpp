#include "kernels/softmax/softmax.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/bound/softmax.h"
#include "verify/compare.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Array softmax(SimDevice& device, const Array& x, bool log, const SoftmaxParams& params = {},
              DType output = DType::i64, std::int64_t offset = 0) {
  Array y(output == DType::i64 ? x.dtype() : output, x.shape(), offset);
  SimScratch scratch(device);
  const Resident from(device, x);
  Resident to(device, y);
  if (log)
    log_softmax_forward(device.target(), params, *from, to.out());
  else
    softmax_forward(device.target(), params, *from, to.out(), scratch);
  to.fetch();
  CHECK(y.guards_intact());
  return y;
}

Array gradient(SimDevice& device, const Array& y, const Array& dy, bool log,
               const SoftmaxParams& params = {}, std::int64_t offset = 0) {
  Array dx(y.dtype(), y.shape(), offset);
  const Resident values(device, y), gradients(device, dy);
  Resident to(device, dx);
  if (log)
    log_softmax_backward(device.target(), params, *values, *gradients, to.out());
  else
    softmax_backward(device.target(), params, *values, *gradients, to.out());
  to.fetch();
  CHECK(dx.guards_intact());
  return dx;
}

oracle::SoftmaxParams geometry(const Shape& shape, int axis) {
  oracle::SoftmaxParams p;
  const int ax = shape.normalize_axis(axis, "test");
  p.n = shape[ax];
  for (int a = 0; a < shape.rank(); ++a)
    if (a != ax) (a < ax ? p.outer : p.inner) *= shape[a];
  return p;
}

// Roundings that a term of a row's sum passes through (softmax.cu): a thread's own elements, which
// are at most 97 where the row is resident; a rescaling (at most 4 each) before every pack of a
// longer row, which is more than a cluster's 65 and its tree; the tree.
std::int64_t depth(std::int64_t n, std::int64_t inner) {
  if (inner != 1) return n / 8 + 4;
  if (n <= 16384) return std::min<std::int64_t>(n, 97) + 8;
  return n / 256 + 8 + 4 * (n / 512 + 8);
}

Arithmetic arithmetic(DType in, DType out, const oracle::SoftmaxParams& p) {
  const std::int64_t inner = p.inner;
  return {.accumulator = in == DType::fp64 ? kFp64 : kFp32,
          .output = format_of(out),
          .depth = [inner](std::int64_t n) { return depth(n, inner); }};
}

// Errors of gradients as functions of the saved y itself.
//   y (dy - t), t = sum(dy y):  |y| (gamma_{h+1} sum|dy y| + 2 u |dy - t|)
//   dy - exp(y) t, t = sum(dy): |exp(y) t| 3u + exp(y) gamma_h sum|dy| + u |dx|
void check_gradient(const Array& got, const Array& y, const Array& dy, bool log,
                    const oracle::SoftmaxParams& p) {
  const double u = arithmetic_roundoff(y.dtype());
  const auto h = static_cast<double>(depth(p.n, p.inner));
  const double eta = y.dtype() == DType::fp64 ? 0x1p-1074 : 0x1p-149;
  const std::vector<double> ys = y.values(), dys = dy.values();
  std::vector<double> want(ys.size()), tolerance(ys.size());
  for (std::int64_t line = 0; line < p.outer * p.inner && p.n != 0; ++line) {
    const std::int64_t base = line / p.inner * p.n * p.inner + line % p.inner;
    const auto at = [&](std::int64_t i) { return static_cast<std::size_t>(base + i * p.inner); };
    long double t = 0;
    long double magnitude = 0;
    for (std::int64_t i = 0; i < p.n; ++i) {
      const long double term = log ? dys[at(i)] : static_cast<long double>(dys[at(i)]) * ys[at(i)];
      t += term;
      magnitude += std::abs(term);
    }
    for (std::int64_t i = 0; i < p.n; ++i) {
      const std::size_t k = at(i);
      const long double weight =
          log ? std::exp(static_cast<long double>(ys[k])) : static_cast<long double>(ys[k]);
      const long double dx = log ? dys[k] - weight * t : weight * (dys[k] - t);
      want[k] = static_cast<double>(dx);
      const auto error = static_cast<double>(weight * roundoff::gamma(h + 1, u) * magnitude +
                                             2 * u * std::abs(dx) + 3 * u * weight * std::abs(t));
      tolerance[k] = test::rounded_tolerance(want[k], error + eta, got.dtype());
    }
  }
  const Comparison c = compare(got, want, tolerance);
  CHECK_MESSAGE(c.holds, describe(c));
}

}  // namespace

TEST_CASE("case 34 [LOSS] log_softmax in fp16 far from zero") {
  SimDevice device;
  const Array x(DType::fp16, {2}, {-20000, -20000});
  CHECK(softmax(device, x, false).values() == std::vector<double>{0.5, 0.5});
  CHECK(softmax(device, x, true).values() == std::vector<double>{-0.693359375, -0.693359375});
}

TEST_CASE("case 35 [LOSS] log(softmax) is not log_softmax") {
  SimDevice device;
  CHECK(softmax(device, Array(DType::fp32, {3}, {0, -104, -200}), true).values() ==
        std::vector<double>{0, -104, -200});
  CHECK(softmax(device, Array(DType::fp16, {2}, {0, -20}), true).values() ==
        std::vector<double>{0, -20});
  CHECK(softmax(device, Array(DType::fp16, {2}, {0, -20}), false)[1] == 0);
}

TEST_CASE("case 36 [LOSS] extreme logits, along either kind of axis and at any length") {
  SimDevice device;
  for (const Shape& shape : {Shape{2}, Shape{2, 1}, Shape{1, 2}, Shape{2, 2}}) {
    const int axis = shape[0] == 2 ? 0 : 1;
    const std::vector<double> values = shape.numel() == 2
                                           ? std::vector<double>{65504, -65504}
                                           : std::vector<double>{65504, 65504, -65504, -65504};
    const Array x(DType::fp16, shape, values);
    CHECK(softmax(device, x, false, {.axis = axis})[0] == 1);
    CHECK(softmax(device, x, false, {.axis = axis})[x.size() - 1] == 0);
    CHECK(softmax(device, x, true, {.axis = axis})[x.size() - 1] == -kInf);
  }
  for (const bool log : {false, true}) {
    for (const DType dtype : kFloating) {
      for (const std::int64_t n : {3, 50, 300, 9000}) {
        if (n == 9000 && dtype == DType::fp64) continue;
        for (const double bad : {kInf, kNan, -kInf}) {
          for (const bool columns : {false, true}) {
            // Two lines; the first holds one bad value, or nothing but -inf.
            const Shape shape = columns ? Shape{n, 2} : Shape{2, n};
            std::vector<double> values(static_cast<std::size_t>(2 * n), 1.0);
            for (std::int64_t i = 0; i < n; ++i)
              if (bad == -kInf || i == n - 1)
                values[static_cast<std::size_t>(columns ? 2 * i : i)] = bad;
            const Array y =
                softmax(device, Array(dtype, shape, values), log, {.axis = columns ? 0 : 1});
            const std::vector<double> ys = y.values();
            bool right = true;
            for (std::int64_t i = 0; i < n; ++i) {
              right = right && std::isnan(ys[static_cast<std::size_t>(columns ? 2 * i : i)]) &&
                      std::isfinite(ys[static_cast<std::size_t>(columns ? 2 * i + 1 : n + i)]);
            }
            CHECK(right);
          }
        }
        std::vector<double> masked(static_cast<std::size_t>(n), -kInf);
        masked[static_cast<std::size_t>(n - 1)] = -5;
        const Array y = softmax(device, Array(dtype, {n}, masked), log);
        CHECK(y[n - 1] == (log ? 0 : 1));
        CHECK(y[0] == (log ? -kInf : 0));
      }
    }
  }
  const Array equal(DType::fp16, {70000}, std::vector<double>(70000, 3));
  CHECK(softmax(device, equal, false)[69999] == Array(DType::fp16, {1}, {1.0 / 70000})[0]);
}

TEST_CASE("softmax and its gradients within the computed bounds: lengths, axes, types, places") {
  struct Case {
    Shape shape;
    int axis;
    std::uint64_t schedules = 1;
  };
  const Case cases[] = {{{1}, 0},           {{5, 1}, 1},        {{9, 2}, 1},      {{3, 5}, 1, 4},
                        {{3, 5}, 0, 4},     {{5, 31}, 1},       {{5, 32}, 1},     {{5, 33}, 1},
                        {{3, 255}, 1},      {{3, 256}, 1},      {{3, 257}, 1, 4}, {{2, 1000}, 1},
                        {{2, 1024}, 1},     {{3, 3072}, 1},     {{3, 6000}, 1},   {{2, 5000}, 1, 2},
                        {{1, 8192}, 1},     {{1, 8193}, 1, 2},  {{1, 200000}, 1}, {{40, 300}, 0},
                        {{2, 33, 7}, 1, 4}, {{2, 3, 4, 5}, -2}, {{1, 1}, 0},      {{0, 3}, 1},
                        {{3, 0}, 1},        {{3, 0}, 0}};
  for (const Case& c : cases) {
    const oracle::SoftmaxParams p = geometry(c.shape, c.axis);
    for (std::uint64_t k = 0; k < c.schedules; ++k) {
      SimDevice device(k);
      for (const DType dtype : kFloating) {
        if (p.n > 100000 && (dtype == DType::fp64 || dtype == DType::bf16)) continue;
        for (const std::int64_t offset : {0, 1}) {
          if (offset == 1 && p.n > 6000 && dtype != DType::bf16) continue;
          CAPTURE(c.shape);
          CAPTURE(c.axis);
          CAPTURE(name(dtype));
          CAPTURE(offset);
          const std::int64_t size = c.shape.numel();
          const Array x(dtype, c.shape, Uniform(51).take(size, 8), offset);
          const Array dy(dtype, c.shape, Uniform(52).take(size), offset);
          const std::vector<double> xs = x.values();
          const Arithmetic a = arithmetic(dtype, dtype, p);
          const SoftmaxParams params{.axis = c.axis};
          const Array y = softmax(device, x, false, params, dtype, offset);
          const Array z = softmax(device, x, true, params, dtype, offset);
          const Comparison cy = compare(y, bound::softmax(p, xs, a));
          CHECK_MESSAGE(cy.holds, describe(cy));
          const Comparison cz = compare(z, bound::log_softmax(p, xs, a));
          CHECK_MESSAGE(cz.holds, describe(cz));
          check_gradient(gradient(device, y, dy, false, params, offset), y, dy, false, p);
          // Neighbours at another alignment.
          check_gradient(gradient(device, z, dy, true, params, 1 - offset), z, dy, true, p);
        }
      }
    }
  }
}

TEST_CASE("rows that a cluster holds on sm_90, and a block reads twice elsewhere") {
  struct Case {
    std::int64_t rows, n;
    DType dtype;
    std::int64_t offset;
  };
  for (const Case& c : {Case{3, 16385, DType::bf16, 0},
                        {2, 16392, DType::fp32, 1},
                        {1, 32776, DType::fp16, 0},
                        {2, 65544, DType::bf16, 0},
                        {1, 131072, DType::fp16, 0},
                        {1, 131073, DType::fp16, 0}}) {
    const Shape shape{c.rows, c.n};
    const oracle::SoftmaxParams p = geometry(shape, 1);
    const Array x(c.dtype, shape, Uniform(81).take(shape.numel(), 8), c.offset);
    const Array dy(c.dtype, shape, Uniform(82).take(shape.numel()), c.offset);
    const Arithmetic a = arithmetic(c.dtype, c.dtype, p);
    for (const auto architecture : {simt::SimArchitecture::sm_90a, simt::SimArchitecture::sm_80}) {
      CAPTURE(c.n);
      SimDevice device(5);
      device.emulator().config.architecture = architecture;
      const Array y = softmax(device, x, false);
      const Array z = softmax(device, x, true);
      const Comparison cy = compare(y, bound::softmax(p, x.values(), a));
      CHECK_MESSAGE(cy.holds, describe(cy));
      const Comparison cz = compare(z, bound::log_softmax(p, x.values(), a));
      CHECK_MESSAGE(cz.holds, describe(cz));
      check_gradient(gradient(device, y, dy, false), y, dy, false, p);
      check_gradient(gradient(device, z, dy, true, {}, 1 - c.offset), z, dy, true, p);
    }
  }
}

TEST_CASE("a row has the same bits wherever it stands in a batch") {
  SimDevice device;
  for (const std::int64_t n : {3, 19, 64, 257, 1001, 2048, 5001, 9001, 20001}) {
    const std::int64_t rows = 3;
    const std::vector<double> values = Uniform(71).take(rows * n, 9);
    const Array x(DType::bf16, {rows, n}, values);
    const Array y = softmax(device, x, true);
    const std::vector<double> dx = gradient(device, y, x, true).values();
    for (std::int64_t r = 0; r < rows; ++r) {
      CAPTURE(n);
      CAPTURE(r);
      const auto part = [&](const std::vector<double>& v) {
        return std::vector<double>(v.begin() + r * n, v.begin() + (r + 1) * n);
      };
      const Array alone(DType::bf16, {1, n}, part(values));
      const Array z = softmax(device, alone, true);
      CHECK(z.values() == part(y.values()));
      CHECK(gradient(device, z, alone, true).values() == part(dx));
    }
  }
}

TEST_CASE("the same bits under every schedule") {
  for (const Shape& shape :
       {Shape{7, 13}, Shape{3, 700}, Shape{2, 9001}, Shape{2, 17000}, Shape{50, 3, 9}}) {
    const int axis = 1;
    const Array x(DType::bf16, shape, Uniform(61).take(shape.numel(), 20));
    SimDevice first(0);
    const std::vector<double> y = softmax(first, x, false, {.axis = axis}).values();
    for (std::uint64_t k = 1; k < 2 * kSchedules; ++k) {
      SimDevice device(k);
      CHECK(softmax(device, x, false, {.axis = axis}).values() == y);
    }
  }
}

TEST_CASE("case 121 [CAST] fp16 with fp32 outputs and gradients, an fp64 accumulator, adding") {
  SimDevice device;
  for (const Shape& shape : {Shape{2, 3, 2}, Shape{2, 50}, Shape{1, 2000}}) {
    const std::int64_t size = shape.numel();
    const oracle::SoftmaxParams p = geometry(shape, 1);
    const Array x(DType::fp16, shape, Uniform(53).take(size, 4));
    const Array y = softmax(device, x, false, {.axis = 1}, DType::fp32);
    Arithmetic a = arithmetic(DType::fp16, DType::fp32, p);
    a.depth = [](std::int64_t n) { return n; };
    const Comparison c = compare(y, bound::softmax(p, x.values(), a));
    CHECK_MESSAGE(c.holds, describe(c));
    a.accumulator = kFp64;
    const Array y64 =
        softmax(device, x, true, {.axis = 1, .accumulator = Accumulator::fp64}, DType::fp64);
    a.output = kFp64;
    const Comparison c64 = compare(y64, bound::log_softmax(p, x.values(), a));
    CHECK_MESSAGE(c64.holds, describe(c64));

    const Array dy(DType::fp32, shape, Uniform(54).take(size));
    Array dx16(DType::fp16, shape);
    Array dx32(DType::fp32, shape, std::vector<double>(static_cast<std::size_t>(size), 0.0));
    const Resident ys(device, y), dys(device, dy);
    Resident to16(device, dx16), to32(device, dx32);
    softmax_backward(device.target(), {.axis = 1}, *ys, *dys, to16.out());
    softmax_backward(device.target(), {.axis = 1}, *ys, *dys, to32.out(Write::accumulate));
    to16.fetch();
    to32.fetch();
    // The fp16 gradient is the fp32 one, rounded once.
    CHECK(dx16.values() == Array(DType::fp16, shape, dx32.values()).values());
    softmax_backward(device.target(), {.axis = 1}, *ys, *dys, to32.out(Write::accumulate));
    const std::vector<double> once = dx32.values();
    to32.fetch();
    for (std::size_t i = 0; i < once.size(); ++i) REQUIRE(dx32.values()[i] == 2 * once[i]);
  }
}

TEST_CASE("what is not wanted is not launched; what does not fit is refused before a launch") {
  SimDevice device;
  SimScratch scratch(device);
  const Array x(DType::fp32, {2, 3}, std::vector<double>(6, 0));
  Array y(DType::fp32, {2, 3}), z(DType::fp32, {3, 2}), h(DType::fp16, {2, 3});
  const Resident from(device, x);
  Resident to(device, y), wrong(device, z), half(device, h);
  const auto sim = device.target();
  softmax_forward(sim, {}, *from, Out(), scratch);
  log_softmax_backward(sim, {}, *from, *from, Out());
  CHECK_THROWS_WITH_AS(softmax_forward(sim, {.axis = 2}, *from, to.out(), scratch),
                       "[softmax] axis 2 is out of range for shape [2, 3]", Error);
  CHECK_THROWS_WITH_AS(log_softmax_forward(sim, {}, *from, wrong.out()),
                       "[log_softmax] y has shape [3, 2], expected [2, 3]", Error);
  CHECK_THROWS_AS(log_softmax_forward(sim, {}, *from, half.out(Write::accumulate)), Error);
  CHECK_THROWS_AS(softmax_backward(sim, {}, *from, *wrong, to.out()), Error);
  CHECK(device.emulator().counters().launches == 0);
}
