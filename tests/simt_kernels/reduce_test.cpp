#include "kernels/reduce/reduce.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/base/device_error.h"
#include "kernels/reduce/sum_tree.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/bound.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

oracle::Reduce oracle_of(Reduce op) {
  switch (op) {
    case Reduce::sum:
      return oracle::Reduce::sum;
    case Reduce::mean:
      return oracle::Reduce::mean;
    case Reduce::max:
      return oracle::Reduce::max;
    case Reduce::norm:
      return oracle::Reduce::norm;
  }
  return oracle::Reduce::sum;
}

Array forward(SimDevice& device, Reduce op, const ReduceParams& params, const Array& x, Array y,
              Write write = Write::overwrite) {
  const Resident there(device, x);
  return on_device(
      device, std::move(y),
      [&](const Out& out) {
        if (op == Reduce::max)
          max_forward(device.target(), params, there, out, Out(), device.scratch());
        else
          reduce_forward(device.target(), op, params, there, out, device.scratch());
      },
      write);
}

Array index_of_max(SimDevice& device, const ReduceParams& params, const Array& x, Array index) {
  const Resident there(device, x);
  return on_device(device, std::move(index), [&](const Out& out) {
    max_forward(device.target(), params, there, Out(), out, device.scratch());
  });
}

Array backward(SimDevice& device, Reduce op, const ReduceParams& params, const Array& x,
               const Array& dy, Array dx, Write write = Write::overwrite) {
  const Resident x_there(device, x), dy_there(device, dy);
  return on_device(
      device, std::move(dx),
      [&](const Out& out) {
        if (op == Reduce::max)
          max_backward(device.target(), params, x_there, dy_there, out);
        else
          reduce_backward(device.target(), op, params, x_there, dy_there, out, device.scratch());
      },
      write);
}

// All of x reduced to one number.
double reduced(SimDevice& device, Reduce op, const Array& x, DType out,
               Accumulator accumulator = Accumulator::fp32) {
  const ReduceParams params{.axes = all_axes(x.shape().rank()), .accumulator = accumulator};
  const Array y = forward(device, op, params, x, Array(out, {}));
  CHECK(y.guards_intact());
  return y[0];
}
double reduced(SimDevice& device, Reduce op, const Array& x) {
  return reduced(device, op, x, x.dtype());
}

struct Case {
  Shape shape;
  std::vector<std::int64_t> axes;
};
std::uint32_t mask_of(const Case& c) {
  std::uint32_t mask = 0;
  for (const std::int64_t axis : c.axes) mask |= 1U << axis;
  return mask;
}
const Case kCases[] = {
    {{1}, {0}},
    {{3}, {0}},
    {{31}, {0}},
    {{33}, {0}},
    {{255}, {0}},
    {{257}, {0}},
    {{1025}, {0}},
    {{8193}, {0}},
    {{30000}, {0}},
    {{1, 1}, {0, 1}},
    {{3, 4}, {0}},
    {{3, 4}, {1}},
    {{700, 3}, {0}},
    {{70, 300}, {0}},
    {{300, 70}, {1}},
    {{5, 2000}, {1}},
    {{3, 9000}, {1}},
    {{2100, 33}, {0}},
    {{33, 1, 5}, {0, 1}},
    {{4, 5, 6}, {0, 2}},
    {{4, 5, 6}, {1}},
    {{4, 5, 6}, {}},
    {{3, 40, 2, 9}, {1, 3}},
    {{3, 4, 2, 9}, {0, 2}},
    {{2, 3, 600}, {0, 2}},
    {{17, 3, 40, 40}, {0, 2, 3}},
    {{9, 8, 9, 40}, {0, 2}},
    {{2, 65, 257}, {0, 1}},
    {{2, 3, 2, 2, 1, 3}, {0, 3, 5}},
};

Arithmetic arithmetic(DType accumulator, DType output) {
  Arithmetic a;
  a.accumulator = format_of(accumulator);
  a.output = format_of(output);
  a.depth = [](std::int64_t n) { return static_cast<std::int64_t>(sum_depth(n)); };
  return a;
}

}  // namespace

