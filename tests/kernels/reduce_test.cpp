#include "kernels/reduce/reduce.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/base/tensor_core.h"
#include "kernels/reduce/sum_tree.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "verify/oracle/reduce.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// All of x reduced to one number.
double reduced(Reduce op, const Array& x, DType out, Accumulator acc = Accumulator::fp32) {
  Array y(out, {});
  const ReduceParams params{.axes = all_axes(x.shape().rank()), .accumulator = acc};
  if (op == Reduce::max)
    max_forward(Ref{}, params, x, y.out(), Out());
  else
    reduce_forward(Ref{}, op, params, x, y.out());
  CHECK(y.guards_intact());
  return y[0];
}
double reduced(Reduce op, const Array& x) { return reduced(op, x, x.dtype()); }

std::vector<double> gradient(Reduce op, const Array& x, const Array& dy, std::uint32_t axes) {
  Array dx(x.dtype(), x.shape());
  Scratch scratch;
  if (op == Reduce::max) {
    Array index(DType::i64, dy.shape());
    max_forward(Ref{}, {.axes = axes}, x, Out(), index.out());
    max_backward(Ref{}, {.axes = axes}, index, dy, dx.out());
  } else {
    reduce_backward(Ref{}, op, {.axes = axes}, x, dy, dx.out(), scratch);
  }
  CHECK(dx.guards_intact());
  return dx.values();
}

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

}  // namespace

TEST_CASE("case 12 [RED] sum of fp16 ones stalls at 2048, bf16 at 256") {
  const auto check = [](DType dtype, std::int64_t n, double want) {
    const Array x(dtype, {n}, ones(n));
    CHECK(reduced(Reduce::sum, x) == want);
    CHECK(reduced(Reduce::mean, x) == 1);
  };
  check(DType::fp16, 4096, 4096);
  check(DType::fp16, 20000, 20000);
  check(DType::bf16, 4096, 4096);
  check(DType::bf16, 70000, 70144);
  // What a person asks for with an fp16 accumulator is what a loop in fp16 gives.
  CHECK(reduced(Reduce::sum, Array(DType::fp16, {4096}, ones(4096)), DType::fp16,
                Accumulator::fp16) == 2048);
}

TEST_CASE("case 13 [RED] intermediate sum overflows though the mean fits") {
  CHECK(reduced(Reduce::mean, Array(DType::fp16, {3}, {40000, 40000, 40000})) == 40000);
  CHECK(reduced(Reduce::mean, Array(DType::fp16, {100000}, ones(100000))) == 1);
  CHECK(reduced(Reduce::mean, Array(DType::fp16, {16384}, std::vector<double>(16384, 4))) == 4);
  CHECK(reduced(Reduce::sum, Array(DType::fp16, {70000}, ones(70000))) == kInf);
  // The same at the top of the wider types, along either kind of axis; infinities stay.
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    const double big = dtype == DType::fp64 ? 0x1p1023 : 0x1p127;
    CHECK(reduced(Reduce::mean, Array(dtype, {4}, {big, big, big, big})) == big);
    CHECK(reduced(Reduce::mean, Array(dtype, {4}, {big, big, -big, -big})) == 0);
    CHECK(reduced(Reduce::mean, Array(dtype, {2}, {big, kInf})) == kInf);
    CHECK(std::isnan(reduced(Reduce::mean, Array(dtype, {2}, {big, kNan}))));
    const Array x(dtype, {4, 2}, {big, 1, big, 2, big, 3, big, 2});
    Array y(dtype, {2});
    reduce_forward(Ref{}, Reduce::mean, {.axes = 1}, x, y.out());
    CHECK(y.values() == std::vector<double>{big, 2});
  }
}

