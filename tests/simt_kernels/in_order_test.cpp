// Sums in order on a device have the reference's bits, whatever the sizes, whatever the output
// holds.
#include <doctest/doctest.h>

#include <cstring>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/column_sums.h"
#include "kernels/gemm/gemm.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

bool same_memory(const Array& a, const Array& b) {
  return std::memcmp(a.memory().data(), b.memory().data(), a.memory().size()) == 0;
}

// Compares f(target, resident or host operands, output, scratch) on both.
template <class F>
bool agrees(const Array& a, const Array& b, const Array& y, Write write, F&& f) {
  Scratch host;
  Array expected = y;
  f(Ref{}, a.view(), b.view(), expected.out(write), host);
  static SimDevice device;
  SimScratch scratch(device);
  const Resident left(device, a), right(device, b);
  const Array got = on_device(
      device, y, [&](const Out& out) { f(device.target(), *left, *right, out, scratch); }, write);
  return same_memory(got, expected);
}

}  // namespace

TEST_CASE("products in order on a device have the reference's bits") {
  std::mt19937 random(3);
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16, DType::fp64}) {
    for (const SumOrder order : {SumOrder::in_order, SumOrder::by_row}) {
      for (const bool trans_a : {true, false}) {
        for (const std::int64_t k : {1, 37, 700}) {
          for (const std::int64_t m : {1, 40}) {
            CAPTURE(name(dtype));
            CAPTURE(trans_a);
            CAPTURE(k);
            CAPTURE(m);
            constexpr std::int64_t kN = 35;
            const DType sum = dtype == DType::fp64 ? DType::fp64 : DType::fp32;
            const Array a(dtype, {k, m}, normal(m * k, dtype, random));
            const Array b(dtype, {k, kN}, normal(k * kN, dtype, random));
            const Array y(sum, {m, kN}, normal(m * kN, sum, random));
            for (const Write write : {Write::overwrite, Write::accumulate})
              CHECK(agrees(a, b, y, write,
                           [&](auto target, const ConstView& l, const ConstView& r, const Out& out,
                               Scratch& scratch) {
                             gemm(target,
                                  {.m = m, .n = kN, .k = k, .trans_a = trans_a, .order = order}, l,
                                  r, ConstView::absent(), out, scratch);
                           }));
          }
        }
      }
    }
  }
}

TEST_CASE("products by matrix on a device have the reference's bits, whatever the kernel") {
  std::mt19937 random(11);
  constexpr std::int64_t kBatch = 3, kM = 40, kN = 35;
  for (const DType dtype : {DType::fp32, DType::fp16, DType::fp64}) {
    for (const ProductKernel kernel : {ProductKernel::automatic, ProductKernel::naive,
                                       ProductKernel::tiles, ProductKernel::mma}) {
      if (kernel == ProductKernel::naive && dtype == DType::fp64) continue;
      if (kernel == ProductKernel::mma && dtype != DType::fp16) continue;
      for (const std::int64_t k : {1, 37, 150}) {
        for (const std::int64_t batch : {std::int64_t{1}, kBatch}) {
          CAPTURE(name(dtype));
          CAPTURE(name(kernel));
          CAPTURE(k);
          CAPTURE(batch);
          const DType sum = dtype == DType::fp64 ? DType::fp64 : DType::fp32;
          const Array a(dtype, {batch, k, kM}, normal(batch * k * kM, dtype, random));
          const Array b(dtype, {batch, k, kN}, normal(batch * k * kN, dtype, random));
          const Array y(sum, {kM, kN}, normal(kM * kN, sum, random));
          for (const Write write : {Write::overwrite, Write::accumulate})
            CHECK(agrees(a, b, y, write,
                         [&](auto target, const ConstView& l, const ConstView& r, const Out& out,
                             Scratch& scratch) {
                           gemm(target,
                                {.batch = batch,
                                 .m = kM,
                                 .n = kN,
                                 .k = k,
                                 .trans_a = true,
                                 .stride_a = k * kM,
                                 .stride_b = k * kN,
                                 .sum_batch = true,
                                 .kernel = kernel,
                                 .order = SumOrder::by_matrix},
                                l, r, ConstView::absent(), out, scratch);
                         }));
        }
      }
    }
  }
}

TEST_CASE("sums by matrix that do not fit the workspace together come in turns") {
  // Five matrices of 17 MiB: three at a time.
  constexpr std::int64_t kBatch = 5, kSize = 2100;
  std::mt19937 random(13);
  const Array a(DType::fp16, {kBatch, 1, kSize}, normal(kBatch * kSize, DType::fp16, random));
  const Array b(DType::fp16, {kBatch, 1, kSize}, normal(kBatch * kSize, DType::fp16, random));
  const Array y(DType::fp32, {kSize, kSize}, std::vector<double>(kSize * kSize, 0.1F));
  CHECK(agrees(
      a, b, y, Write::accumulate,
      [&](auto target, const ConstView& l, const ConstView& r, const Out& out, Scratch& scratch) {
        gemm(target,
             {.batch = kBatch,
              .m = kSize,
              .n = kSize,
              .k = 1,
              .trans_a = true,
              .stride_a = kSize,
              .stride_b = kSize,
              .sum_batch = true,
              .order = SumOrder::by_matrix},
             l, r, ConstView::absent(), out, scratch);
      }));
}

