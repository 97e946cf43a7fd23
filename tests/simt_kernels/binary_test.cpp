#include <doctest/doctest.h>

#include <limits>

#include "kernels/elementwise/elementwise.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr Binary kAll[] = {Binary::add, Binary::sub, Binary::mul, Binary::div};

struct Shapes {
  Shape a, b, y;
};
const Shapes kShapes[] = {
    {{}, {}, {}},
    {{1}, {1}, {1}},
    {{5}, {}, {5}},
    {{257}, {257}, {257}},
    {{1000}, {1}, {1000}},
    {{7, 3}, {3}, {7, 3}},
    {{3}, {7, 3}, {7, 3}},
    {{500, 3}, {3}, {500, 3}},
    {{31, 64}, {64}, {31, 64}},
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
    {{2, 1, 2, 1, 2, 1, 2, 1}, {1, 3, 1, 3, 1, 3, 1, 4}, {2, 3, 2, 3, 2, 3, 2, 4}},
};

Array forward(SimDevice& device, const BinaryParams& params, const Array& a, const Array& b,
              Array y, Write write = Write::overwrite) {
  const Resident a_there(device, a), b_there(device, b);
  return on_device(
      device, std::move(y),
      [&](const Out& out) { binary_forward(device.target(), params, a_there, b_there, out); },
      write);
}

}  // namespace

TEST_CASE("sim: binary operations broadcast as the reference does, bit for bit") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const Shapes& s : kShapes) {
      for (const Binary op : kAll) {
        for (const DType dtype : kFloating) {
          for (const std::int64_t offset : {0, 1}) {
            CAPTURE(s.a);
            CAPTURE(s.b);
            CAPTURE(name(op));
            CAPTURE(name(dtype));
            const Array a(dtype, s.a, Uniform(1).take(s.a.numel(), 2), offset);
            const Array b(dtype, s.b, Uniform(2).take(s.b.numel(), 2), offset);
            Array want(dtype, s.y, offset);
            const Array before = want;
            binary_forward(Ref{}, {.op = op}, a, b, want.out());
            REQUIRE(same_bits(forward(device, {.op = op}, a, b, before), want));
          }
        }
      }
    }
  }
}

TEST_CASE("sim: binary operations on mixed types, adding and in fp64") {
  SimDevice device(1);
  for (const Shapes& s :
       {Shapes{{33}, {33}, {33}}, Shapes{{5, 8}, {8}, {5, 8}}, Shapes{{5, 1}, {5, 7}, {5, 7}}}) {
    for (const DType ta : kFloating) {
      for (const DType tb : kFloating) {
        for (const DType to : kFloating) {
          for (const Write write : {Write::overwrite, Write::accumulate}) {
            for (const Accumulator accumulator : {Accumulator::fp32, Accumulator::fp64}) {
              if (write == Write::accumulate && is_16bit(to)) continue;
              const Array a(ta, s.a, Uniform(1).take(s.a.numel(), 2));
              const Array b(tb, s.b, Uniform(2).take(s.b.numel(), 2));
              Array want(to, s.y, Uniform(3).take(s.y.numel()));
              const Array before = want;
              const BinaryParams params{.op = Binary::mul, .accumulator = accumulator};
              binary_forward(Ref{}, params, a, b, want.out(write));
              REQUIRE(same_bits(forward(device, params, a, b, before, write), want));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("sim: infinities, NaN and signed zeros in binary operations") {
  SimDevice device;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Array a(DType::fp16, {6}, {kInf, kInf, 0.0, -0.0, 65504, 6e-8});
  const Array b(DType::fp16, {6}, {-kInf, 0.0, 0.0, 1, 65504, 6e-8});
  for (const Binary op : kAll) {
    Array want(DType::fp16, {6});
    binary_forward(Ref{}, {.op = op}, a, b, want.out());
    const Array got = forward(device, {.op = op}, a, b, Array(DType::fp16, {6}));
    for (std::int64_t i = 0; i < 6; ++i) {
      CHECK(std::isnan(got[i]) == std::isnan(want[i]));
      if (!std::isnan(want[i])) CHECK(got[i] == want[i]);
      if (!std::isnan(want[i])) CHECK(std::signbit(got[i]) == std::signbit(want[i]));
    }
  }
}

TEST_CASE("sim: what binary operations refuse, they refuse before any launch") {
  SimDevice device;
  const Array a(DType::fp32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Array b(DType::fp32, {2}, {1, 2});
  Array y(DType::fp32, {2, 3});
  CHECK_THROWS_WITH_AS(forward(device, {.op = Binary::add}, a, b, y),
                       "[add] shapes [2, 3] and [2] do not broadcast: axis -1 has extents 3 and 2",
                       Error);
  const Resident there(device, a);
  binary_forward(device.target(), {.op = Binary::add}, there, there, Out());
  CHECK(device.emulator().counters().launches == 0);
}
