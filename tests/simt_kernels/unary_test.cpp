// Functions of one element on the emulator: against the oracle within verify's bounds, and against
// the reference where the arithmetic is the same.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/math.cuh"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/bound.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 31, 32, 33, 255, 256, 257, 2100};

constexpr Unary kAll[] = {Unary::relu,    Unary::gelu, Unary::gelu_tanh, Unary::tanh,
                          Unary::sigmoid, Unary::exp,  Unary::log};

oracle::Unary oracle_of(Unary op) { return static_cast<oracle::Unary>(op); }

// The functions of math.cuh and of the C library: exp and log are within 1 ulp, tanh 2, erfc 5.
Arithmetic arithmetic(Unary op, DType accumulator, DType output) {
  Arithmetic a;
  a.accumulator = format_of(accumulator);
  a.output = format_of(output);
  a.libm_ulps = op == Unary::gelu ? 5 : op == Unary::tanh || op == Unary::gelu_tanh ? 2 : 1;
  return a;
}

std::vector<double> inputs(Unary op, std::int64_t n) {
  std::vector<double> x = Uniform(17).take(n, op == Unary::exp ? 20 : 9);
  for (std::size_t i = 0; i < x.size(); i += 5) {
    const auto e = static_cast<int>(i % 24);
    x[i] = (i % 2 == 0 ? 1 : -1) * std::ldexp(1.0, 3 - e);
  }
  if (op == Unary::log)
    for (double& v : x) v = v == 0 ? 1 : std::abs(v);
  return x;
}

Array forward(SimDevice& device, const UnaryParams& params, const Array& x, Array y,
              Write write = Write::overwrite) {
  const Resident dx(device, x);
  return on_device(
      device, std::move(y),
      [&](const Out& out) { unary_forward(device.target(), params, dx, out); }, write);
}
Array backward(SimDevice& device, const UnaryParams& params, const Array& saved, const Array& dy,
               Array dx, Write write = Write::overwrite) {
  const Resident saved_there(device, saved), dy_there(device, dy);
  return on_device(
      device, std::move(dx),
      [&](const Out& out) { unary_backward(device.target(), params, saved_there, dy_there, out); },
      write);
}

}  // namespace

TEST_CASE("sim: functions of one element stay within their bounds, values and gradients") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const Unary op : kAll) {
      for (const DType dtype : kFloating) {
        for (const std::int64_t n : kSizes) {
          if (k != 0 && n != 257) continue;
          CAPTURE(name(op));
          CAPTURE(name(dtype));
          CAPTURE(n);
          const std::int64_t offset = n % 3;
          const Array x(dtype, {n}, inputs(op, n), offset);
          const Array y = forward(device, {.op = op}, x, Array(dtype, {n}, offset));
          CHECK(y.guards_intact());
          const Arithmetic a = arithmetic(op, widest(dtype, DType::fp32), dtype);
          const Comparison values = compare(y, bound::unary(oracle_of(op), x.values(), a));
          CHECK_MESSAGE(values.holds, describe(values));

          const Array dy(dtype, {n}, Uniform(18).take(n, 3), offset);
          const Array dx =
              backward(device, {.op = op}, saves_input(op) ? x : y, dy, Array(dtype, {n}, offset));
          CHECK(dx.guards_intact());
          const Comparison gradients = compare(
              dx, bound::unary_backward(oracle_of(op), x.values(), dy.values(), a, a.output));
          CHECK_MESSAGE(gradients.holds, describe(gradients));
        }
      }
    }
  }
}

