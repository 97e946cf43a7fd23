#include "kernels/dropout/dropout.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

Array dropped(SimDevice& device, const DropoutParams& params, const Array& x, Array y,
              Write write = Write::overwrite, bool backward = false) {
  const Resident there(device, x);
  return on_device(
      device, std::move(y),
      [&](const Out& out) {
        if (backward)
          dropout_backward(device.target(), params, there, out);
        else
          dropout_forward(device.target(), params, there, out);
      },
      write);
}

}  // namespace

TEST_CASE("sim: dropout has the reference's masks and bits, forward and backward") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 1}, Shape{4, 2}, Shape{5, 3},
                               Shape{7, 31}, Shape{2, 32}, Shape{3, 33}, Shape{2, 16, 16},
                               Shape{1, 257}, Shape{1, 4000}, Shape{0, 5}, Shape{5, 0}}) {
      for (const DType dtype : kFloating) {
        for (const double p : {0.0, 0.1, 0.5, 1.0}) {
          CAPTURE(shape);
          CAPTURE(name(dtype));
          CAPTURE(p);
          const DropoutParams params{
              .p = p, .stream = {0x123456789ABCDEFU, 11, 5}, .sample0 = 4294967000};
          const auto offset = static_cast<std::int64_t>(k % 2);
          std::vector<double> values = Uniform(3).take(shape.numel(), 10);
          for (std::size_t i = 0; i < values.size(); i += 7)
            values[i] = std::numeric_limits<double>::infinity();
          for (std::size_t i = 0; i < values.size(); i += 11)
            values[i] = std::numeric_limits<double>::quiet_NaN();
          const Array x(dtype, shape, values, offset);
          Array want(dtype, shape, offset);
          const Array before = want;
          dropout_forward(Ref{}, params, x, want.out());
          REQUIRE(same_bits(dropped(device, params, x, before), want));
          REQUIRE(same_bits(dropped(device, params, x, before, Write::overwrite, true), want));
        }
      }
    }
  }
}

TEST_CASE("sim: dropout between types, and adding") {
  SimDevice device;
  const Shape shape{4, 9};
  const DropoutParams params{.p = 0.3, .stream = {5, 6, 7}};
  for (const DType from : kFloating) {
    for (const DType to : kFloating) {
      for (const Write write : {Write::overwrite, Write::accumulate}) {
        if (write == Write::accumulate && is_16bit(to)) continue;
        const Array x(from, shape, Uniform(3).take(36, 10));
        Array want(to, shape, Uniform(4).take(36));
        const Array before = want;
        dropout_backward(Ref{}, params, x, want.out(write));
        CHECK(same_bits(dropped(device, params, x, before, write, true), want));
      }
    }
  }
}

TEST_CASE("sim: what dropout refuses, it refuses before any launch") {
  SimDevice device;
  const Array x(DType::fp32, {4}, ones(4));
  const Array y(DType::fp32, {3});
  CHECK_THROWS_AS(dropped(device, {.p = 1.5}, x, x), UsageError);
  CHECK_THROWS_AS(dropped(device, {}, x, y), Error);
  CHECK_THROWS_AS(dropped(device, {}, Array(DType::i64, {4}, ones(4)), x), Error);
  CHECK_THROWS_AS(dropped(device, {}, x, Array(DType::fp16, {4}), Write::accumulate), Error);
  const DropoutParams far{.p = 0.5, .stream = {}, .sample0 = (std::uint64_t{1} << 32) - 1};
  CHECK_THROWS_AS(dropped(device, far, x, x), Error);
  const Resident there(device, x);
  dropout_forward(device.target(), {}, there, Out());
  CHECK(device.emulator().counters().launches == 0);
}
