#include "kernels/embedding/embedding.h"

#include <doctest/doctest.h>

#include "kernels/base/device_error.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

Array gathered(SimDevice& device, const Array& table, const Array& index, Array y,
               Write write = Write::overwrite) {
  const Resident table_there(device, table), index_there(device, index);
  return on_device(
      device, std::move(y),
      [&](const Out& out) { embedding_forward(device.target(), table_there, index_there, out); },
      write);
}

Array gradient(SimDevice& device, const EmbeddingParams& params, const Array& index,
               const Array& dy, Array dtable, Write write = Write::overwrite) {
  const Resident index_there(device, index), dy_there(device, dy);
  return on_device(
      device, std::move(dtable),
      [&](const Out& out) {
        embedding_backward(device.target(), params, index_there, dy_there, out, device.scratch());
      },
      write);
}

// Some rows often, some never.
std::vector<double> indices(std::int64_t n, std::int64_t rows) {
  std::vector<double> v = Uniform(41).take(n);
  for (double& x : v) x = std::floor(x * x * static_cast<double>(rows));
  return v;
}

Shape rows_of(const Shape& index, std::int64_t width) {
  std::vector<std::int64_t> extents(index.extents().begin(), index.extents().end());
  extents.push_back(width);
  return Shape(extents);
}

}  // namespace

TEST_CASE("sim: embedding gathers rows with the reference's bits") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const std::int64_t width : {0, 1, 2, 3, 8, 31, 32, 33, 256}) {
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{5}, Shape{3, 7}}) {
        for (const DType from : kFloating) {
          for (const DType to : {from, DType::fp32}) {
            const DType type = width % 2 == 0 ? DType::i64 : DType::i32;
            const Array table(from, {11, width}, Uniform(3).take(11 * width), width == 8 ? 1 : 0);
            const Array index(type, shape, indices(shape.numel(), 11));
            Array want(to, rows_of(shape, width));
            const Array before = want;
            embedding_forward(Ref{}, table, index, want.out());
            REQUIRE(same_bits(gathered(device, table, index, before), want));
          }
        }
      }
    }
  }
  SimDevice device;
  const Array table(DType::fp16, {3, 4}, Uniform(3).take(12));
  const Array index(DType::i64, {2}, {2, 0});
  Array want(DType::fp32, {2, 4}, ones(8));
  const Array before = want;
  embedding_forward(Ref{}, table, index, want.out(Write::accumulate));
  CHECK(same_bits(gathered(device, table, index, before, Write::accumulate), want));
}

TEST_CASE("sim: embedding's gradient adds rows in order: the reference's bits") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    struct Case {
      std::int64_t n, rows, width;
    };
    for (const Case& c :
         {Case{0, 3, 2}, Case{1, 1, 1}, Case{4, 3, 2}, Case{33, 5, 3}, Case{100, 7, 32},
          Case{257, 1500, 4}, Case{1000, 3, 1}, Case{300, 40, 33}}) {
      for (const DType from : kFloating) {
        for (const DType to : kFloating) {
          for (const std::int64_t padding : {-1, 2}) {
            for (const Write write : {Write::overwrite, Write::accumulate}) {
              if (write == Write::accumulate && is_16bit(to)) continue;
              if (k != 0 && (from != DType::fp16 || to != DType::fp32)) continue;
              CAPTURE(c.n);
              CAPTURE(c.rows);
              const Array index(DType::i64, {c.n}, indices(c.n, c.rows));
              const Array dy(from, {c.n, c.width}, Uniform(5).take(c.n * c.width, 3));
              Array want(to, {c.rows, c.width}, Uniform(6).take(c.rows * c.width));
              const Array before = want;
              Scratch scratch;
              const EmbeddingParams params{.padding_index = padding};
              embedding_backward(Ref{}, params, index, dy, want.out(write), scratch);
              REQUIRE(same_bits(gradient(device, params, index, dy, before, write), want));
            }
          }
        }
      }
    }
    CHECK(device.take_errors().code == 0);
    CHECK(device.emulator().allocated_bytes() == sizeof(DeviceErrors));
  }
}

TEST_CASE("sim: an index out of range is reported; its row is zero and gets no gradient") {
  SimDevice device;
  const Array table(DType::fp32, {3, 2}, {1, 2, 3, 4, 5, 6});
  for (const double bad : {-1.0, 3.0, 1e12}) {
    const Array index(DType::i64, {3}, {2, bad, 0});
    const auto text = static_cast<std::int64_t>(bad);
    const Array y = gathered(device, table, index, Array(DType::fp32, {3, 2}));
    CHECK(y.values() == std::vector<double>{5, 6, 0, 0, 1, 2});
    CHECK(describe(device.take_errors()) ==
          concat("[embedding] index ", text, " at position 1, expected in [0, 3)"));
    const Array dy(DType::fp32, {3, 2}, ones(6));
    const Array dtable = gradient(device, {}, index, dy, Array(DType::fp32, {3, 2}));
    CHECK(dtable.values() == std::vector<double>{1, 1, 0, 0, 1, 1});
    CHECK(describe(device.take_errors()) ==
          concat("[embedding_backward] index ", text, " at position 1, expected in [0, 3)"));
  }
}

TEST_CASE("sim: shapes and types that embedding refuses, before any launch") {
  SimDevice device;
  const Array table(DType::fp32, {3, 2}, {1, 2, 3, 4, 5, 6});
  const Array index(DType::i64, {2}, {0, 1});
  const Array y(DType::fp32, {2, 2});
  CHECK_THROWS_AS(gathered(device, Array(DType::fp32, {6}), index, y), Error);
  CHECK_THROWS_AS(gathered(device, table, Array(DType::fp32, {2}, {0, 1}), y), Error);
  CHECK_THROWS_AS(gathered(device, table, index, Array(DType::fp32, {4})), Error);
  CHECK_THROWS_AS(gradient(device, {}, index, y, Array(DType::fp16, {3, 2}), Write::accumulate),
                  Error);
  CHECK(device.emulator().counters().launches == 0);
}
