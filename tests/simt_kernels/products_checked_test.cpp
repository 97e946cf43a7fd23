// The kernels of products, convolutions and pooling under the sanitizer and the profiler: silent
// under many schedules, no bank conflicts, whole sectors.
#include <doctest/doctest.h>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "kernels/pool/pool.h"
#include "kernels/simt/emulator/profiler/profile.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/oracle/conv2d.h"
#include "verify/oracle/matmul.h"

using namespace roundoff;
using namespace roundoff::test;
using simt::RequestCounts;
using simt::RequestKind;

namespace {

constexpr std::uint64_t kManySchedules = 16;

std::vector<double> whole(std::int64_t n, std::mt19937& random) {
  std::vector<double> v(static_cast<std::size_t>(n));
  for (double& x : v) x = static_cast<double>(random() % 7) - 3;
  return v;
}

struct Profiled : SimDevice {
  explicit Profiled(std::uint64_t schedule) : SimDevice(schedule) {
    emulator().config.profile = true;
  }
  RequestCounts sum(RequestKind kind) {
    RequestCounts all;
    for (const simt::LaunchProfile& l : emulator().profile().launches) {
      if (kind == RequestKind::global_load) all += l.global_loads;
      if (kind == RequestKind::global_store) all += l.global_stores;
      if (kind == RequestKind::shared_load) all += l.shared_loads;
      if (kind == RequestKind::shared_store) all += l.shared_stores;
    }
    return all;
  }
  void expect_no_conflicts() {
    CHECK(sum(RequestKind::shared_load).wavefronts > 0);
    CHECK(sum(RequestKind::shared_store).wavefronts > 0);
    CHECK(sum(RequestKind::shared_load).excess_wavefronts == 0);
    CHECK(sum(RequestKind::shared_store).excess_wavefronts == 0);
  }
};

}  // namespace

TEST_CASE("gemm is silent under the sanitizer, and free of bank conflicts") {
  std::mt19937 random(1);
  struct Size {
    std::int64_t m, n, k;
  };
  const Size sizes[] = {{17, 23, 31}, {70, 30, 20}, {66, 68, 35}, {5, 3, 600}};
  const DType types[] = {DType::fp32, DType::fp16, DType::bf16, DType::fp64};
  for (std::uint64_t schedule = 0; schedule < kManySchedules; ++schedule) {
    for (std::size_t i = 0; i < 4; ++i) {
      const Size s = sizes[i];
      const bool ta = (schedule & 1) != 0 || i == 3, tb = (schedule & 2) != 0;
      const DType dtype = types[(schedule / 4 + i) % 4];
      const oracle::MatmulParams o{.m = s.m, .n = s.n, .k = s.k, .trans_a = ta, .trans_b = tb};
      const std::vector<double> a = whole(o.a_size(), random), b = whole(o.b_size(), random);
      const Array left(dtype, {o.a_size()}, a), right(dtype, {o.b_size()}, b),
          bias(DType::fp32, {s.n}, std::vector<double>(static_cast<std::size_t>(s.n), 1.0));
      Array y(DType::fp32, {s.m, s.n}, ones(s.m * s.n));
      Profiled device(schedule);
      SimScratch scratch(device);
      const Resident ra(device, left), rb(device, right), rc(device, bias);
      Resident ry(device, y);
      gemm(device.target(), {.m = s.m, .n = s.n, .k = s.k, .trans_a = ta, .trans_b = tb, .beta = 1},
           *ra, *rb, *rc, ry.out(Write::accumulate), scratch);
      ry.fetch();
      std::vector<double> want = oracle::matmul(o, a, b);
      for (double& v : want) v += 2;
      CHECK(y.values() == want);
      device.expect_no_conflicts();
    }
  }
}

TEST_CASE("gemm on tensor cores is silent under the sanitizer, and free of bank conflicts") {
  std::mt19937 random(2);
  for (std::uint64_t schedule = 0; schedule < kManySchedules; ++schedule) {
    const bool ta = (schedule & 1) != 0, tb = (schedule & 2) != 0, tf32 = schedule % 3 == 0;
    const DType dtype = tf32 ? DType::fp32 : DType::fp16;
    const oracle::MatmulParams o{.m = 65, .n = 30, .k = 37, .trans_a = ta, .trans_b = tb};
    const std::vector<double> a = whole(o.a_size(), random), b = whole(o.b_size(), random);
    const Array left(dtype, {o.a_size()}, a), right(dtype, {o.b_size()}, b);
    Array y(DType::fp32, {o.y_size()});
    Profiled device(schedule);
    SimScratch scratch(device);
    const Resident ra(device, left), rb(device, right);
    Resident ry(device, y);
    gemm(device.target(),
         {.m = o.m,
          .n = o.n,
          .k = o.k,
          .trans_a = ta,
          .trans_b = tb,
          .accumulator = Accumulator::h100,
          .tf32 = tf32},
         *ra, *rb, ConstView::absent(), ry.out(), scratch);
    ry.fetch();
    CHECK(y.values() == oracle::matmul(o, a, b));
    device.expect_no_conflicts();
  }
}

