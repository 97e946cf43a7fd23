#include "kernels/elementwise/elementwise.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "kernels/reduce/sum_tree.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Array relu(const Array& x) {
  Array y(x.dtype(), x.shape());
  unary_forward(Ref{}, {.op = Unary::relu}, x, y.out());
  return y;
}

double apply(Binary op, double a, double b) {
  switch (op) {
    case Binary::add:
      return a + b;
    case Binary::sub:
      return a - b;
    case Binary::mul:
      return a * b;
    case Binary::div:
      return a / b;
  }
  return 0;
}

// Offset into `shape` of the element of the broadcast result at `index` of `out`.
std::int64_t source_offset(const Shape& shape, const Shape& out, std::int64_t index) {
  std::int64_t offset = 0;
  std::int64_t stride = 1;
  for (int i = 1; i <= out.rank(); ++i) {
    const std::int64_t extent = i <= shape.rank() ? shape[-i] : 1;
    if (extent != 1) offset += (index % out[-i]) * stride;
    stride *= extent;
    index /= out[-i];
  }
  return offset;
}

}  // namespace

TEST_CASE("relu keeps NaN, and its gradient at 0 is 0") {
  for (const DType dtype : kFloating) {
    CAPTURE(name(dtype));
    const Array x(dtype, {6}, {-1, -0.0, 0, 2, kInf, kNan});
    const Array y = relu(x);
    CHECK(y.values()[0] == 0);
    CHECK(!std::signbit(y[1]));
    CHECK(y[2] == 0);
    CHECK(y[3] == 2);
    CHECK(y[4] == kInf);
    CHECK(std::isnan(y[5]));
    const Array dy(dtype, {6}, {1, 2, 3, 4, 5, 6});
    Array dx(dtype, {6});
    unary_backward(Ref{}, {.op = Unary::relu}, y, dy, dx.out());
    CHECK(dx.values() == std::vector<double>{0, 0, 0, 4, 5, 6});
  }
}

TEST_CASE("relu of every length around the chunk size, and accumulation into fp32") {
  for (const std::int64_t n : {0, 1, 3, 511, 512, 513, 1025}) {
    for (const DType dtype : {DType::fp16, DType::fp32}) {
      const Array x(dtype, {n}, Uniform(3).take(n, 4));
      const Array y = relu(x);
      Array dx(DType::fp32, {n}, std::vector<double>(static_cast<std::size_t>(n), 8));
      const Array dy(dtype, {n}, Uniform(4).take(n));
      unary_backward(Ref{}, {.op = Unary::relu}, y, dy, dx.out(Write::accumulate));
      for (std::int64_t i = 0; i < n; ++i) {
        REQUIRE(y[i] == (x[i] > 0 ? x[i] : 0));
        REQUIRE(dx[i] == static_cast<double>(static_cast<float>(8 + (x[i] > 0 ? dy[i] : 0))));
      }
    }
  }
}

TEST_CASE("binary operations broadcast as NumPy does, forward and backward") {
  struct Shapes {
    Shape a, b, y;
  };
  const Shapes cases[] = {
      {{}, {}, {}},
      {{1}, {1}, {1}},
      {{5}, {}, {5}},
      {{7, 3}, {3}, {7, 3}},
      {{3}, {7, 3}, {7, 3}},
      {{500, 3}, {3}, {500, 3}},
      {{1, 100}, {4, 7, 100}, {4, 7, 100}},
      {{7, 1}, {1, 5}, {7, 5}},
      {{2, 3, 4}, {3, 1}, {2, 3, 4}},
      {{2, 1, 4, 1}, {3, 1, 5}, {2, 3, 4, 5}},
      {{1, 600}, {70, 600}, {70, 600}},
      {{70, 600}, {70, 1}, {70, 600}},
      {{2, 1, 300}, {2, 40, 300}, {2, 40, 300}},
      {{0, 3}, {3}, {0, 3}},
      {{1, 3}, {0, 1}, {0, 3}},
      {{4, 1, 1, 1}, {4, 2, 2, 2}, {4, 2, 2, 2}},
  };
  for (const Shapes& s : cases) {
    for (const Binary op : {Binary::add, Binary::sub, Binary::mul, Binary::div}) {
      for (const DType dtype : kFloating) {
        CAPTURE(s.a);
        CAPTURE(s.b);
        CAPTURE(name(op));
        CAPTURE(name(dtype));
        REQUIRE(broadcast_shape(s.a, s.b, "test") == s.y);
        std::vector<double> bs = Uniform(2).take(s.b.numel());
        for (double& v : bs) v += v < 0 ? -1 : 1;
        const Array a(dtype, s.a, Uniform(1).take(s.a.numel(), 2));
        const Array b(dtype, s.b, bs);
        Array y(dtype, s.y);
        binary_forward(Ref{}, {.op = op}, a, b, y.out());
        const Array dy(dtype, s.y, Uniform(5).take(s.y.numel()));
        Array da(dtype, s.a);
        Array db(dtype, s.b);
        binary_backward(Ref{}, {.op = op}, a, b, dy, da.out(), db.out());

        const double u = arithmetic_roundoff(dtype);
        std::vector<double> want_a(static_cast<std::size_t>(s.a.numel()));
        std::vector<double> want_b(static_cast<std::size_t>(s.b.numel()));
        std::vector<double> sum_a = want_a;
        std::vector<double> sum_b = want_b;
        for (std::int64_t i = 0; i < y.size(); ++i) {
          const std::int64_t ia = source_offset(s.a, s.y, i);
          const std::int64_t ib = source_offset(s.b, s.y, i);
          const double want = apply(op, a[ia], b[ib]);
          REQUIRE(std::abs(y[i] - want) <= rounded_tolerance(want, u * std::abs(want), dtype));
          double ga = dy[i];
          double gb = op == Binary::sub ? -dy[i] : dy[i];
          if (op == Binary::mul) {
            ga *= b[ib];
            gb *= a[ia];
          } else if (op == Binary::div) {
            ga /= b[ib];
            gb *= -a[ia] / (b[ib] * b[ib]);
          }
          want_a[static_cast<std::size_t>(ia)] += ga;
          want_b[static_cast<std::size_t>(ib)] += gb;
          sum_a[static_cast<std::size_t>(ia)] += std::abs(ga);
          sum_b[static_cast<std::size_t>(ib)] += std::abs(gb);
        }
        // A term of a gradient is rounded at most three times (div: quotient, product, quotient),
        // then summed in a tree of at most sum_depth(terms).
        const auto check = [&](const Array& got, const std::vector<double>& want,
                               const std::vector<double>& sum) {
          const std::int64_t terms = got.size() == 0 ? 0 : y.size() / got.size();
          for (std::size_t i = 0; i < want.size(); ++i) {
            const double error = gamma(sum_depth(terms) + 3, u) * sum[i];
            REQUIRE(std::abs(got[static_cast<std::int64_t>(i)] - want[i]) <=
                    rounded_tolerance(want[i], error, dtype));
          }
        };
        check(da, want_a, sum_a);
        check(db, want_b, sum_b);
      }
    }
  }
}

