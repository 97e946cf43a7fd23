#include "kernels/elementwise/permute.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_CASE("permute moves every element where its index says, over every order of four axes") {
  for (const Shape& shape :
       {Shape{2, 3, 4, 5}, Shape{1, 3, 1, 2}, Shape{2, 1, 700, 3}, Shape{2, 0, 3, 1}}) {
    for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::u8, DType::i64}) {
      std::vector<double> values(static_cast<std::size_t>(shape.numel()));
      std::iota(values.begin(), values.end(), 0.0);
      if (dtype == DType::u8 || dtype == DType::bf16)
        for (double& v : values) v = static_cast<double>(static_cast<int>(v) % 251);
      const Array x(dtype, shape, values);
      std::array<int, 4> order{0, 1, 2, 3};
      do {
        PermuteParams params;
        for (std::size_t a = 0; a < 4; ++a) params.axes[a] = static_cast<signed char>(order[a]);
        const Shape to = permuted_shape(shape, params);
        Array y(dtype, to);
        permute(Ref{}, params, x, y.out());
        CHECK(y.guards_intact());
        bool same = true;
        for (std::int64_t i = 0; i < shape.numel(); ++i) {
          std::int64_t rest = i;
          std::array<std::int64_t, 4> index{};  // along the axes of y
          for (std::size_t a = 4; a-- > 0;) {
            index[a] = rest % to[static_cast<int>(a)];
            rest /= to[static_cast<int>(a)];
          }
          std::array<std::int64_t, 4> in_x{};
          for (std::size_t a = 0; a < 4; ++a) in_x[static_cast<std::size_t>(order[a])] = index[a];
          std::int64_t offset = 0;
          for (std::size_t a = 0; a < 4; ++a)
            offset = offset * shape[static_cast<int>(a)] + in_x[a];
          same = same && y[i] == x[offset];
        }
        CHECK(same);
        Array back(dtype, shape);
        permute(Ref{}, inverse(params, 4), y, back.out());
        CHECK(back.values() == x.values());
      } while (std::next_permutation(order.begin(), order.end()));
    }
  }
}

TEST_CASE("permute rounds to another type and accumulates; bad axes are refused") {
  const Array x(DType::fp16, {2, 3}, {1, 2, 3, 4, 5, 6});
  Array y(DType::fp32, {3, 2}, {10, 10, 10, 10, 10, 10});
  permute(Ref{}, {.axes = {1, 0}}, x, y.out(Write::accumulate));
  CHECK(y.values() == std::vector<double>{11, 14, 12, 15, 13, 16});
  CHECK_THROWS_WITH_AS(permute(Ref{}, {.axes = {1, 1}}, x, y.out()),
                       "[transpose] axis 1 at place 1: every axis of rank 2 is expected once",
                       Error);
  CHECK_THROWS_AS(permute(Ref{}, {.axes = {0, 1}}, x, y.out()), Error);
}
