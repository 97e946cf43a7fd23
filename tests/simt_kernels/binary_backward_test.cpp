#include <doctest/doctest.h>

#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/sum_tree.h"
#include "tests/kernels/array.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/bound.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

struct Gradients {
  Array a, b;
};

Gradients backward(SimDevice& device, const BinaryParams& params, const Array& a, const Array& b,
                   const Array& dy, Gradients g, Write write = Write::overwrite) {
  const Resident a_there(device, a), b_there(device, b), dy_there(device, dy);
  Resident da(device, g.a), db(device, g.b);
  binary_backward(device.target(), params, a_there, b_there, dy_there, da.out(write), db.out(write),
                  device.scratch());
  da.fetch();
  db.fetch();
  return g;
}

struct Shapes {
  Shape a, b, y;
};
const Shapes kShapes[] = {
    {{}, {}, {}},
    {{5}, {}, {5}},
    {{257}, {257}, {257}},
    {{9000}, {1}, {9000}},
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
};

}  // namespace

TEST_CASE("sim: gradients of binary operations are within their bounds, summed where repeated") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    SimDevice device(k);
    for (const Shapes& s : kShapes) {
      if (k != 0 && s.y.numel() > 3000) continue;
      for (const Binary op : {Binary::add, Binary::sub, Binary::mul, Binary::div}) {
        for (const DType dtype : kFloating) {
          CAPTURE(s.a);
          CAPTURE(s.b);
          CAPTURE(name(op));
          CAPTURE(name(dtype));
          std::vector<double> bs = Uniform(2).take(s.b.numel());
          for (double& v : bs) v += v < 0 ? -1 : 1;
          const Array a(dtype, s.a, Uniform(1).take(s.a.numel(), 2));
          const Array b(dtype, s.b, bs);
          const Array dy(dtype, s.y, Uniform(5).take(s.y.numel()), static_cast<int>(k % 2));
          const Gradients g =
              backward(device, {.op = op}, a, b, dy, {Array(dtype, s.a), Array(dtype, s.b)});
          CHECK(g.a.guards_intact());
          CHECK(g.b.guards_intact());
          Arithmetic arithmetic;
          arithmetic.accumulator = format_of(widest(dtype, DType::fp32));
          arithmetic.output = format_of(dtype);
          arithmetic.depth = [](std::int64_t n) { return static_cast<std::int64_t>(sum_depth(n)); };
          const auto want = bound::binary_backward(static_cast<oracle::Binary>(op), a.values(), s.a,
                                                   b.values(), s.b, dy.values(), arithmetic);
          const Comparison da = compare(g.a, want.a), db = compare(g.b, want.b);
          CHECK_MESSAGE(da.holds, describe(da));
          CHECK_MESSAGE(db.holds, describe(db));
        }
      }
    }
  }
}

TEST_CASE("sim: gradients that are not summed have the reference's bits, on mixed types") {
  SimDevice device(1);
  const Shapes s{{5, 7}, {5, 7}, {5, 7}};
  for (const Binary op : {Binary::add, Binary::sub, Binary::mul, Binary::div}) {
    for (const DType ta : kFloating) {
      for (const DType tg : kFloating) {
        for (const DType to : kFloating) {
          for (const Write write : {Write::overwrite, Write::accumulate}) {
            if (write == Write::accumulate && is_16bit(to)) continue;
            const Array a(ta, s.a, Uniform(1).take(35, 2)),
                b(DType::fp16, s.b, Uniform(2).take(35));
            const Array dy(tg, s.y, Uniform(5).take(35));
            Array da(to, s.a, Uniform(6).take(35)), db(to, s.b, Uniform(7).take(35));
            const Gradients before{da, db};
            binary_backward(Ref{}, {.op = op}, a, b, dy, da.out(write), db.out(write));
            const Gradients got = backward(device, {.op = op}, a, b, dy, before, write);
            REQUIRE(same_bits(got.a, da));
            REQUIRE(same_bits(got.b, db));
          }
        }
      }
    }
  }
}

TEST_CASE("case 71 [AUTO] on sim: broadcast gradient must be reduced") {
  SimDevice device;
  for (const DType dtype : kFloating) {
    const Gradients product =
        backward(device, {.op = Binary::mul}, Array(dtype, {3, 1}, {1, 2, 3}),
                 Array(dtype, {1, 2}, {10, 20}), Array(dtype, {3, 2}, ones(6)),
                 {Array(dtype, {3, 1}), Array(dtype, {1, 2})});
    CHECK(product.a.values() == std::vector<double>{30, 30, 30});
    CHECK(product.b.values() == std::vector<double>{6, 6});
    const Gradients sum =
        backward(device, {.op = Binary::add}, Array(dtype, {7, 4}), Array(dtype, {4}),
                 Array(dtype, {7, 4}, ones(28)), {Array(dtype, {7, 4}), Array(dtype, {4})});
    CHECK(sum.a.values() == ones(28));
    CHECK(sum.b.values() == std::vector<double>(4, 7.0));
  }
  // A 16-bit gradient of many rows does not stall.
  const Gradients many =
      backward(device, {.op = Binary::add}, Array(DType::bf16, {16384, 3}), Array(DType::bf16, {3}),
               Array(DType::bf16, {16384, 3}, ones(3 * 16384)),
               {Array(DType::bf16, {16384, 3}), Array(DType::bf16, {3})});
  CHECK(many.b.values() == std::vector<double>(3, 16384.0));
}

TEST_CASE("sim: operands that no wanted gradient reads need no data; bad shapes are refused") {
  SimDevice device;
  const Array dy(DType::fp32, {2, 3}, {1, 2, 3, 4, 5, 6});
  const Resident dy_there(device, dy);
  const ConstView rows{nullptr, DType::fp32, {2, 3}}, row{nullptr, DType::fp32, {3}};
  const Array db = on_device(device, Array(DType::fp32, {3}), [&](const Out& out) {
    binary_backward(device.target(), {.op = Binary::sub}, rows, row, dy_there, Out(), out,
                    device.scratch());
  });
  CHECK(db.values() == std::vector<double>{-5, -7, -9});
  const auto launches = device.emulator().counters().launches;
  CHECK_THROWS_AS(binary_backward(device.target(), {.op = Binary::add}, row, row, dy_there, Out(),
                                  Out(), device.scratch()),
                  Error);
  binary_backward(device.target(), {.op = Binary::mul}, rows, row, dy_there, Out(), Out(),
                  device.scratch());
  CHECK(device.emulator().counters().launches == launches);
}
