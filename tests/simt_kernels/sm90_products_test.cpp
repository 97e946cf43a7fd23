// The sm_90a rungs of products: bit for bit what the rung tiles gives, and the model of an H100.
#include "tests/simt_kernels/sm90_products.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/gemm/gemm.h"
#include "tests/kernels/sum_bound.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/oracle/matmul.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

// A rung with one of its tiles; few multiprocessors, so that a block has several tiles.
struct Rung {
  ProductKernel kernel;
  Sm90Tile tile;
};
constexpr Rung kRungs[] = {{ProductKernel::wgmma, Sm90Tile::automatic},
                           {ProductKernel::sm90, Sm90Tile::small},
                           {ProductKernel::sm90, Sm90Tile::medium},
                           {ProductKernel::sm90, Sm90Tile::large},
                           {ProductKernel::ping_pong, Sm90Tile::automatic}};

struct Operands {
  Array a, b, c, y;
};
Operands operands(const GemmParams& p, DType dtype, DType c_dtype, DType y_dtype, bool bias,
                  std::mt19937& random) {
  const auto size = [&](std::int64_t stride, std::int64_t matrix) {
    return (p.batch - 1) * stride + matrix;
  };
  const std::int64_t na = size(p.stride_a, p.m * p.k), nb = size(p.stride_b, p.k * p.n);
  const std::int64_t nc = bias ? p.n : size(p.stride_c, p.m * p.n);
  const std::int64_t ny = (p.sum_batch ? 1 : p.batch) * p.m * p.n;
  return {Array(dtype, {na}, normal(na, dtype, random)),
          Array(dtype, {nb}, normal(nb, dtype, random)),
          Array(c_dtype, {nc}, normal(nc, c_dtype, random)),
          Array(y_dtype, {ny}, normal(ny, y_dtype, random))};
}

Array run(SimDevice& device, const Sm90Call& call, const Operands& o,
          Write write = Write::overwrite) {
  const Resident a(device, o.a), b(device, o.b), c(device, o.c);
  Array y = on_device(
      device, o.y,
      [&](const Out& out) { sm90_gemm(device.target(), call, *a, *b, *c, out, device.scratch()); },
      write);
  CHECK(y.guards_intact());
  return y;
}
Array run_tiles(SimDevice& device, GemmParams p, const Operands& o,
                Write write = Write::overwrite) {
  p.kernel = ProductKernel::tiles;
  const Resident a(device, o.a), b(device, o.b), c(device, o.c);
  return on_device(
      device, o.y,
      [&](const Out& out) { gemm(device.target(), p, *a, *b, *c, out, device.scratch()); }, write);
}

}  // namespace

TEST_CASE("the sm_90a rungs have the bits of the rung tiles: layouts, types, ragged sizes") {
  std::mt19937 random(90);
  struct Size {
    std::int64_t m, n, k;
  };
  const Size sizes[] = {{8, 8, 8}, {72, 136, 200}, {136, 72, 72}, {1, 264, 64}, {296, 8, 136}};
  SimDevice device;
  std::size_t turn = 0;
  for (const Rung& rung : kRungs)
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32})
      for (int flags = 0; flags < 4; ++flags) {
        const bool tf32 = dtype == DType::fp32;
        if (tf32 && flags != 2) continue;  // K-major operands only
        const Size s = sizes[turn % 5];
        const DType y = turn % 3 == 0 ? DType::fp32 : turn % 3 == 1 ? DType::fp16 : DType::bf16;
        ++turn;
        const GemmParams p{.m = s.m,
                           .n = s.n,
                           .k = s.k,
                           .trans_a = (flags & 1) != 0,
                           .trans_b = (flags & 2) != 0,
                           .tf32 = tf32};
        if (p.trans_a && s.m % 8 != 0) continue;
        CAPTURE(name(rung.kernel));
        CAPTURE(static_cast<int>(rung.tile));
        CAPTURE(name(dtype));
        CAPTURE(flags);
        const Operands o = operands(p, dtype, DType::fp32, y, true, random);
        const Array got = run(device, {rung.kernel, {rung.tile, 2}, false, p}, o);
        CHECK(same_bits(got, run_tiles(device, p, o)));
      }
}