TEST_CASE("case 15 [RED] max must not swallow NaN") {
  for (const DType dtype : kFloating) {
    for (const std::vector<double>& x :
         {std::vector<double>{1, kNan, 2}, std::vector<double>{kNan, 1},
          std::vector<double>{-kInf, kNan}, std::vector<double>{kNan, -kInf, kInf}}) {
      const Array row(dtype, {static_cast<std::int64_t>(x.size())}, x);
      CHECK(std::isnan(reduced(Reduce::max, row)));
      // the same along columns
      const Array column(dtype, {static_cast<std::int64_t>(x.size()), 1}, x);
      Array y(dtype, {1});
      max_forward(Ref{}, {.axes = 1}, column, y.out(), Out());
      CHECK(std::isnan(y[0]));
    }
    CHECK(reduced(Reduce::max, Array(dtype, {2}, {-kInf, -kInf})) == -kInf);
    std::vector<double> late(1000, 1);
    late[998] = kNan;
    CHECK(std::isnan(reduced(Reduce::max, Array(dtype, {1000}, late))));
    CHECK(std::isnan(reduced(Reduce::norm, Array(dtype, {1000}, late))));
  }
}

TEST_CASE("case 18 [RED] fp32 norm over many elements") {
  const std::int64_t n = 20'000'000;
  const std::vector<float> memory(static_cast<std::size_t>(n), 1.0F);
  const ConstView x{memory.data(), DType::fp32, {n}};
  Array y(DType::fp32, {});
  reduce_forward(Ref{}, Reduce::norm, {.axes = 1}, x, y.out());
  CHECK(std::abs(y[0] - std::sqrt(2e7)) <= rounded_tolerance(std::sqrt(2e7), 0, DType::fp32));
  reduce_forward(Ref{}, Reduce::sum, {.axes = 1}, x, y.out());
  CHECK(y[0] == 2e7);
}

TEST_CASE("case 99 [CLIP] norm overflow when squaring") {
  CHECK(reduced(Reduce::norm, Array(DType::fp32, {100}, std::vector<double>(100, 1e20))) ==
        static_cast<double>(static_cast<float>(10 * static_cast<double>(1e20F))));
  CHECK(reduced(Reduce::norm, Array(DType::fp16, {1}, {300})) == 300);
  CHECK(reduced(Reduce::norm, Array(DType::fp32, {2}, {3 * 0x1p-149, 4 * 0x1p-149})) ==
        5 * 0x1p-149);
  CHECK(reduced(Reduce::norm, Array(DType::fp64, {2}, {3 * 0x1p1000, 4 * 0x1p1000})) ==
        5 * 0x1p1000);
  CHECK(reduced(Reduce::norm, Array(DType::fp64, {2}, {3 * 0x1p-1074, 4 * 0x1p-1074})) ==
        5 * 0x1p-1074);
  CHECK(reduced(Reduce::norm, Array(DType::fp64, {2}, {kInf, 1})) == kInf);
  CHECK(std::isnan(reduced(Reduce::norm, Array(DType::fp64, {3}, {1, kNan, kInf}))));
  // along columns, where only one of them needs it
  const Array x(DType::fp64, {2, 2}, {3 * 0x1p1000, 3, 4 * 0x1p1000, 4});
  Array y(DType::fp64, {2});
  reduce_forward(Ref{}, Reduce::norm, {.axes = 1}, x, y.out());
  CHECK(y.values() == std::vector<double>{5 * 0x1p1000, 5});
  // and backward: x / y before anything is multiplied
  CHECK(gradient(Reduce::norm, Array(DType::fp32, {2}, {3e20, 4e20}), Array(DType::fp32, {}, {1}),
                 1)[0] == doctest::Approx(0.6));
}