TEST_CASE("sim: every mixture of types, aligned or not, overwriting or adding") {
  SimDevice device(2);
  const std::int64_t n = 75;
  for (const DType from : kFloating) {
    for (const DType to : kFloating) {
      for (const Write write : {Write::overwrite, Write::accumulate}) {
        if (write == Write::accumulate && is_16bit(to)) continue;
        for (const std::int64_t offset : {0, 1}) {
          for (const Accumulator accumulator : {Accumulator::fp32, Accumulator::fp64}) {
            CAPTURE(name(from));
            CAPTURE(name(to));
            // relu, and exp's gradient, are the same arithmetic as the reference's.
            const Array x(from, {n}, inputs(Unary::tanh, n), offset);
            Array want(to, {n}, Uniform(9).take(n));
            const Array before = want;
            const UnaryParams relu{.op = Unary::relu, .accumulator = accumulator};
            unary_forward(Ref{}, relu, x, want.out(write));
            CHECK(same_bits(forward(device, relu, x, before, write), want));
            for (const DType gradient : kFloating) {
              const Array dy(gradient, {n}, Uniform(18).take(n, 3), 1 - offset);
              want = before;
              const UnaryParams exp{.op = Unary::exp, .accumulator = accumulator};
              unary_backward(Ref{}, exp, x, dy, want.out(write));
              CHECK(same_bits(backward(device, exp, x, dy, before, write), want));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("sim: relu of every 16-bit pattern has the reference's bits") {
  SimDevice device;
  for (const DType dtype : {DType::fp16, DType::bf16}) {
    Array x(dtype, {65536}), dy(dtype, {65536});
    std::mt19937 random(3);
    for (int i = 0; i < 65536; ++i) {
      x.view().as<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
      dy.view().as<std::uint16_t>()[i] = static_cast<std::uint16_t>(random());
    }
    Array want(dtype, {65536});
    unary_forward(Ref{}, {.op = Unary::relu}, x, want.out());
    CHECK(same_bits(forward(device, {.op = Unary::relu}, x, Array(dtype, {65536})), want));
    unary_backward(Ref{}, {.op = Unary::relu}, x, dy, want.out());
    CHECK(same_bits(backward(device, {.op = Unary::relu}, x, dy, Array(dtype, {65536})), want));
  }
}

TEST_CASE("sim: functions of one element at their limits") {
  struct Limit {
    Unary op;
    double x, y, slope;
  };
  const Limit limits[] = {
      {Unary::gelu, kInf, kInf, 1},      {Unary::gelu, -kInf, 0, 0},
      {Unary::gelu, -40, 0, 0},          {Unary::gelu_tanh, kInf, kInf, 1},
      {Unary::gelu_tanh, -kInf, 0, 0},   {Unary::gelu_tanh, -1e13, 0, 0},
      {Unary::gelu_tanh, 1e13, 1e13, 1}, {Unary::tanh, kInf, 1, 0},
      {Unary::tanh, -kInf, -1, 0},       {Unary::sigmoid, kInf, 1, 0},
      {Unary::sigmoid, -kInf, 0, 0},     {Unary::exp, -kInf, 0, 0},
      {Unary::exp, kInf, kInf, kInf},    {Unary::log, 0, -kInf, kInf},
      {Unary::log, -0.0, -kInf, -kInf},  {Unary::log, kInf, kInf, 0},
      {Unary::relu, -kInf, 0, 0},
  };
  SimDevice device;
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    for (const Limit& limit : limits) {
      CAPTURE(name(limit.op));
      CAPTURE(limit.x);
      const Array x(dtype, {1}, {limit.x});
      const Array y = forward(device, {.op = limit.op}, x, Array(dtype, {1}));
      CHECK(y[0] == Array(dtype, {1}, {limit.y})[0]);
      const Array dy(dtype, {1}, {1});
      const Array dx =
          backward(device, {.op = limit.op}, saves_input(limit.op) ? x : y, dy, Array(dtype, {1}));
      CHECK(dx[0] == limit.slope);
    }
    for (const Unary op : kAll)
      CHECK(
          std::isnan(forward(device, {.op = op}, Array(dtype, {1}, {kNan}), Array(dtype, {1}))[0]));
    CHECK(std::isnan(
        forward(device, {.op = Unary::log}, Array(dtype, {1}, {-1}), Array(dtype, {1}))[0]));
  }
  const Array tail = forward(device, {.op = Unary::sigmoid}, Array(DType::fp32, {1}, {-89}),
                             Array(DType::fp32, {1}));
  CHECK(tail[0] > 0);
}

// The errors that math.cuh states, over numbers of every exponent.
TEST_CASE("kernels' exp, log, tanh, sigmoid and normal distribution are as accurate as they say") {
  const auto worst = [](auto function, auto exact, double low, double high, bool negative) {
    double largest = 0;
    for (std::uint32_t bits = 0; bits < 0x7F800000U; bits += 9973) {
      for (const std::uint32_t sign : {0U, 0x80000000U}) {
        const auto x = std::bit_cast<float>(bits | sign);
        if ((sign != 0 && !negative) || std::abs(x) < low || std::abs(x) > high) continue;
        const long double want = exact(static_cast<long double>(x));
        if (std::abs(want) < 0x1p-126L || std::abs(want) > 0x1.fffffep127L) continue;
        const auto error = static_cast<double>(std::abs((function(x) - want) / want));
        if (!(error <= largest)) largest = error;
      }
    }
    return largest / 0x1p-24;
  };
  CHECK(worst([](float x) { return math::exponential(x); },
              [](long double x) { return std::exp(x); }, 0, 200, true) <= 2);
  CHECK(worst([](float x) { return math::logarithm(x); }, [](long double x) { return std::log(x); },
              0, 4e38, false) <= 2);
  CHECK(worst([](float x) { return math::tangent(x); }, [](long double x) { return std::tanh(x); },
              0, 4e38, true) <= 4);
  CHECK(worst([](float x) { return math::sigmoid(x); },
              [](long double x) { return 1 / (1 + std::exp(-x)); }, 0, 4e38, true) <= 5);
  CHECK(worst([](float x) { return math::normal(x).distribution; },
              [](long double x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; }, 0, 20,
              true) <= 10);
  CHECK(worst([](float x) { return math::normal(x).density; },
              [](long double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0L)); },
              0, 20, true) <= 5);
}

TEST_CASE("sim: what functions of one element refuse, they refuse before any launch") {
  SimDevice device;
  const Array a(DType::fp32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Array b(DType::fp32, {2}, {1, 2});
  const Array integers(DType::i32, {2, 3}, {1, 2, 3, 4, 5, 6});
  Array y(DType::fp32, {2, 3}), half(DType::fp16, {2, 3});
  CHECK_THROWS_WITH_AS(forward(device, {.op = Unary::relu}, b, y),
                       "[relu] y has shape [2, 3], expected [2]", Error);
  CHECK_THROWS_WITH_AS(forward(device, {.op = Unary::relu}, integers, y),
                       "[relu] x is int32; a floating type expected", Error);
  CHECK_THROWS_WITH_AS(forward(device, {.op = Unary::relu}, a, half, Write::accumulate),
                       "[relu] cannot accumulate into y of type fp16; fp32 or fp64 expected",
                       Error);
  CHECK_THROWS_WITH_AS(backward(device, {.op = Unary::log}, a, b, y),
                       "[log] dy has shape [2], expected [2, 3]", Error);
  const Resident there(device, a);
  unary_forward(device.target(), {.op = Unary::relu}, there, Out());
  unary_backward(device.target(), {.op = Unary::relu}, there, there, Out());
  CHECK(device.emulator().counters().launches == 0);
}