TEST_CASE("the sm_90a rungs do what an output asks, as the rung tiles does") {
  struct End {
    DType y;
    DType c;
    bool bias;
    double alpha, beta;
    Activation activation;
    Write write;
  };
  constexpr Activation kNone = Activation::none, kRelu = Activation::relu, kGelu = Activation::gelu;
  const End ends[] = {{DType::fp16, DType::fp32, true, 1, 0, kNone, Write::overwrite},
                      {DType::fp16, DType::fp16, true, 1, 1, kRelu, Write::overwrite},
                      {DType::bf16, DType::bf16, false, 1, 0.5, kNone, Write::overwrite},
                      {DType::fp32, DType::fp16, false, 1, 1, kGelu, Write::overwrite},
                      {DType::fp32, DType::fp32, false, 1, 0, kNone, Write::accumulate},
                      {DType::fp32, DType::fp32, true, 1, 2, kNone, Write::accumulate},
                      {DType::fp32, DType::fp32, false, 0.5, 0, kNone, Write::accumulate},
                      {DType::fp32, DType::fp32, false, 0.25, -1.5, kNone, Write::overwrite},
                      {DType::bf16, DType::fp32, true, -2, 0, kRelu, Write::overwrite},
                      {DType::fp64, DType::fp32, true, 1, 1, kNone, Write::accumulate},
                      {DType::fp16, DType::fp32, true, 0, 1, kRelu, Write::overwrite}};
  std::mt19937 random(91);
  SimDevice device;
  std::size_t turn = 0;
  for (const Rung& rung : kRungs)
    for (const End& end : ends) {
      // n = 76: rows of y that TMA cannot store in 16 bit, runs that end a row; n = 79: no runs.
      const std::int64_t n = ++turn % 3 == 0 ? 72 : turn % 3 == 1 ? 76 : 79;
      const GemmParams p{.m = 140,
                         .n = n,
                         .k = 88,
                         .trans_b = true,
                         .alpha = end.alpha,
                         .beta = end.beta,
                         .activation = end.activation};
      CAPTURE(name(rung.kernel));
      CAPTURE(static_cast<int>(rung.tile));
      CAPTURE(turn);
      const Operands o = operands(p, DType::bf16, end.c, end.y, end.bias, random);
      const Array got = run(device, {rung.kernel, {rung.tile, 3}, false, p}, o, end.write);
      CHECK(same_bits(got, run_tiles(device, p, o, end.write)));
    }
}

TEST_CASE("the sm_90a rungs take batches, sums over batches, and one matrix for a batch") {
  std::mt19937 random(92);
  SimDevice device;
  for (const Rung& rung : kRungs)
    for (int kind = 0; kind < 4; ++kind) {
      GemmParams p{.batch = 3, .m = 72, .n = 40, .k = 104, .trans_a = true, .trans_b = true};
      p.stride_a = kind == 1 ? 0 : p.m * p.k;
      p.stride_b = kind == 2 ? 0 : p.n * p.k;
      p.sum_batch = kind == 3;
      p.beta = 1;
      p.stride_c = p.sum_batch ? 0 : p.m * p.n;
      CAPTURE(name(rung.kernel));
      CAPTURE(kind);
      const Operands o = operands(p, DType::fp16, DType::fp32, DType::fp16, false, random);
      const Array got = run(device, {rung.kernel, {rung.tile, 2}, false, p}, o);
      CHECK(same_bits(got, run_tiles(device, p, o)));
    }
}