TEST_CASE("large tiles of gemm are free of bank conflicts, and read whole sectors") {
  std::mt19937 random(3);
  const oracle::MatmulParams o{.m = 1280, .n = 1664, .k = 16};
  const std::vector<double> a = whole(o.a_size(), random), b = whole(o.b_size(), random);
  const Array left(DType::fp32, {o.a_size()}, a), right(DType::fp32, {o.b_size()}, b);
  Array y(DType::fp32, {o.y_size()});
  Profiled device(0);
  device.emulator().config.sanitize = false;
  SimScratch scratch(device);
  const Resident ra(device, left), rb(device, right);
  Resident ry(device, y);
  gemm(device.target(), {.m = o.m, .n = o.n, .k = o.k}, *ra, *rb, ConstView::absent(), ry.out(),
       scratch);
  ry.fetch();
  CHECK(y.values() == oracle::matmul(o, a, b));
  device.expect_no_conflicts();
  const RequestCounts loads = device.sum(RequestKind::global_load),
                      stores = device.sum(RequestKind::global_store);
  CHECK(loads.sectors == loads.least_sectors);
  CHECK(stores.sectors == stores.least_sectors);
  CHECK(stores.bytes == static_cast<std::uint64_t>(4 * o.y_size()));
}

TEST_CASE("conv2d is silent under the sanitizer, and free of bank conflicts") {
  std::mt19937 random(4);
  for (std::uint64_t schedule = 0; schedule < kManySchedules; ++schedule) {
    const bool depthwise = schedule % 4 == 3;
    const std::int64_t groups = depthwise ? 8 : schedule % 3 == 2 ? 2 : 1;
    const std::int64_t c = depthwise ? 1 : schedule % 2 == 0 ? 4 : 3;
    const Conv2dParams p{.stride = {2, 1}, .padding = {1, 1}, .groups = groups};
    const oracle::Conv2dParams o{.n = 2,
                                 .h = 7,
                                 .w = 6,
                                 .c = c * groups,
                                 .k = (depthwise ? 1 : 5) * groups,
                                 .r = 3,
                                 .s = 3,
                                 .stride_h = 2,
                                 .stride_w = 1,
                                 .pad_h = 1,
                                 .pad_w = 1,
                                 .groups = groups};
    const Shape xs{o.n, o.h, o.w, o.c}, ws{o.k, o.r, o.s, c}, ys{o.n, o.p(), o.q(), o.k};
    const std::vector<double> x = whole(o.x_size(), random), w = whole(o.w_size(), random),
                              dy = whole(o.y_size(), random);
    const DType dtype = schedule % 4 == 0 ? DType::fp16 : DType::fp32;
    const Array ax(dtype, xs, x), aw(dtype, ws, w), ady(dtype, ys, dy);
    Array y(DType::fp32, ys), dx(DType::fp32, xs), dw(DType::fp32, ws), db(DType::fp32, {o.k});
    Profiled device(schedule);
    SimScratch scratch(device);
    const Resident rx(device, ax), rw(device, aw), rdy(device, ady);
    Resident to_y(device, y), to_dx(device, dx), to_dw(device, dw), to_db(device, db);
    const SimTarget target = device.target();
    conv2d_forward(target, p, *rx, *rw, ConstView::absent(), to_y.out(), scratch);
    conv2d_grad_input(target, p, *rdy, *rw, to_dx.out(), scratch);
    conv2d_grad_weight(target, p, *rx, *rdy, to_dw.out(), scratch);
    conv2d_grad_bias(target, p, *rdy, to_db.out(), scratch);
    for (Resident* r : {&to_y, &to_dx, &to_dw, &to_db}) r->fetch();
    CHECK(y.values() == oracle::conv2d(o, x, w));
    CHECK(dx.values() == oracle::conv2d_dgrad(o, w, dy));
    CHECK(dw.values() == oracle::conv2d_wgrad(o, x, dy));
    CHECK(db.values() == oracle::conv2d_bias_grad(o, dy));
    if (!depthwise) device.expect_no_conflicts();
  }
}

TEST_CASE("pooling and column sums are silent under the sanitizer, and move whole sectors") {
  std::mt19937 random(5);
  for (std::uint64_t schedule = 0; schedule < kManySchedules; ++schedule) {
    for (const DType dtype : {DType::fp32, DType::fp16}) {
      const Shape xs{2, 8, 8, 32}, ys{2, 4, 4, 32};
      const Array x(dtype, xs, std::span<const double>(whole(xs.numel(), random)));
      const Array dy(dtype, ys, std::span<const double>(whole(ys.numel(), random)));
      Array y(dtype, ys), argmax(DType::i32, ys), dx(dtype, xs), mean(dtype, ys), sums(dtype, {32});
      Profiled device(schedule);
      SimScratch scratch(device);
      const Resident rx(device, x), rdy(device, dy);
      Resident ry(device, y), rarg(device, argmax), rdx(device, dx), rmean(device, mean),
          rsums(device, sums);
      const SimTarget target = device.target();
      max_pool2d_forward(target, {}, *rx, ry.out(), rarg.out(), scratch);
      avg_pool2d_forward(target, {}, Accumulator::fp32, *rx, rmean.out(), scratch);
      max_pool2d_backward(target, {}, *rarg, *rdy, rdx.out(), scratch);
      avg_pool2d_backward(target, {}, *rdy, rdx.out(), scratch);
      column_sums(target, {.rows = 32, .columns = 32}, *rdy, rsums.out(), scratch);
      const RequestCounts loads = device.sum(RequestKind::global_load),
                          stores = device.sum(RequestKind::global_store);
      CHECK(loads.requests > 0);
      CHECK(loads.sectors == loads.least_sectors);
      CHECK(stores.sectors == stores.least_sectors);
    }
  }
}