TEST_CASE("reductions of nothing") {
  for (const DType dtype : kFloating) {
    const Array x(dtype, {0});
    CHECK(reduced(Reduce::sum, x) == 0);
    CHECK(std::isnan(reduced(Reduce::mean, x)));
    CHECK(reduced(Reduce::norm, x) == 0);
    Array y(dtype, {});
    CHECK_THROWS_WITH_AS(max_forward(Ref{}, {.axes = 1}, x, y.out(), Out()),
                         "[max] of no elements: shape [0]", Error);
    const Array rows(dtype, {3, 0});
    Array sums(dtype, {3});
    reduce_forward(Ref{}, Reduce::sum, {.axes = 2}, rows, sums.out());
    CHECK(sums.values() == std::vector<double>(3, 0));
    Array none(dtype, {0});
    max_forward(Ref{}, {.axes = 1}, rows, none.out(), Out());
    reduce_forward(Ref{}, Reduce::sum, {.axes = 1}, rows, none.out());
    CHECK(gradient(Reduce::sum, rows, Array(dtype, {3}, {1, 2, 3}), 2).empty());
    CHECK(gradient(Reduce::norm, rows, Array(dtype, {3}, {1, 2, 3}), 2).empty());
  }
}

TEST_CASE("gradient of a maximum goes to its first place, of a norm at 0 it is 0") {
  for (const DType dtype : kFloating) {
    const Array dy(dtype, {}, {2});
    CHECK(gradient(Reduce::max, Array(dtype, {4}, {1, 3, 3, 2}), dy, 1) ==
          std::vector<double>{0, 2, 0, 0});
    CHECK(gradient(Reduce::max, Array(dtype, {3}, {1, kNan, kNan}), dy, 1) ==
          std::vector<double>{0, 2, 0});
    CHECK(gradient(Reduce::max, Array(dtype, {2}, {-kInf, -kInf}), dy, 1) ==
          std::vector<double>{2, 0});
    CHECK(gradient(Reduce::norm, Array(dtype, {3}, {0, 0, 0}), dy, 1) ==
          std::vector<double>{0, 0, 0});
    CHECK(gradient(Reduce::norm, Array(dtype, {2}, {-3, 4}), Array(dtype, {}, {5}), 1) ==
          std::vector<double>{-3, 4});
  }
}

TEST_CASE("reductions agree with the oracle within the bounds, over axes, types and shapes") {
  struct Case {
    Shape shape;
    std::vector<std::int64_t> axes;
  };
  const Case cases[] = {
      {{}, {0}},
      {{1}, {0}},
      {{3}, {0}},
      {{513}, {0}},
      {{5000}, {0}},
      {{1, 1}, {0, 1}},
      {{3, 4}, {0}},
      {{3, 4}, {1}},
      {{70, 300}, {0}},
      {{300, 70}, {1}},
      {{33, 1, 5}, {0, 1}},
      {{4, 5, 6}, {0, 2}},
      {{4, 5, 6}, {1}},
      {{3, 40, 2, 9}, {1, 3}},
      {{3, 4, 2, 9}, {0, 2}},
      {{2, 3, 600}, {0, 2}},
      {{2, 65, 257}, {0, 1}},
      {{2, 3, 2, 2, 1, 3}, {0, 3, 5}},
  };
  for (const Case& c : cases) {
    std::uint32_t mask = 0;
    for (const std::int64_t axis : c.axes)
      if (c.shape.rank() != 0) mask |= 1U << axis;
    const Shape shape = reduced_shape(c.shape, mask, false);
    const std::int64_t terms = c.shape.numel() / std::max<std::int64_t>(shape.numel(), 1);
    const int h = sum_depth(terms);
    for (const DType dtype : kFloating) {
      const double u = arithmetic_roundoff(dtype);
      const Array x(dtype, c.shape, Uniform(21).take(c.shape.numel(), 5));
      const Array dy(dtype, shape, Uniform(22).take(shape.numel()));
      const std::vector<std::int64_t> axes =
          c.shape.rank() == 0 ? std::vector<std::int64_t>{} : c.axes;
      const oracle::Values magnitudes =
          oracle::reduce(oracle::Reduce::sum, absolute(x.values()), c.shape, axes);
      for (const Reduce op : {Reduce::sum, Reduce::mean, Reduce::max, Reduce::norm}) {
        CAPTURE(c.shape);
        CAPTURE(mask);
        CAPTURE(name(dtype));
        CAPTURE(name(op));
        const double n = static_cast<double>(terms);
        const auto error = [&](std::size_t i, double want) {
          switch (op) {
            case Reduce::sum:
              return gamma(h, u) * magnitudes[i];
            case Reduce::mean:
              return gamma(h + 1, u) * magnitudes[i] / n;
            case Reduce::norm:  // squares and their sum in fp64
              return (h + 3) * 0x1p-54 * want;
            case Reduce::max:
              return 0.0;
          }
          return 0.0;
        };
        for (const bool keepdim : {false, true}) {
          Array y(dtype, reduced_shape(c.shape, mask, keepdim));
          if (op == Reduce::max)
            max_forward(Ref{}, {.axes = mask}, x, y.out(), Out());
          else
            reduce_forward(Ref{}, op, {.axes = mask}, x, y.out());
          CHECK(y.guards_intact());
          CHECK(worst_of(y.values(), oracle::reduce(oracle_of(op), x.values(), c.shape, axes),
                         dtype, [&](std::size_t i, double want) {
                           return rounded_tolerance(want, error(i, want), dtype);
                         }) <= 1);
        }
        // sum copies, mean divides once; the norm's quotient and product are in fp64
        const double roundings =
            op == Reduce::mean ? u : (op == Reduce::norm ? (h + 7) * 0x1p-53 : 0);
        CHECK(worst_of(gradient(op, x, dy, mask),
                       oracle::reduce_backward(oracle_of(op), x.values(), c.shape, axes,
                                               dy.values(), oracle::Ties::first),
                       dtype, [&](std::size_t, double want) {
                         return rounded_tolerance(want, roundings * std::abs(want), dtype);
                       }) <= 1);
      }
    }
  }
}