TEST_CASE("sim: reductions of small integers are exact, over axes, types and schedules") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const Case& c : kCases) {
      if (c.shape.numel() > 30000) continue;
      for (const DType dtype : {DType::fp32, DType::bf16}) {
        CAPTURE(c.shape);
        CAPTURE(mask_of(c));
        std::vector<double> values = Uniform(21).take(c.shape.numel(), 3);
        for (double& v : values) v = std::round(v);
        const Array x(dtype, c.shape, values, k % 2);
        const Shape shape = reduced_shape(c.shape, mask_of(c), false);
        Array want(DType::fp64, shape);
        reduce_forward(Ref{}, Reduce::sum, {.axes = mask_of(c), .accumulator = Accumulator::fp64},
                       x, want.out());
        const Array got =
            forward(device, Reduce::sum, {.axes = mask_of(c)}, x, Array(DType::fp32, shape));
        CHECK(got.values() == want.values());
        CHECK(got.guards_intact());
      }
    }
    CHECK(device.emulator().allocated_bytes() == sizeof(DeviceErrors));
  }
}

TEST_CASE("sim: reductions agree with the oracle within the bounds, over axes, types and shapes") {
  SimDevice device(2);
  for (const Case& c : kCases) {
    const std::uint32_t mask = mask_of(c);
    const Shape shape = reduced_shape(c.shape, mask, false);
    for (const DType dtype : kFloating) {
      // The oracle takes no axes for all of them.
      if (c.axes.empty()) continue;
      const Array x(dtype, c.shape, Uniform(21).take(c.shape.numel(), 5), c.shape.numel() % 2);
      const Array dy(dtype, shape, Uniform(22).take(shape.numel()));
      for (const Reduce op : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::norm}) {
        CAPTURE(c.shape);
        CAPTURE(mask);
        CAPTURE(name(dtype));
        CAPTURE(name(op));
        const Arithmetic a = arithmetic(widest(dtype, DType::fp32), dtype);
        const bool keepdim = c.axes.size() % 2 == 0;
        const Array y = forward(device, op, {.axes = mask}, x,
                                Array(dtype, reduced_shape(c.shape, mask, keepdim)));
        CHECK(y.guards_intact());
        const Comparison values =
            compare(y, bound::reduce(oracle_of(op), x.values(), c.shape, c.axes, a));
        CHECK_MESSAGE(values.holds, describe(values));

        const Array index = op == Reduce::max
                                ? index_of_max(device, {.axes = mask}, x, Array(DType::i64, shape))
                                : x;
        const Array dx = backward(device, op, {.axes = mask}, index, dy, Array(dtype, c.shape));
        CHECK(dx.guards_intact());
        const Comparison gradients = compare(
            dx, bound::reduce_backward(oracle_of(op), x.values(), c.shape, c.axes, dy.values(), a));
        CHECK_MESSAGE(gradients.holds, describe(gradients));
      }
    }
  }
  CHECK(device.take_errors().code == 0);
}

TEST_CASE("sim: maxima, their places and gradients have the reference's bits") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const Case& c : kCases) {
      if (k != 0 && c.shape.numel() > 3000) continue;
      for (const DType dtype : kFloating) {
        CAPTURE(c.shape);
        const ReduceParams params{.axes = mask_of(c)};
        std::vector<double> values = Uniform(23).take(c.shape.numel(), 2);
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = std::round(values[i]);  // ties, and zeros of both signs
          if (i % 97 == 96) values[i] = kNan;
          if (i % 89 == 88) values[i] = -kInf;
        }
        const Shape shape = reduced_shape(c.shape, params.axes, false);
        const Array x(dtype, c.shape, values);
        Array y(dtype, shape), index(DType::i64, shape);
        max_forward(Ref{}, params, x, y.out(), index.out());
        CHECK(same_bits(forward(device, Reduce::max, params, x, Array(dtype, shape)), y));
        CHECK(same_bits(index_of_max(device, params, x, Array(DType::i64, shape)), index));
        const Array dy(dtype, shape, Uniform(24).take(shape.numel()));
        Array dx(dtype, c.shape);
        max_backward(Ref{}, params, index, dy, dx.out());
        CHECK(
            same_bits(backward(device, Reduce::max, params, index, dy, Array(dtype, c.shape)), dx));
        // Sums and means repeat the gradient.
        for (const Reduce op : {Reduce::sum, Reduce::mean}) {
          Scratch scratch;
          Array want(dtype, c.shape);
          reduce_backward(Ref{}, op, params, x, dy, want.out(), scratch);
          CHECK(same_bits(backward(device, op, params, x, dy, Array(dtype, c.shape)), want));
        }
      }
    }
  }
}

