#include "kernels/gemm/column_sums.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/kernels/sum_bound.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/oracle/base.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {
constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};
}  // namespace

TEST_CASE("column sums on a device: types, sizes, scale, accumulation") {
  std::mt19937 random(6);
  for (const DType dtype : kFloating) {
    for (const DType out : kFloating) {
      for (const std::int64_t rows : {0, 1, 3, 128, 129, 700}) {
        for (const std::int64_t columns : {0, 1, 7, 500}) {
          const std::vector<double> x = normal(rows * columns, dtype, random);
          const bool accumulate = !is_16bit(out);
          const std::vector<double> held = normal(columns, out, random);
          Array y(out, {columns}, held);
          SimDevice device(static_cast<std::uint64_t>(rows + columns) % kSchedules);
          SimScratch scratch(device);
          const Array values(dtype, {rows, columns}, x);
          const Resident in(device, values);
          Resident result(device, y);
          column_sums(device.target(), {.rows = rows, .columns = columns, .scale = -0.5}, *in,
                      result.out(accumulate ? Write::accumulate : Write::overwrite), scratch);
          result.fetch();
          std::vector<double> want(oracle::at(columns)), sums(oracle::at(columns));
          for (std::size_t i = 0; i < x.size(); ++i) {
            want[i % want.size()] -= 0.5 * x[i];
            sums[i % want.size()] += 0.5 * std::abs(x[i]);
          }
          for (std::size_t j = 0; accumulate && j < want.size(); ++j) {
            want[j] += held[j];
            sums[j] += std::abs(held[j]);
          }
          CHECK(worst_ratio(y.values(), want, sums,
                            std::min<std::int64_t>(rows, 128) + rows / 128 + 3,
                            widest(dtype, DType::fp32), out) <= 1);
          CHECK(y.guards_intact());
        }
      }
    }
  }
  SimDevice device;
  Scratch scratch;
  Array y(DType::fp32, {2}), half(DType::fp16, {2});
  const Array x(DType::fp32, {3, 2}, ones(6));
  CHECK_THROWS_AS(column_sums(device.target(), {.rows = 2, .columns = 2}, *x, y.view(), scratch),
                  Error);
  CHECK_THROWS_AS(column_sums(device.target(), {.rows = 3, .columns = 2}, *x,
                              Out(half.view(), Write::accumulate), scratch),
                  Error);
  column_sums(device.target(), {.rows = 3, .columns = 2}, *x, Out(), scratch);
  CHECK(device.emulator().counters().launches == 0);
}