TEST_CASE("the fp16 accumulator rounds every addition, in index order, along any axes") {
  const Array x(DType::fp16, {3, 50, 2}, Uniform(31).take(300, 40));
  const auto loop = [&](std::int64_t first, std::int64_t step, std::int64_t n) {
    Half sum(0.0F);
    for (std::int64_t i = 0; i < n; ++i) sum = Half(static_cast<double>(sum) + x[first + i * step]);
    return static_cast<double>(sum);
  };
  CHECK(reduced(Reduce::sum, x, DType::fp32, Accumulator::fp16) == loop(0, 1, 300));
  Array y(DType::fp32, {3, 2});
  reduce_forward(Ref{}, Reduce::sum, {.axes = 2, .accumulator = Accumulator::fp16}, x, y.out());
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 2; ++j) CHECK(y[2 * i + j] == loop(100 * i + j, 2, 50));
  // the other order of the two plain sums differs: the test can fail
  CHECK(loop(299, -1, 300) != loop(0, 1, 300));
}

TEST_CASE("GPU accumulators sum 16-bit terms as products with 1 on tensor cores") {
  for (const Accumulator gpu : {Accumulator::v100, Accumulator::a100, Accumulator::h100}) {
    for (const DType dtype : {DType::fp16, DType::bf16}) {
      if (!has_tensor_core(gpu, dtype)) continue;
      const Array x(dtype, {3, 700, 2}, Uniform(32).take(4200, 40));
      const TensorCore core = tensor_core(gpu, dtype);
      Array y(DType::fp32, {3, 2});
      reduce_forward(Ref{}, Reduce::sum, {.axes = 2, .accumulator = gpu}, x, y.out());
      for (std::int64_t i = 0; i < 3; ++i) {
        for (std::int64_t j = 0; j < 2; ++j) {
          std::vector<float> terms;
          for (std::int64_t k = 0; k < 700; ++k)
            terms.push_back(static_cast<float>(x[1400 * i + 2 * k + j]));
          const std::vector<float> one(700, 1.0F);
          CHECK(y[2 * i + j] ==
                static_cast<double>(tensor_core_dot(core, terms.data(), one.data(), 700, 0)));
        }
      }
    }
    // fp32 and fp64 have no tensor cores to run on: plain sums
    for (const DType dtype : {DType::fp32, DType::fp64}) {
      const Array x(dtype, {1000}, Uniform(33).take(1000));
      CHECK(reduced(Reduce::sum, x, dtype, gpu) == reduced(Reduce::sum, x));
    }
  }
  CHECK_THROWS_WITH_AS(
      reduced(Reduce::sum, Array(DType::bf16, {1}, {1}), DType::fp32, Accumulator::v100),
      "[sum] accumulator v100 takes fp16 operands, bf16 given", Error);
}