TEST_CASE("sim: a sum's bits do not depend on alignment, schedule or workers") {
  const Case cases[] = {
      {{30000}, {0}}, {{5, 2001}, {1}}, {{2100, 33}, {0}}, {{9, 8, 9, 41}, {0, 2}}};
  for (const Case& c : cases) {
    for (const DType dtype : {DType::fp32, DType::fp16}) {
      const Shape shape = reduced_shape(c.shape, mask_of(c), false);
      const std::vector<double> values = Uniform(31).take(c.shape.numel(), 100);
      std::vector<double> first;
      for (std::uint64_t k = 0; k < 8; ++k) {
        SimDevice device(k);
        device.emulator().config.workers = k % 2 == 0 ? 1 : 3;
        const Array x(dtype, c.shape, values, static_cast<std::int64_t>(k % 4));
        const Array y =
            forward(device, Reduce::sum, {.axes = mask_of(c)}, x, Array(DType::fp32, shape));
        if (k == 0) first = y.values();
        CHECK(y.values() == first);
      }
    }
  }
}

TEST_CASE("case 12 [RED] on sim: sum of fp16 ones stalls at 2048, bf16 at 256") {
  SimDevice device;
  const auto check = [&](DType dtype, std::int64_t n, double want) {
    const Array x(dtype, {n}, ones(n));
    CHECK(reduced(device, Reduce::sum, x) == want);
    CHECK(reduced(device, Reduce::mean, x) == 1);
  };
  check(DType::fp16, 4096, 4096);
  check(DType::fp16, 20000, 20000);
  check(DType::bf16, 4096, 4096);
  check(DType::bf16, 70000, 70144);
  CHECK(reduced(device, Reduce::sum, Array(DType::fp16, {4096}, ones(4096)), DType::fp16,
                Accumulator::fp16) == 2048);
}

TEST_CASE("case 13 [RED] on sim: intermediate sum overflows though the mean fits") {
  SimDevice device;
  const auto mean = [&](DType dtype, const std::vector<double>& values) {
    return reduced(device, Reduce::mean,
                   Array(dtype, {static_cast<std::int64_t>(values.size())}, values));
  };
  CHECK(mean(DType::fp16, {40000, 40000, 40000}) == 40000);
  CHECK(mean(DType::fp16, ones(100000)) == 1);
  CHECK(mean(DType::fp16, std::vector<double>(16384, 4)) == 4);
  CHECK(reduced(device, Reduce::sum, Array(DType::fp16, {70000}, ones(70000))) == kInf);
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    const double big = dtype == DType::fp64 ? 0x1p1023 : 0x1p127;
    CHECK(mean(dtype, {big, big, big, big}) == big);
    CHECK(mean(dtype, {big, big, -big, -big}) == 0);
    CHECK(mean(dtype, {big, kInf}) == kInf);
    CHECK(std::isnan(mean(dtype, {big, kNan})));
    const Array x(dtype, {4, 2}, {big, 1, big, 2, big, 3, big, 2});
    CHECK(forward(device, Reduce::mean, {.axes = 1}, x, Array(dtype, {2})).values() ==
          std::vector<double>{big, 2});
  }
}

TEST_CASE("case 15 [RED] on sim: max must not swallow NaN") {
  SimDevice device;
  for (const DType dtype : kFloating) {
    for (const std::vector<double>& x :
         {std::vector<double>{1, kNan, 2}, std::vector<double>{kNan, 1},
          std::vector<double>{-kInf, kNan}, std::vector<double>{kNan, -kInf, kInf}}) {
      const auto n = static_cast<std::int64_t>(x.size());
      CHECK(std::isnan(reduced(device, Reduce::max, Array(dtype, {n}, x))));
      std::vector<double> pairs;
      for (const double v : x) pairs.insert(pairs.end(), {v, 1.0});
      const Array y =
          forward(device, Reduce::max, {.axes = 1}, Array(dtype, {n, 2}, pairs), Array(dtype, {2}));
      CHECK(std::isnan(y[0]));
      CHECK(y[1] == 1);
    }
    CHECK(reduced(device, Reduce::max, Array(dtype, {2}, {-kInf, -kInf})) == -kInf);
    std::vector<double> late(10000, 1);
    late[9998] = kNan;
    CHECK(std::isnan(reduced(device, Reduce::max, Array(dtype, {10000}, late))));
    CHECK(std::isnan(reduced(device, Reduce::norm, Array(dtype, {10000}, late))));
  }
}

