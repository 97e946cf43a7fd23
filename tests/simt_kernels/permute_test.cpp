#include "kernels/elementwise/permute.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

Array permuted(SimDevice& device, const PermuteParams& params, const Array& x, Array y,
               Write write = Write::overwrite) {
  const Resident there(device, x);
  return on_device(
      device, std::move(y), [&](const Out& out) { permute(device.target(), params, there, out); },
      write);
}

}  // namespace

TEST_CASE("sim: permute moves every element as the reference does, over every order of four axes") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{1, 3, 1, 2}, Shape{2, 1, 70, 33},
                               Shape{2, 0, 3, 1}, Shape{3, 1, 2, 64}}) {
      for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::u8, DType::i64}) {
        const std::int64_t offset = dtype == DType::bf16 ? 1 : 0;
        std::vector<double> values(static_cast<std::size_t>(shape.numel()));
        std::iota(values.begin(), values.end(), 0.0);
        for (double& v : values) v = static_cast<double>(static_cast<int>(v) % 251);
        const Array x(dtype, shape, values, offset);
        std::array<int, 4> order{0, 1, 2, 3};
        do {
          PermuteParams params;
          for (std::size_t a = 0; a < 4; ++a) params.axes[a] = static_cast<signed char>(order[a]);
          Array want(dtype, permuted_shape(shape, params), offset);
          const Array before = want;
          permute(Ref{}, params, x, want.out());
          REQUIRE(same_bits(permuted(device, params, x, before), want));
        } while (std::next_permutation(order.begin(), order.end()));
      }
    }
  }
}

TEST_CASE("sim: permute rounds to another type, and adds") {
  SimDevice device(1);
  for (const DType from : kFloating) {
    for (const DType to : kFloating) {
      for (const PermuteParams& params :
           {PermuteParams{.axes = {1, 0, 2}}, PermuteParams{.axes = {2, 1, 0}},
            PermuteParams{.axes = {0, 1, 2}}}) {
        const Shape shape{3, 37, 8};
        const Array x(from, shape, Uniform(3).take(shape.numel()));
        for (const Write write : {Write::overwrite, Write::accumulate}) {
          if (write == Write::accumulate && is_16bit(to)) continue;
          Array want(to, permuted_shape(shape, params), Uniform(4).take(shape.numel()));
          const Array before = want;
          permute(Ref{}, params, x, want.out(write));
          REQUIRE(same_bits(permuted(device, params, x, before, write), want));
        }
      }
    }
  }
}

TEST_CASE("sim: eight axes, and what permute refuses") {
  SimDevice device;
  const Shape shape{2, 3, 2, 3, 2, 3, 2, 3};
  const Array x(DType::fp32, shape, Uniform(3).take(shape.numel()));
  const PermuteParams params{.axes = {7, 0, 6, 1, 5, 2, 4, 3}};
  Array want(DType::fp32, permuted_shape(shape, params));
  const Array before = want;
  permute(Ref{}, params, x, want.out());
  CHECK(same_bits(permuted(device, params, x, before), want));

  const auto launches = device.emulator().counters().launches;
  const Array m(DType::fp32, {2, 3}, {1, 2, 3, 4, 5, 6});
  CHECK_THROWS_WITH_AS(permuted(device, {.axes = {1, 0}}, m, Array(DType::fp32, {2, 3})),
                       "[transpose] y has shape [2, 3], expected [3, 2]", Error);
  CHECK_THROWS_AS(permuted(device, {.axes = {1, 1}}, m, Array(DType::fp32, {3, 2})), Error);
  CHECK(device.emulator().counters().launches == launches);
}
