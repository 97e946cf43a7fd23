// Kernels that are limited by bandwidth move no more than they must: by the profiler's count, the
// sectors of every request are the least that its bytes need, all sectors together are at most 1.02
// of each input read once and each output written once, and no access of shared memory conflicts.
// Kernels of rows and channels: row_bandwidth_test.cpp.
#include "tests/simt_kernels/bandwidth.h"

#include <random>

#include "kernels/base/convert.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/permute.h"
#include "kernels/reduce/reduce.h"
#include "kernels/step/device_step.h"
#include "tests/simt_kernels/step_model.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_CASE("conversions, elementwise functions and dropout read and write once, any types") {
  Profiled p;
  const Shape shape{64, 512};
  SimScratch scratch(p.device);
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      CAPTURE(name(from));
      CAPTURE(name(to));
      const View x = p.zeros(from, shape);
      const View y = p.zeros(to, shape);
      const double in = bytes_of(x), out = bytes_of(y);
      p.expect_ideal("convert", in + out, [&] { convert(p.target(), x, y); });
      for (const Unary op : {Unary::relu, Unary::gelu, Unary::tanh, Unary::exp}) {
        if (from != to && op != Unary::gelu) continue;
        p.expect_ideal("unary forward", in + out, [&] { unary_forward(p.target(), {op}, x, y); });
        p.expect_ideal("unary backward", 2 * in + out,
                       [&] { unary_backward(p.target(), {op}, x, x, y); });
      }
      p.expect_ideal("add", 2 * in + out, [&] { binary_forward(p.target(), {}, x, x, y); });
      p.expect_ideal("mul", 2 * in + out,
                     [&] { binary_forward(p.target(), {Binary::mul}, x, x, y); });
      p.expect_ideal("dropout", in + out,
                     [&] { dropout_forward(p.target(), {.p = 0.5, .stream = {}}, x, y); });
      if (to == DType::fp32)
        p.expect_ideal("mul backward", 2 * in + out, [&] {
          binary_backward(p.target(), {Binary::mul}, x, x, x, Out(), Out(y), scratch);
        });
    }
    p.expect_ideal("fill", bytes_of(p.zeros(from, shape)),
                   [&] { fill(p.target(), 1.0, p.zeros(from, shape)); });
  }
}

TEST_CASE("a transpose goes through shared memory without conflicts, for values of every size") {
  Profiled p;
  for (const DType dtype : {DType::u8, DType::bf16, DType::fp32, DType::i64}) {
    CAPTURE(name(dtype));
    const View x = p.zeros(dtype, {3, 64, 96});
    const View y = p.zeros(dtype, {3, 96, 64});
    p.expect_ideal("permute", 2 * bytes_of(x), [&] {
      permute(p.target(), {.axes = {0, 2, 1}}, x, y);
    });
  }
  const View x = p.zeros(DType::fp16, {256, 512});
  const View y = p.zeros(DType::fp32, {512, 256});
  p.expect_ideal("permute with a conversion", bytes_of(x) + bytes_of(y), [&] {
    permute(p.target(), {.axes = {1, 0}}, x, y);
  });
}

TEST_CASE("reductions read once, in whole sectors, without conflicts; their gradients write once") {
  Profiled p;
  struct Case {
    Shape shape;
    std::uint32_t axes;
  };
  for (const Case& c :
       {Case{{4, 8192}, 2}, Case{{16, 1024}, 2}, Case{{64, 256}, 2}, Case{{256, 64}, 1}}) {
    for (const DType dtype : kTypes) {
      CAPTURE(c.shape);
      CAPTURE(name(dtype));
      const View x = p.zeros(dtype, c.shape);
      const View y = p.zeros(DType::fp32, reduced_shape(c.shape, c.axes, false));
      SimScratch scratch(p.device);
      for (const Reduce op : {Reduce::sum, Reduce::mean, Reduce::norm}) {
        const Traffic t =
            p.traffic([&] { reduce_forward(p.target(), op, {.axes = c.axes}, x, y, scratch); });
        CHECK(t.launches == 1);
        CHECK(t.loads.sectors == t.loads.least_sectors);
        CHECK(t.read() <= kMostTraffic * bytes_of(x));
        CHECK(t.excess() == 0);
      }
      const Traffic t = p.traffic(
          [&] { reduce_backward(p.target(), Reduce::sum, {.axes = c.axes}, x, y, x, scratch); });
      CHECK(t.written() == bytes_of(x));
    }
  }
}

TEST_CASE(
    "the optimizer's two launches: 30 bytes a parameter with 16-bit gradients, 34 with fp32") {
  Profiled p;
  std::mt19937 random(1);
  constexpr std::int64_t kSize = 1 << 16;
  for (const DType gradient : {DType::fp16, DType::fp32}) {
    CAPTURE(name(gradient));
    StepModel model(p.device, {kSize, kSize}, {DType::fp32, gradient, DType::fp16}, random);
    const StepTable& table = model.upload();
    StepState state = model.state();
    state.valid = 1;  // a window without samples takes no step
    model.set_state(state);
    WindowParams params;
    // Gradient, then gradient, master (read and written), two moments (likewise) and the copy.
    const auto g = static_cast<double>(size_of(gradient));
    const double minimum = 2 * kSize * (g + g + 8 + 16 + 2);
    const Traffic t = p.traffic([&] {
      inspect_window(p.target(), params, table);
      update_window(p.target(), AdamParams{}, table);
    });
    CHECK(t.launches == 2);
    CHECK(t.moved() >= minimum);
    CHECK(t.moved() <= kMostTraffic * minimum);
    CHECK(t.excess() == 0);
    CHECK(t.wasted() <= 64);  // of the table, whose rows straddle sectors
    CHECK(model.state().record.did_step == 1);
  }
}