TEST_CASE("case 99 [CLIP] on sim: norm overflow when squaring") {
  SimDevice device;
  const auto norm = [&](DType dtype, const std::vector<double>& values) {
    return reduced(device, Reduce::norm,
                   Array(dtype, {static_cast<std::int64_t>(values.size())}, values));
  };
  CHECK(norm(DType::fp32, std::vector<double>(100, 1e20)) ==
        static_cast<double>(static_cast<float>(10 * static_cast<double>(1e20F))));
  CHECK(norm(DType::fp16, {300}) == 300);
  CHECK(norm(DType::fp32, {3 * 0x1p-149, 4 * 0x1p-149}) == 5 * 0x1p-149);
  CHECK(norm(DType::fp64, {3 * 0x1p1000, 4 * 0x1p1000}) == 5 * 0x1p1000);
  CHECK(norm(DType::fp64, {3 * 0x1p-1074, 4 * 0x1p-1074}) == 5 * 0x1p-1074);
  CHECK(norm(DType::fp64, {3 * 0x1p-501, 4 * 0x1p-499}) == std::hypot(3 * 0x1p-501, 4 * 0x1p-499));
  CHECK(norm(DType::fp64, {0x1p500, 1, 0x1p501}) == std::hypot(0x1p500, 0x1p501));
  CHECK(norm(DType::fp64, {kInf, 1}) == kInf);
  CHECK(std::isnan(norm(DType::fp64, {1, kNan, kInf})));
  CHECK(std::isnan(norm(DType::fp64, {1, kNan, 0x1p1000})));
  const Array x(DType::fp64, {2, 2}, {3 * 0x1p1000, 3, 4 * 0x1p1000, 4});
  CHECK(forward(device, Reduce::norm, {.axes = 1}, x, Array(DType::fp64, {2})).values() ==
        std::vector<double>{5 * 0x1p1000, 5});
  CHECK(backward(device, Reduce::norm, {.axes = 1}, Array(DType::fp32, {2}, {3e20, 4e20}),
                 Array(DType::fp32, {}, {1}), Array(DType::fp32, {2}))[0] == doctest::Approx(0.6));
}

TEST_CASE("sim: reductions of nothing") {
  SimDevice device;
  for (const DType dtype : kFloating) {
    const Array x(dtype, {0});
    CHECK(reduced(device, Reduce::sum, x) == 0);
    CHECK(std::isnan(reduced(device, Reduce::mean, x)));
    CHECK(reduced(device, Reduce::norm, x) == 0);
    CHECK_THROWS_WITH_AS(reduced(device, Reduce::max, x), "[max] of no elements: shape [0]", Error);
    const Array rows(dtype, {3, 0});
    CHECK(forward(device, Reduce::sum, {.axes = 2}, rows, Array(dtype, {3})).values() ==
          std::vector<double>(3, 0));
    const Array none(dtype, {0});
    CHECK(forward(device, Reduce::max, {.axes = 1}, rows, none).values().empty());
    CHECK(forward(device, Reduce::sum, {.axes = 1}, rows, none).values().empty());
    const Array dy(dtype, {3}, {1, 2, 3});
    CHECK(backward(device, Reduce::sum, {.axes = 2}, rows, dy, rows).values().empty());
    CHECK(backward(device, Reduce::norm, {.axes = 2}, rows, dy, rows).values().empty());
    // The norm's gradient at 0 is 0.
    CHECK(backward(device, Reduce::norm, {.axes = 1}, Array(dtype, {3}, {0, 0, 0}),
                   Array(dtype, {}, {2}), Array(dtype, {3}))
              .values() == std::vector<double>(3, 0));
  }
}