TEST_CASE("the sm_90a rungs cut sums that may be: within the bound, and bits of the sizes alone") {
  std::mt19937 random(93);
  for (const Rung& rung : kRungs) {
    const GemmParams p{.m = 24, .n = 40, .k = 2100, .trans_a = true};
    CAPTURE(name(rung.kernel));
    CAPTURE(static_cast<int>(rung.tile));
    const Operands o = operands(p, DType::fp16, DType::fp32, DType::fp32, true, random);
    SimDevice device, other(1);
    const Array got = run(device, {rung.kernel, {rung.tile, 2}, true, p}, o, Write::accumulate);
    CHECK(device.emulator().counters().launches == 2);
    CHECK(same_bits(got, run(other, {rung.kernel, {rung.tile, 7}, true, p}, o, Write::accumulate)));
    const oracle::MatmulParams q{.m = p.m, .n = p.n, .k = p.k, .trans_a = true};
    std::vector<double> a = o.a.values(), b = o.b.values();
    std::vector<double> want = oracle::matmul(q, a, b);
    for (double& v : a) v = std::abs(v);
    for (double& v : b) v = std::abs(v);
    std::vector<double> magnitudes = oracle::matmul(q, a, b);
    const std::vector<double> held = o.y.values();
    for (std::size_t i = 0; i < want.size(); ++i) {
      want[i] += held[i];
      magnitudes[i] += std::abs(held[i]);
    }
    CHECK(worst_ratio(got.values(), want, magnitudes, p.k + 1, DType::fp32, DType::fp32) <= 1);
  }
}

TEST_CASE("the sm_90a rungs as an H100 adds have the bits of the host model") {
  std::mt19937 random(94);
  SimDevice device;
  for (const Rung& rung : kRungs)
    for (const DType dtype : {DType::fp16, DType::bf16, DType::fp32}) {
      const GemmParams p{.m = 72,
                         .n = 24,
                         .k = 104,
                         .trans_b = true,
                         .beta = 1,
                         .accumulator = Accumulator::h100,
                         .tf32 = dtype == DType::fp32};
      CAPTURE(name(rung.kernel));
      CAPTURE(name(dtype));
      const Operands o = operands(p, dtype, DType::fp32, DType::fp32, false, random);
      const Array got = run(device, {rung.kernel, {rung.tile, 2}, false, p}, o);
      Array want = o.y;
      Scratch scratch;
      gemm(Ref{}, p, *o.a, *o.b, *o.c, want.out(), scratch);
      CHECK(same_bits(got, want));
    }
}

TEST_CASE("the sm_90a rungs round fp32 operands to tf32 to nearest, ties to even") {
  // 1 + 2^-11 is a tie, and goes to 1; a little more goes up; what is cut off is lost in both.
  const float tie = 1 + 0x1p-11F, above = 1 + 0x1p-11F + 0x1p-20F, odd = 1 + 0x1.8p-10F;
  SimDevice device;
  for (const Rung& rung : kRungs) {
    const GemmParams p{.m = 1, .n = 4, .k = 4, .trans_b = true, .tf32 = true};
    Operands o{Array(DType::fp32, {4}, {tie, above, odd, -tie}),
               Array(DType::fp32, {16}, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}),
               Array(DType::fp32, {4}, {0, 0, 0, 0}), Array(DType::fp32, {4}, {0, 0, 0, 0})};
    CHECK(run(device, {rung.kernel, {rung.tile, 0}, false, p}, o).values() ==
          std::vector<double>{1, 1 + 0x1p-10, 1 + 0x1p-9, -1});
  }
}

