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