TEST_CASE("sim: the fp16 accumulator has the reference's bits; those of GPUs are refused") {
  SimDevice device(1);
  for (const Case& c : {Case{{3000}, {0}}, Case{{70, 5}, {0}}, Case{{4, 5, 6}, {0, 2}}}) {
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
      for (const Reduce op : {Reduce::sum, Reduce::mean}) {
        const ReduceParams params{.axes = mask_of(c), .accumulator = Accumulator::fp16};
        const Shape shape = reduced_shape(c.shape, params.axes, false);
        const Array x(dtype, c.shape, Uniform(21).take(c.shape.numel(), 5));
        Array want(DType::fp32, shape);
        reduce_forward(Ref{}, op, params, x, want.out());
        CHECK(same_bits(forward(device, op, params, x, Array(DType::fp32, shape)), want));
      }
    }
  }
  const Array x(DType::fp16, {4}, ones(4));
  CHECK_THROWS_WITH_AS(reduced(device, Reduce::sum, x, DType::fp32, Accumulator::h100),
                       doctest::Contains("accumulator h100 is modelled on cpu only"), Error);
  // fp32 terms have no tensor core: they are summed plainly, as on cpu.
  CHECK(reduced(device, Reduce::sum, Array(DType::fp32, {4}, ones(4)), DType::fp32,
                Accumulator::h100) == 4);
}

TEST_CASE("sim: reductions add to fp32, go to other types, and refuse what does not fit") {
  SimDevice device;
  const Array x(DType::fp16, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Array before(DType::fp32, {2}, {10, 20});
  CHECK(forward(device, Reduce::sum, {.axes = 2}, x, before, Write::accumulate).values() ==
        std::vector<double>{16, 35});
  CHECK(forward(device, Reduce::mean, {.axes = 2}, x, before, Write::accumulate).values() ==
        std::vector<double>{12, 25});
  CHECK(forward(device, Reduce::max, {.axes = 2}, x, before, Write::accumulate).values() ==
        std::vector<double>{13, 26});
  CHECK(forward(device, Reduce::sum, {.axes = 2, .accumulator = Accumulator::fp64}, x,
                Array(DType::fp64, {2, 1}))
            .values() == std::vector<double>{6, 15});
  const Array held(DType::fp32, {2, 3}, ones(6));
  CHECK(backward(device, Reduce::sum, {.axes = 2}, x, Array(DType::fp16, {2}, {1, 2}), held,
                 Write::accumulate)
            .values() == std::vector<double>{2, 2, 2, 3, 3, 3});

  const auto launches = device.emulator().counters().launches;
  CHECK_THROWS_AS(forward(device, Reduce::sum, {.axes = 4}, x, before), Error);
  CHECK_THROWS_AS(forward(device, Reduce::sum, {.axes = 1}, x, before), Error);
  CHECK_THROWS_AS(forward(device, Reduce::sum, {.axes = 2}, x, Array(DType::i32, {2})), Error);
  CHECK_THROWS_AS(
      forward(device, Reduce::sum, {.axes = 2}, x, Array(DType::fp16, {2}), Write::accumulate),
      Error);
  CHECK_THROWS_AS(index_of_max(device, {.axes = 2}, x, Array(DType::i32, {2})), Error);
  const Resident there(device, x);
  reduce_forward(device.target(), Reduce::sum, {.axes = 2}, there, Out(), device.scratch());
  max_forward(device.target(), {.axes = 2}, there, Out(), Out(), device.scratch());
  CHECK(device.emulator().counters().launches == launches);
}

TEST_CASE(
    "sim: an index that is none of its output's terms is reported, and changes nothing else") {
  SimDevice device;
  const Array dy(DType::fp32, {2}, {3, 4});
  const auto gradient = [&](std::vector<double> where) {
    return backward(device, Reduce::max, {.axes = 2}, Array(DType::i64, {2}, where), dy,
                    Array(DType::fp32, {2, 3}))
        .values();
  };
  CHECK(gradient({2, 3}) == std::vector<double>{0, 0, 3, 4, 0, 0});
  CHECK(device.take_errors().code == 0);
  for (const double bad : {-1.0, 6.0, 2.0}) {
    CHECK(gradient({1, bad}) == std::vector<double>{0, 3, 0, 0, 0, 0});
    const DeviceErrors report = device.take_errors();
    CHECK(describe(report) == concat("[max] index ", static_cast<std::int64_t>(bad),
                                     " of output 1 is not one of its terms"));
  }
}
