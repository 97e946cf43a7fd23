// Kernels that are limited by bandwidth move no more than they must: by the profiler's count, the
// sectors of every request are the least that its bytes need, all sectors together are at most 1.02
// of each input read once and each output written once, and no access of shared memory conflicts.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/base/convert.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/permute.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/simt/emulator/profiler/profile.h"
#include "kernels/softmax/softmax.h"
#include "kernels/step/device_step.h"
#include "tests/simt_kernels/sim_device.h"
#include "tests/simt_kernels/step_model.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr double kMostTraffic = 1.02;  // of the minimum (kernels.md)
constexpr double kSector = 32;

class Profiled {
 public:
  Profiled() { device.emulator().config.profile = true; }
  Checked target() { return {device.target().stream, device.target().errors}; }

  // Device memory of zeros, aligned as the allocator aligns it.
  View zeros(DType dtype, const Shape& shape) {
    const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
    void* p = device.emulator().allocate(bytes);
    device.emulator().fill(p, 0, bytes);
    return {p, dtype, shape};
  }
  static double bytes(const View& v) {
    return static_cast<double>(v.numel()) * static_cast<double>(size_of(v.dtype));
  }

  // `minimum`: bytes that any kernel has to read and write.
  template <class F>
  void expect_ideal(const char* what, double minimum, F&& f) {
    device.emulator().reset_profile();
    f();
    simt::RequestCounts global;
    simt::RequestCounts shared;
    for (const simt::LaunchProfile& l : device.emulator().profile().launches) {
      global += l.global_loads;
      global += l.global_stores;
      shared += l.shared_loads;
      shared += l.shared_stores;
    }
    CAPTURE(std::string(what));
    REQUIRE(global.requests > 0);
    const double moved = kSector * static_cast<double>(global.sectors);
    CAPTURE(moved);
    CAPTURE(minimum);
    CHECK(global.sectors == global.least_sectors);
    CHECK(moved / minimum <= kMostTraffic);
    CHECK(shared.excess_wavefronts == 0);
    if (moved / minimum > kMostTraffic || global.sectors != global.least_sectors ||
        shared.excess_wavefronts != 0) {
      std::ostringstream table;
      device.emulator().profile().print(table);
      MESSAGE(table.str());
    }
  }

  SimDevice device;
};

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};

}  // namespace

TEST_CASE("conversions and elementwise functions read and write once") {
  Profiled p;
  const Shape shape{64, 1024};
  for (const DType dtype : kTypes) {
    CAPTURE(name(dtype));
    const View x = p.zeros(dtype, shape);
    const View y = p.zeros(dtype, shape);
    const View z = p.zeros(dtype, shape);
    const View wide = p.zeros(DType::fp32, shape);
    const double one = Profiled::bytes(x);
    p.expect_ideal("convert to fp32", one + Profiled::bytes(wide),
                   [&] { convert(p.target(), x, wide); });
    p.expect_ideal("convert from fp32", one + Profiled::bytes(wide),
                   [&] { convert(p.target(), wide, x); });
    p.expect_ideal("fill", one, [&] { fill(p.target(), 1.0, x); });
    for (const Unary op : {Unary::relu, Unary::gelu, Unary::tanh, Unary::exp}) {
      p.expect_ideal("unary forward", 2 * one, [&] { unary_forward(p.target(), {op}, x, y); });
      p.expect_ideal("unary backward", 3 * one, [&] { unary_backward(p.target(), {op}, x, y, z); });
    }
    p.expect_ideal("add", 3 * one, [&] { binary_forward(p.target(), {Binary::add}, x, y, z); });
    p.expect_ideal("mul", 3 * one, [&] { binary_forward(p.target(), {Binary::mul}, x, y, z); });
    SimScratch scratch(p.device);
    p.expect_ideal("mul backward", 2 * one + Profiled::bytes(wide), [&] {
      binary_backward(p.target(), {Binary::mul}, x, y, z, Out(), Out(wide), scratch);
    });
  }
}

TEST_CASE("a transpose goes through shared memory without conflicts") {
  Profiled p;
  for (const DType dtype : kTypes) {
    CAPTURE(name(dtype));
    const View x = p.zeros(dtype, {256, 512});
    const View y = p.zeros(dtype, {512, 256});
    PermuteParams params;
    params.axes = {1, 0};
    p.expect_ideal("permute", 2 * Profiled::bytes(x), [&] { permute(p.target(), params, x, y); });
  }
}

TEST_CASE("softmax and log-softmax read a row once and write it once") {
  Profiled p;
  SimScratch scratch(p.device);
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {64, 128, 1024, 3072, 8192}) {
      CAPTURE(name(dtype));
      CAPTURE(n);
      const Shape shape{std::max<std::int64_t>(32768 / n, 4), n};
      const View x = p.zeros(dtype, shape);
      const View y = p.zeros(dtype, shape);
      const View z = p.zeros(dtype, shape);
      const double one = Profiled::bytes(x);
      p.expect_ideal("softmax forward", 2 * one,
                     [&] { softmax_forward(p.target(), {}, x, y, scratch); });
      p.expect_ideal("softmax backward", 3 * one,
                     [&] { softmax_backward(p.target(), {}, x, y, z); });
      p.expect_ideal("log-softmax forward", 2 * one,
                     [&] { log_softmax_forward(p.target(), {}, x, y); });
    }
  }
}

TEST_CASE("the gradient of cross-entropy in place: one read, one write") {
  Profiled p;
  for (const DType dtype : kTypes) {
    // A row's label and statistics are read by each of its warps, from the cache on a GPU: a share
    // that a short row would show.
    for (const std::int64_t n : {32768, 100'000}) {
      CAPTURE(name(dtype));
      CAPTURE(n);
      const std::int64_t rows = 2;
      const View logits = p.zeros(dtype, {rows, n});
      const View labels = p.zeros(DType::i64, {rows});
      const View stats = p.zeros(DType::fp32, {rows, 2});
      const View valid = p.zeros(DType::fp32, {});
      const View dloss = p.zeros(DType::fp32, {});
      p.expect_ideal("cross-entropy backward", 2 * Profiled::bytes(logits), [&] {
        cross_entropy_backward(p.target(), {}, logits, labels, ConstView::absent(), valid, stats,
                               dloss, logits);
      });
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
    WindowParams params;
    // Gradient, then gradient, master (read and written), two moments (likewise) and the copy.
    const auto g = static_cast<double>(size_of(gradient));
    p.expect_ideal("both launches", 2 * kSize * (g + g + 8 + 16 + 2), [&] {
      inspect_window(p.target(), params, table);
      update_window(p.target(), AdamParams{}, table);
    });
    CHECK(p.device.emulator().profile().launches.size() == 2);
  }
}
