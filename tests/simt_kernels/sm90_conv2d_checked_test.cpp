// The sm_90a kernels of conv2d under the sanitizer and the profiler: silent under many schedules,
// free of bank conflicts.
#include <doctest/doctest.h>

#include "kernels/simt/emulator/profiler/profile.h"
#include "tests/simt_kernels/sim_device.h"
#include "tests/simt_kernels/sm90_conv2d.h"
#include "verify/oracle/conv2d.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_CASE("conv2d on sm_90a is silent under the sanitizer, and free of bank conflicts") {
  std::mt19937 random(101);
  const auto whole = [&](std::int64_t n) {
    std::vector<double> v(static_cast<std::size_t>(n));
    for (double& x : v) x = static_cast<double>(random() % 5) - 2;
    return v;
  };
  constexpr Sm90Tile kTiles[] = {Sm90Tile::large, Sm90Tile::small, Sm90Tile::medium};
  for (std::uint64_t schedule = 0; schedule < kSchedules; ++schedule)
    for (std::size_t pass = 0; pass < 3; ++pass) {
      const oracle::Conv2dParams o{
          .n = 2, .h = 9, .w = 8, .c = 64, .k = 72, .r = 2, .s = 3, .pad_h = 1, .pad_w = 1};
      const Conv2dParams p{.padding = {1, 1}};
      const Shape xs{o.n, o.h, o.w, o.c}, ws{o.k, o.r, o.s, o.c}, ys{o.n, o.p(), o.q(), o.k};
      const std::vector<double> x = whole(o.x_size()), w = whole(o.w_size()),
                                dy = whole(o.y_size());
      const DType dtype = schedule % 2 == 0 ? DType::fp16 : DType::bf16;
      const DType to = schedule % 3 == 0 ? DType::fp64 : DType::fp32;
      const Array ax(dtype, xs, x), aw(dtype, ws, w), ady(dtype, ys, dy);
      Array y(to, pass == 0 ? ys : pass == 1 ? xs : ws);
      SimDevice device(schedule);
      device.emulator().config.profile = true;
      const Resident rx(device, ax), rw(device, aw), rdy(device, ady);
      Resident ry(device, y);
      const Sm90Tile tile = kTiles[(schedule + pass) % 3];
      const ConvPass which = pass == 0   ? ConvPass::forward
                             : pass == 1 ? ConvPass::grad_input
                                         : ConvPass::grad_weight;
      CAPTURE(schedule);
      CAPTURE(pass);
      REQUIRE_NOTHROW(sm90_conv2d(device.target(), {which, p, xs, ws, schedule % 4 == 1, {tile, 2}},
                                  pass == 1 ? *rdy : *rx, pass == 2 ? *rdy : *rw,
                                  ConstView::absent(), ry.out(), device.scratch()));
      ry.fetch();
      CHECK(y.values() == (pass == 0   ? oracle::conv2d(o, x, w)
                           : pass == 1 ? oracle::conv2d_dgrad(o, w, dy)
                                       : oracle::conv2d_wgrad(o, x, dy)));
      CHECK(device.emulator().counters().shared_store_wavefronts > 0);
      CHECK(device.emulator().counters().shared_excess_wavefronts == 0);
    }
}