TEST_CASE("the sm_90a rungs: nothing to do, and no products") {
  SimDevice device;
  for (const Rung& rung : kRungs) {
    const Operands o{Array(DType::fp16, {64}, ones(64)), Array(DType::fp16, {64}, ones(64)),
                     Array(DType::fp32, {64}, std::vector<double>(64, 3.0)),
                     Array(DType::fp32, {64}, std::vector<double>(64, 5.0))};
    device.emulator().reset_counters();
    for (const auto& [m, n] : {std::pair{0, 8}, {8, 0}})
      run(device, {rung.kernel, {}, false, {.m = m, .n = n, .k = 8}}, o);
    CHECK(device.emulator().counters().launches == 0);
    const GemmParams p{.m = 8, .n = 8, .k = 0, .beta = 2};
    CHECK(run(device, {rung.kernel, {rung.tile, 0}, false, p}, o).values() ==
          std::vector<double>(64, 6.0));
    CHECK(run(device, {rung.kernel, {rung.tile, 0}, false, p}, o, Write::accumulate).values() ==
          std::vector<double>(64, 11.0));
  }
}

TEST_CASE("what the sm_90a rungs do not take they refuse, with the reason") {
  SimDevice device;
  const auto why = [&](const GemmParams& p, DType a_type, DType b_type, std::int64_t offset = 0) {
    const std::int64_t n = 4096;
    const Array a(a_type, {n}, offset), b(b_type, {n}), c(DType::fp32, {n});
    Array y(DType::fp32, {n});
    const Resident ra(device, a), rb(device, b);
    Resident ry(device, y);
    const Sm90Call call{ProductKernel::sm90, {}, false, p};
    const std::string text = sm90_gemm_refuses(device.target(), call, *ra, *rb, ry.out());
    if (!text.empty()) {
      const auto go = [&] {
        sm90_gemm(device.target(), call, *ra, *rb, ConstView::absent(), ry.out(), device.scratch());
      };
      CHECK_THROWS_WITH_AS(go(), doctest::Contains(text.c_str()), Error);
    }
    return text;
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const DType h = DType::fp16, f = DType::fp32;
  CHECK(why({.m = 8, .n = 8, .k = 8}, h, h).empty());
  CHECK(why({.m = 8, .n = 8, .k = 8, .trans_b = true, .tf32 = true}, f, f).empty());
  CHECK(has(why({.m = 8, .n = 8, .k = 8}, h, DType::bf16), "fp16 and bf16"));
  CHECK(has(why({.m = 8, .n = 8, .k = 8, .trans_b = true}, f, f), "not to be rounded"));
  CHECK(has(why({.m = 8, .n = 8, .k = 8, .tf32 = true}, f, f), "operand B is not contiguous"));
  CHECK(has(why({.m = 8, .n = 8, .k = 8}, DType::fp64, DType::fp64), "fp64"));
  CHECK(has(why({.m = 8, .n = 8, .k = 8, .accumulator = Accumulator::fp16}, h, h), "fp16"));
  CHECK(has(why({.m = 8, .n = 8, .k = 8, .accumulator = Accumulator::a100}, h, h), "a100"));
  CHECK(has(why({.m = 8, .n = 8, .k = 12}, h, h), "operand A has lines of 24 bytes"));
  CHECK(has(why({.m = 8, .n = 12, .k = 8}, h, h), "operand B has lines of 24 bytes"));
  CHECK(has(why({.m = 8, .n = 8, .k = 8}, h, h, 1), "operand A does not begin"));
  CHECK(has(why({.batch = 2, .m = 8, .n = 8, .k = 8, .stride_a = 68}, h, h), "matrices of 136"));
  // One line has no pitch, one matrix no stride.
  CHECK(why({.m = 1, .n = 8, .k = 13}, h, h).empty());
  device.emulator().config.architecture = simt::SimArchitecture::sm_80;
  const Operands o{Array(h, {64}, ones(64)), Array(h, {64}, ones(64)), Array(f, {64}, ones(64)),
                   Array(f, {64}, ones(64))};
  CHECK_THROWS_WITH(run(device, {ProductKernel::sm90, {}, false, {.m = 8, .n = 8, .k = 8}}, o),
                    doctest::Contains("sm_90a"));
}
