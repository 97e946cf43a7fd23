// Modelled accumulators on a device: the reference's bits, for every product.
#include "kernels/gemm/modelled.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

struct Kind {
  Accumulator accumulator;
  DType a, b;
  bool tf32 = false;
};
constexpr Kind kKinds[] = {{Accumulator::fp16, DType::fp16, DType::fp16},
                           {Accumulator::fp16, DType::bf16, DType::fp32},
                           {Accumulator::fp16, DType::fp32, DType::fp32, true},
                           {Accumulator::v100, DType::fp16, DType::fp16},
                           {Accumulator::a100, DType::fp16, DType::fp16},
                           {Accumulator::a100, DType::bf16, DType::bf16},
                           {Accumulator::a100, DType::fp32, DType::fp32, true},
                           {Accumulator::a100, DType::fp16, DType::bf16, true},
                           {Accumulator::h100, DType::fp16, DType::fp16},
                           {Accumulator::h100, DType::bf16, DType::bf16},
                           {Accumulator::h100, DType::fp32, DType::fp32, true},
                           {Accumulator::h100, DType::fp32, DType::fp16, true},
                           // No tensor cores: plain sums, of integers here.
                           {Accumulator::h100, DType::fp16, DType::bf16}};
bool plain(const Kind& kind) {
  return !arithmetic("test", kind.accumulator, kind.a, kind.b, kind.tf32).modelled;
}

struct Values {
  std::mt19937 random;
  // Of very different sizes, with cancellations and now and then a subnormal of fp16.
  std::vector<double> take(std::int64_t n, DType dtype, bool whole) {
    std::vector<double> v = normal(n, DType::fp64, random);
    for (double& x : v) {
      if (whole)
        x = static_cast<double>(random() % 9) - 4;
      else
        x = std::ldexp(x, static_cast<int>(random() % 16) - 12);
    }
    return Array(dtype, {n}, v).values();
  }
};

}  // namespace

TEST_CASE("gemm in modelled arithmetic on a device has the reference's bits") {
  Values values{std::mt19937(31)};
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(values.random() % from.size()));
  };
  int trial = 0;
  for (int round = 0; round < 12; ++round) {
    for (const Kind& kind : kKinds) {
      CAPTURE(trial);
      const std::int64_t m = pick({1, 3, 17, 65}), n = pick({1, 5, 8, 33, 70}),
                         k = pick({1, 4, 7, 16, 37, 100});
      GemmParams p{.batch = pick({1, 1, 2, 3}),
                   .m = m,
                   .n = n,
                   .k = k,
                   .trans_a = values.random() % 2 == 0,
                   .trans_b = values.random() % 2 == 0,
                   .alpha = std::array{1.0, 1.0, 0.5}[values.random() % 3],
                   .beta = std::array{0.0, 1.0, 0.5}[values.random() % 3],
                   .accumulator = kind.accumulator,
                   .tf32 = kind.tf32,
                   .stride_a = m * k,
                   .stride_b = values.random() % 2 == 0 ? k * n : 0};
      p.sum_batch = values.random() % 3 == 0;
      const bool bias = values.random() % 2 == 0;
      const DType out =
          std::array{DType::fp32, DType::fp16, DType::bf16, DType::fp64}[values.random() % 4];
      const bool accumulate = !is_16bit(out) && values.random() % 2 == 0;
      const std::int64_t offset = pick({0, 0, 1});
      const bool whole = plain(kind);
      const std::int64_t results = p.sum_batch ? 1 : p.batch;
      const auto array = [&](std::int64_t size, DType d) {
        return Array(d, {size}, values.take(size, d, whole), offset);
      };
      const Array a = array(p.batch * m * k, kind.a), b = array(p.batch * k * n, kind.b),
                  c = array(bias ? n : m * n, DType::fp32);
      Array want = array(results * m * n, out), got = want;
      const Write write = accumulate ? Write::accumulate : Write::overwrite;
      Scratch scratch;
      gemm(Ref{}, p, *a, *b, *c, want.out(write), scratch);

      SimDevice device(static_cast<std::uint64_t>(trial++) % kSchedules);
      SimScratch workspace(device);
      const Resident left(device, a), right(device, b), addend(device, c);
      Resident result(device, got);
      gemm(device.target(), p, *left, *right, *addend, result.out(write), workspace);
      result.fetch();
      CHECK(same_bits(got, want));
    }
  }
}

TEST_CASE("infinities and NaN in modelled arithmetic on a device") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const Kind& kind : kKinds) {
    if (kind.a != DType::fp16 || kind.b != DType::fp16) continue;
    const Array a(DType::fp16, {3, 3}, {kInf, 1, 1, kInf, -kInf, 1, 65504, 65504, 65504}),
        b(DType::fp16, {3, 2}, {1, 0, 1, 1, 1, 65504});
    const GemmParams p{.m = 3, .n = 2, .k = 3, .accumulator = kind.accumulator};
    Array want(DType::fp32, {3, 2}), got = want;
    Scratch scratch;
    gemm(Ref{}, p, *a, *b, ConstView::absent(), want.out(), scratch);
    SimDevice device;
    const Resident left(device, a), right(device, b);
    Resident result(device, got);
    gemm(device.target(), p, *left, *right, ConstView::absent(), result.out(), scratch);
    result.fetch();
    for (std::int64_t i = 0; i < 6; ++i)
      CHECK((std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]));
  }
}