TEST_CASE("reductions accumulate into fp32, and refuse what does not fit") {
  const Array x(DType::fp16, {2, 2}, {1, 2, 3, 4});
  Array y(DType::fp32, {2}, {10, 20});
  reduce_forward(Ref{}, Reduce::sum, {.axes = 1}, x, y.out(Write::accumulate));
  CHECK(y.values() == std::vector<double>{14, 26});
  Array dx(DType::fp32, {2, 2}, {1, 1, 1, 1});
  Array index(DType::i64, {2});
  max_forward(Ref{}, {.axes = 1}, x, Out(), index.out());
  max_backward(Ref{}, {.axes = 1}, index, Array(DType::fp16, {2}, {5, 6}),
               dx.out(Write::accumulate));
  CHECK(dx.values() == std::vector<double>{1, 1, 6, 7});
  Scratch scratch;
  reduce_backward(Ref{}, Reduce::mean, {.axes = 2}, x, Array(DType::fp16, {2}, {2, 4}),
                  dx.out(Write::accumulate), scratch);
  CHECK(dx.values() == std::vector<double>{2, 2, 8, 9});

  Array bad(DType::fp32, {3}, {7, 7, 7});
  CHECK_THROWS_WITH_AS(reduce_forward(Ref{}, Reduce::sum, {.axes = 1}, x, bad.out()),
                       "[sum] y has shape [3], expected [2]", Error);
  CHECK_THROWS_WITH_AS(reduce_forward(Ref{}, Reduce::sum, {.axes = 4}, x, bad.out()),
                       "[sum] an axis is out of range for shape [2, 2]", Error);
  CHECK_THROWS_AS(max_forward(Ref{}, {.axes = 1}, x, bad.out(), Out()), Error);
  const Array wrong(DType::i64, {2}, {0, 4});
  CHECK_THROWS_WITH_AS(
      max_backward(Ref{}, {.axes = 1}, wrong, Array(DType::fp16, {2}, {5, 6}), dx.out()),
      "[max] index 4 is out of range for shape [2, 2]", Error);
  CHECK(bad.values() == std::vector<double>(3, 7));
  CHECK(dx.values() == std::vector<double>{2, 2, 8, 9});
}

TEST_CASE("a sum's order depends on the extents alone, and its depth is what sum_depth says") {
  // Powers of two so far apart that every order but one loses something would be fragile; instead
  // count the roundings: with terms 1 and u / 2 each addition that meets the large partial is seen.
  for (const std::int64_t n : {1, 2, 16, 17, 512, 513, 4096, 100000}) {
    const std::vector<float> x = [&] {
      std::vector<float> v;
      Uniform random(41);
      for (std::int64_t i = 0; i < n; ++i) v.push_back(static_cast<float>(random.next()));
      return v;
    }();
    double exact = 0;
    double magnitude = 0;
    for (const float v : x) {
      exact += static_cast<double>(v);
      magnitude += std::abs(static_cast<double>(v));
    }
    const auto load = [&](std::int64_t at, std::int64_t, float*) { return x.data() + at; };
    const float first = detail::sum_contiguous<float>(n, load);
    CHECK(detail::sum_contiguous<float>(n, load) == first);
    CHECK(std::abs(static_cast<double>(first) - exact) <=
          gamma(sum_depth(n), 0x1p-24) * magnitude + 0x1p-40);
    CHECK(sum_depth(n) <= n);
  }
}
