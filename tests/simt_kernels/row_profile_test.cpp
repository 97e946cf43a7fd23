// What the kernels of rows and channels move: every element once where a row stays in registers,
// in whole sectors, without conflicts in shared memory.
#include <doctest/doctest.h>

#include <functional>

#include "kernels/loss/cross_entropy.h"
#include "kernels/norm/batch_norm.h"
#include "kernels/norm/layer_norm.h"
#include "kernels/simt/emulator/profiler/profile.h"
#include "kernels/softmax/softmax.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

struct Traffic {
  simt::RequestCounts loads, stores;
  std::uint64_t excess = 0;  // wavefronts of shared memory
  std::size_t launches = 0;
};

// The traffic of launches whose name begins with `kernel`.
Traffic traffic(SimDevice& device, std::string_view kernel,
                const std::function<void(Checked)>& run) {
  device.emulator().config.profile = true;
  device.emulator().reset_profile();
  run(device.target());
  Traffic t;
  for (const simt::LaunchProfile& launch : device.emulator().profile().launches) {
    if (!std::string_view(launch.kernel).starts_with(kernel)) continue;
    t.loads += launch.global_loads;
    t.stores += launch.global_stores;
    t.excess += launch.shared_loads.excess_wavefronts + launch.shared_stores.excess_wavefronts;
    ++t.launches;
  }
  return t;
}

// `reads` and `writes`: bytes that have to be moved. 2% are for what belongs to rows.
void check_ideal(const Traffic& t, std::int64_t reads, std::int64_t writes) {
  REQUIRE(t.launches == 1);
  CHECK(t.loads.sectors == t.loads.least_sectors);
  CHECK(t.stores.sectors == t.stores.least_sectors);
  CHECK(static_cast<double>(32 * t.loads.sectors) <= 1.02 * static_cast<double>(reads));
  CHECK(static_cast<double>(32 * t.stores.sectors) <= 1.02 * static_cast<double>(writes));
  CHECK(t.excess == 0);
}

}  // namespace

TEST_CASE("softmax of resident rows: one read, one write, whole sectors") {
  struct Case {
    std::int64_t rows, n;
  };
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
    for (const Case& c : {Case{64, 64}, {32, 128}, {16, 1024}, {4, 4096}, {2, 8192}}) {
      CAPTURE(name(dtype));
      CAPTURE(c.n);
      SimDevice device;
      const Shape shape{c.rows, c.n};
      const std::int64_t bytes = shape.numel() * static_cast<std::int64_t>(size_of(dtype));
      // The guards of tests' arrays are 64 elements: places are 128-byte aligned.
      Array x(dtype, shape, Uniform(1).take(shape.numel(), 4)), y(dtype, shape), dx(dtype, shape);
      SimScratch scratch(device);
      const Resident rx(device, x);
      Resident ry(device, y), rdx(device, dx);
      check_ideal(traffic(device, "softmax_rows",
                          [&](Checked c) { softmax_forward(c, {}, *rx, ry.out(), scratch); }),
                  bytes, bytes);
      check_ideal(traffic(device, "softmax_rows_backward",
                          [&](Checked c) { softmax_backward(c, {}, *ry, *rx, rdx.out()); }),
                  2 * bytes, bytes);
    }
  }
}

TEST_CASE("cross-entropy: one read forward; gradient in place, one read and one write") {
  struct Case {
    std::int64_t rows, classes;
  };
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const Case& c : {Case{2, 8192}, {1, 100000}}) {
      CAPTURE(name(dtype));
      CAPTURE(c.classes);
      SimDevice device;
      const Shape shape{c.rows, c.classes};
      const std::int64_t bytes = shape.numel() * static_cast<std::int64_t>(size_of(dtype));
      Array x(dtype, shape, Uniform(1).take(shape.numel(), 4));
      const Array labels(DType::i64, {c.rows},
                         std::vector<double>(static_cast<std::size_t>(c.rows), 3));
      Array loss(DType::fp32, {}), valid(DType::fp32, {}), stats(DType::fp32, {c.rows, 2});
      const Array seed(DType::fp32, {}, {1.0});
      SimScratch scratch(device);
      Resident rx(device, x), rl(device, loss), rv(device, valid), rs(device, stats);
      const Resident t(device, labels), s(device, seed);
      const ConstView none = ConstView::absent();
      const Traffic forward = traffic(
          device, c.classes > 8192 ? "cross_entropy_long" : "cross_entropy_rows", [&](Checked d) {
            cross_entropy_forward(d, {}, *rx, *t, none, rl.out(), rv.out(), rs.out(), scratch);
          });
      CHECK(forward.launches == 1);
      CHECK(forward.excess == 0);
      CHECK(static_cast<double>(32 * forward.loads.sectors) <= 1.02 * static_cast<double>(bytes));
      if (c.classes < 10000) continue;
      check_ideal(traffic(device, "cross_entropy_backward",
                          [&](Checked d) {
                            cross_entropy_backward(d, {}, *rx, *t, none, *rv, *rs, *s, rx.out());
                          }),
                  bytes, bytes);
    }
  }
}

TEST_CASE("norms: rows and channels in whole sectors") {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    CAPTURE(name(dtype));
    SimDevice device;
    const Shape shape{256, 512};
    const std::int64_t bytes = shape.numel() * static_cast<std::int64_t>(size_of(dtype));
    Array x(dtype, shape, Uniform(1).take(shape.numel(), 4)), y(dtype, shape);
    const std::vector<double> zeros(512, 0.0);
    Array mean(DType::fp32, {256}), rstd(DType::fp32, {256}), dgamma(DType::fp32, {512}),
        channel_mean(DType::fp32, {512}), channel_rstd(DType::fp32, {512});
    SimScratch scratch(device);
    const Resident rx(device, x);
    Resident ry(device, y), rm(device, mean), rr(device, rstd), rg(device, dgamma),
        cm(device, channel_mean), cr(device, channel_rstd);
    const ConstView none = ConstView::absent();
    const Traffic rows = traffic(device, "layer_norm_rows", [&](Checked d) {
      layer_norm_forward(d, {}, *rx, none, none, ry.out(), rm.out(), rr.out(), scratch);
    });
    CHECK(rows.loads.sectors == static_cast<std::uint64_t>(bytes / 32));
    CHECK(rows.loads.least_sectors == rows.loads.sectors);
    CHECK(rows.excess == 0);
    const Traffic sums = traffic(device, "affine_gradients", [&](Checked d) {
      layer_norm_backward(d, {}, *rx, none, *rm, *rr, *rx, {}, rg.out(), {}, scratch);
    });
    CHECK(sums.launches == 1);
    CHECK(sums.excess == 0);
    const Traffic channels = traffic(device, "batch_norm", [&](Checked d) {
      batch_norm_forward_training(d, {}, *rx, none, none, none, none, ry.out(), cm.out(), cr.out(),
                                  {}, {}, scratch);
    });
    CHECK(channels.launches == 5);
    CHECK(channels.excess == 0);
    // A pack of 8 columns takes two accesses to the 32 bytes of its statistics.
    if (dtype == DType::fp32) CHECK(channels.loads.sectors == channels.loads.least_sectors);
    const Traffic mean_only = traffic(device, "batch_norm_mean", [&](Checked d) {
      batch_norm_forward_training(d, {}, *rx, none, none, none, none, ry.out(), cm.out(), cr.out(),
                                  {}, {}, scratch);
    });
    CHECK(32 * mean_only.loads.sectors == static_cast<std::uint64_t>(bytes));
  }
}