TEST_CASE("column sums in modelled arithmetic on a device have the reference's bits") {
  Values values{std::mt19937(32)};
  for (const Kind& kind : kKinds) {
    if (kind.a != kind.b) continue;
    for (const std::int64_t rows : {1, 15, 1100}) {
      const std::int64_t columns = 67;
      const Array x(kind.a, {rows, columns},
                    values.take(rows * columns, kind.a, kind.a == DType::fp32));
      const ColumnSumsParams p{
          .rows = rows, .columns = columns, .scale = 0.25, .accumulator = kind.accumulator};
      Array want(DType::fp32, {columns}, ones(columns)), got = want;
      Scratch scratch;
      column_sums(Ref{}, p, *x, want.out(Write::accumulate), scratch);
      SimDevice device;
      SimScratch workspace(device);
      const Resident in(device, x);
      Resident result(device, got);
      column_sums(device.target(), p, *in, result.out(Write::accumulate), workspace);
      result.fetch();
      CHECK(same_bits(got, want));
    }
  }
}

TEST_CASE("conv2d in modelled arithmetic on a device has the reference's bits") {
  Values values{std::mt19937(33)};
  const auto pick = [&](std::initializer_list<std::int64_t> from) {
    return *(from.begin() + static_cast<std::ptrdiff_t>(values.random() % from.size()));
  };
  int trial = 0;
  for (int round = 0; round < 6; ++round) {
    for (const Kind& kind : kKinds) {
      CAPTURE(trial);
      const std::int64_t groups = pick({1, 1, 2, 3});
      const std::int64_t c = pick({1, 2, 4, 5}), k = pick({1, 3, 4});
      // The last has more samples and rows than the reference holds at once.
      const bool large = round == 5;
      const Shape x{large ? 19 : 2, large ? 33 : 7, large ? 31 : 5, c * groups};
      const Shape w{k * groups, pick({1, 2, 3}), 3, c};
      Conv2dParams p{.stride = {pick({1, 2}), pick({1, 2})},
                     .padding = {1, pick({0, 1, 2})},
                     .dilation = {pick({1, 2}), 1},
                     .groups = groups,
                     .accumulator = kind.accumulator,
                     .tf32 = kind.tf32};
      const Shape y = conv2d_shape(x, w, p).y();
      const bool whole = plain(kind);
      const auto array = [&](const Shape& shape, DType d) {
        return Array(d, shape, std::span<const double>(values.take(shape.numel(), d, whole)));
      };
      const Array in = array(x, kind.a), weights = array(w, kind.b), grad_b = array(y, kind.b),
                  grad_a = array(y, kind.a), bias = array({w[0]}, DType::fp32);
      const Write write = pick({0, 1}) == 0 ? Write::overwrite : Write::accumulate;
      Array y1 = array(y, DType::fp32), dx1 = array(x, DType::fp32), dw1 = array(w, DType::fp32);
      Array y2 = y1, dx2 = dx1, dw2 = dw1;
      Scratch scratch;
      conv2d_forward(Ref{}, p, *in, *weights, *bias, y1.out(write), scratch);
      conv2d_grad_input(Ref{}, p, *grad_a, *weights, dx1.out(write), scratch);
      conv2d_grad_weight(Ref{}, p, *in, *grad_b, dw1.out(write), scratch);

      SimDevice device(static_cast<std::uint64_t>(trial++) % kSchedules);
      SimScratch workspace(device);
      const SimTarget sim = device.target();
      const Resident rx(device, in), rw(device, weights), rb(device, grad_b), ra(device, grad_a),
          offsets(device, bias);
      Resident to_y(device, y2), to_dx(device, dx2), to_dw(device, dw2);
      conv2d_forward(sim, p, *rx, *rw, *offsets, to_y.out(write), workspace);
      conv2d_grad_input(sim, p, *ra, *rw, to_dx.out(write), workspace);
      conv2d_grad_weight(sim, p, *rx, *rb, to_dw.out(write), workspace);
      for (Resident* r : {&to_y, &to_dx, &to_dw}) r->fetch();
      CHECK(same_bits(y2, y1));
      CHECK(same_bits(dx2, dx1));
      CHECK(same_bits(dw2, dw1));
    }
  }
}

TEST_CASE("the accumulator of a launch is its own, whatever the simulated device adds in") {
  Values values{std::mt19937(34)};
  const std::int64_t m = 20, n = 30, k = 64;
  const Array a(DType::fp16, {m, k}, values.take(m * k, DType::fp16, false)),
      b(DType::fp16, {k, n}, values.take(k * n, DType::fp16, false));
  const GemmParams p{.m = m, .n = n, .k = k, .accumulator = Accumulator::a100};
  Array want(DType::fp32, {m, n});
  Scratch scratch;
  gemm(Ref{}, p, *a, *b, ConstView::absent(), want.out(), scratch);
  for (const simt::TensorCoreModel model :
       {simt::TensorCoreModel::fp32, simt::TensorCoreModel::v100, simt::TensorCoreModel::h100}) {
    SimDevice device;
    device.emulator().config.tensor_core = model;
    Array got(DType::fp32, {m, n});
    const Resident left(device, a), right(device, b);
    Resident result(device, got);
    gemm(device.target(), p, *left, *right, ConstView::absent(), result.out(), scratch);
    result.fetch();
    CHECK(same_bits(got, want));
  }
}