TEST_CASE("case 71 [AUTO] broadcast gradient must be reduced") {
  for (const DType dtype : kFloating) {
    {
      const Array a(dtype, {1}, {2});
      const Array b(dtype, {3, 2}, {0, 1, 2, 3, 4, 5});
      const Array dy(dtype, {3, 2}, {1, 1, 1, 1, 1, 1});
      Array da(dtype, {1});
      Array db(dtype, {3, 2});
      binary_backward(Ref{}, {.op = Binary::mul}, a, b, dy, da.out(), db.out());
      CHECK(da.values() == std::vector<double>{15});
      CHECK(db.values() == std::vector<double>(6, 2.0));
    }
    {
      const Array a(dtype, {3, 1}, {1, 2, 3});
      const Array b(dtype, {1, 2}, {10, 20});
      const Array dy(dtype, {3, 2}, {1, 1, 1, 1, 1, 1});
      Array da(dtype, {3, 1});
      Array db(dtype, {1, 2});
      binary_backward(Ref{}, {.op = Binary::mul}, a, b, dy, da.out(), db.out());
      CHECK(da.values() == std::vector<double>{30, 30, 30});
      CHECK(db.values() == std::vector<double>{6, 6});
    }
    const Array x(dtype, {7, 4}, std::vector<double>(28, 0.5));
    const Array bias(dtype, {4}, {1, 2, 3, 4});
    const Array dy(dtype, {7, 4}, std::vector<double>(28, 1.0));
    Array dx(dtype, {7, 4});
    Array dbias(dtype, {4});
    binary_backward(Ref{}, {.op = Binary::add}, x, bias, dy, dx.out(), dbias.out());
    CHECK(dbias.values() == std::vector<double>{7, 7, 7, 7});
    CHECK(dx.values() == std::vector<double>(28, 1.0));
  }
}

TEST_CASE("a 16-bit broadcast gradient of many rows does not stall") {
  for (const DType dtype : {DType::fp16, DType::bf16}) {
    const Array dy(dtype, {16384, 3}, std::vector<double>(3 * 16384, 1.0));
    const Array x(dtype, {16384, 3});
    const Array bias(dtype, {3});
    Array dbias(dtype, {3});
    binary_backward(Ref{}, {.op = Binary::add}, x, bias, dy, Out(), dbias.out());
    CHECK(dbias.values() == std::vector<double>(3, 16384.0));
  }
}

TEST_CASE("element-wise operations refuse what does not fit, and write nothing") {
  const Array a(DType::fp32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Array b(DType::fp32, {2}, {1, 2});
  Array y(DType::fp32, {2, 3}, {7, 7, 7, 7, 7, 7});
  CHECK_THROWS_WITH_AS(binary_forward(Ref{}, {.op = Binary::add}, a, b, y.out()),
                       "[add] shapes [2, 3] and [2] do not broadcast: axis -1 has extents 3 and 2",
                       Error);
  CHECK_THROWS_WITH_AS(unary_forward(Ref{}, {.op = Unary::relu}, b, y.out()),
                       "[relu] y has shape [2, 3], expected [2]", Error);
  const Array integers(DType::i32, {2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK_THROWS_WITH_AS(unary_forward(Ref{}, {.op = Unary::relu}, integers, y.out()),
                       "[relu] x is int32; a floating type expected", Error);
  Array half(DType::fp16, {2, 3});
  CHECK_THROWS_WITH_AS(unary_forward(Ref{}, {.op = Unary::relu}, a, half.out(Write::accumulate)),
                       "[relu] cannot accumulate into y of type fp16; fp32 or fp64 expected",
                       Error);
  CHECK(y.values() == std::vector<double>(6, 7.0));
}