TEST_CASE("column sums in order on a device have the reference's bits") {
  std::mt19937 random(5);
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) {
    for (const std::int64_t rows : {1, 7, 300}) {
      for (const double scale : {1.0, 0.3}) {
        const std::int64_t group = rows == 300 ? 75 : 0;
        constexpr std::int64_t kColumns = 131;
        const Array x(dtype, {rows, kColumns}, normal(rows * kColumns, dtype, random));
        const Array y(DType::fp32, {kColumns}, normal(kColumns, DType::fp32, random));
        for (const Write write : {Write::overwrite, Write::accumulate})
          CHECK(agrees(x, x, y, write,
                       [&](auto target, const ConstView& in, const ConstView&, const Out& out,
                           Scratch& scratch) {
                         column_sums(target,
                                     {.rows = rows,
                                      .columns = kColumns,
                                      .scale = scale,
                                      .in_order = true,
                                      .group = group},
                                     in, out, scratch);
                       }));
      }
    }
  }
}

TEST_CASE("convolutions in order on a device have the reference's bits") {
  struct Case {
    Shape x, w;
    Conv2dParams params;
  };
  const Case cases[] = {
      {{3, 8, 8, 1}, {16, 3, 3, 1}, {.padding = {1, 1}}},
      {{3, 8, 8, 8}, {24, 3, 3, 8}, {.padding = {1, 1}}},
      {{3, 9, 7, 4}, {8, 3, 2, 4}, {.stride = {2, 1}, .padding = {1, 0}}},
      {{3, 9, 9, 4}, {8, 3, 3, 4}, {.padding = {2, 2}, .dilation = {2, 2}}},
      {{3, 6, 6, 6}, {4, 3, 3, 3}, {.stride = {2, 2}, .padding = {1, 1}, .groups = 2}},
      {{3, 6, 6, 9}, {9, 3, 3, 1}, {.stride = {2, 1}, .padding = {1, 1}, .groups = 9}},
      {{3, 6, 6, 16}, {16, 3, 3, 1}, {.padding = {1, 1}, .groups = 16}},
      {{3, 4, 4, 7}, {10, 1, 1, 7}, {}},
      {{3, 8, 8, 7}, {10, 1, 1, 7}, {}},
      {{3, 9, 9, 5}, {40, 3, 3, 5}, {.padding = {1, 1}}},
      {{3, 9, 9, 9}, {9, 3, 3, 1}, {.padding = {1, 1}, .groups = 9}},
      {{3, 9, 9, 6}, {4, 3, 3, 3}, {.padding = {1, 1}, .groups = 2}},
  };
  std::mt19937 random(7);
  for (const Case& c : cases) {
    for (const DType dtype : {DType::fp32, DType::fp16}) {
      CAPTURE(c.w);
      CAPTURE(name(dtype));
      Conv2dParams p = c.params;
      p.in_order = true;
      const Conv2dShape z = conv2d_shape(c.x, c.w, p);
      const auto values = [&](DType type, const Shape& shape) {
        return Array(type, shape, normal(shape.numel(), type, random));
      };
      const Array x = values(dtype, c.x), w = values(dtype, c.w), dy = values(dtype, z.y());
      const Array y = values(dtype, z.y()), dx = values(dtype, c.x);
      const Array dw = values(DType::fp32, c.w), db = values(DType::fp32, {z.k});
      CHECK(agrees(x, w, y, Write::overwrite,
                   [&](auto target, const ConstView& l, const ConstView& r, const Out& out,
                       Scratch& scratch) {
                     conv2d_forward(target, p, l, r, ConstView::absent(), out, scratch);
                   }));
      CHECK(agrees(dy, w, dx, Write::overwrite,
                   [&](auto target, const ConstView& l, const ConstView& r, const Out& out,
                       Scratch& scratch) { conv2d_grad_input(target, p, l, r, out, scratch); }));
      for (const Write write : {Write::overwrite, Write::accumulate}) {
        CHECK(agrees(x, dy, dw, write,
                     [&](auto target, const ConstView& l, const ConstView& r, const Out& out,
                         Scratch& scratch) { conv2d_grad_weight(target, p, l, r, out, scratch); }));
        CHECK(agrees(dy, dy, db, write,
                     [&](auto target, const ConstView& l, const ConstView&, const Out& out,
                         Scratch& scratch) { conv2d_grad_bias(target, p, l, out, scratch); }));
      }
    }
  }
}

TEST_CASE("a kernel for tensor cores refuses a sum in order") {
  SimDevice device;
  SimScratch scratch(device);
  const Array a(DType::fp16, {4, 4}, ones(16));
  Array y(DType::fp32, {4, 4}, ones(16));
  const Resident x(device, a), out(device, y);
  CHECK_THROWS_WITH_AS(
      gemm(device.target(),
           {.m = 4, .n = 4, .k = 4, .kernel = ProductKernel::sm80, .order = SumOrder::in_order}, *x,
           *x, ConstView::absent(), out.out(), scratch),
      doctest::Contains("tensor cores add in blocks"), Error);
}
