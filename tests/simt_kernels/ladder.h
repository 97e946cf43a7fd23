// Products for tests of the ladder's kernels: what a case says, its arrays, and what a device makes
// of them.
#pragma once

#include <array>
#include <cmath>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "tests/simt_kernels/sim_device.h"

namespace roundoff::test {

inline constexpr ProductKernel kLadder[] = {
    ProductKernel::naive, ProductKernel::tiles, ProductKernel::mma,      ProductKernel::sm80,
    ProductKernel::wgmma, ProductKernel::sm90,  ProductKernel::ping_pong};
inline bool on_tensor_cores(ProductKernel kernel) {
  return kernel != ProductKernel::naive && kernel != ProductKernel::tiles;
}
inline bool on_sm90(ProductKernel kernel) {
  return kernel == ProductKernel::wgmma || kernel == ProductKernel::sm90 ||
         kernel == ProductKernel::ping_pong;
}
inline constexpr ProductTile kTiles[] = {ProductTile::m256n128, ProductTile::m128n128,
                                         ProductTile::m64n64, ProductTile::m32n32};

struct LadderCase {
  GemmParams p;
  DType operand = DType::fp16, output = DType::fp32, addend = DType::fp32;
  bool bias = false, accumulate = false;
  std::int64_t offset = 0;  // elements that every array begins late
};

// Small integers, whose sums are exact, or normal values.
struct LadderArrays {
  Array a, b, c, y;

  LadderArrays(const LadderCase& t, std::mt19937& random, bool whole)
      : a(make(t, t.operand, t.p.batch * t.p.m * t.p.k, random, whole)),
        b(make(t, t.operand, t.p.batch * t.p.k * t.p.n, random, whole)),
        c(make(t, t.addend, t.bias ? t.p.n : t.p.m * t.p.n, random, whole)),
        y(make(t, t.output, (t.p.sum_batch ? 1 : t.p.batch) * t.p.m * t.p.n, random, whole)) {}

 private:
  static Array make(const LadderCase& t, DType dtype, std::int64_t n, std::mt19937& random,
                    bool whole) {
    std::vector<double> v(static_cast<std::size_t>(n));
    std::normal_distribution<double> distribution;
    for (double& x : v) x = whole ? static_cast<double>(random() % 5) - 2 : distribution(random);
    return Array(dtype, {n}, std::span<const double>(v), t.offset);
  }
};

inline Write write_of(const LadderCase& t) {
  return t.accumulate ? Write::accumulate : Write::overwrite;
}

// y on the device; y's guards stay as they are, or same_bits() says so.
inline Array run_ladder(SimDevice& device, const LadderCase& t, const LadderArrays& arrays) {
  SimScratch scratch(device);
  Array y = arrays.y;
  const Resident a(device, arrays.a), b(device, arrays.b), c(device, arrays.c);
  Resident result(device, y);
  gemm(device.target(), t.p, *a, *b, *c, result.out(write_of(t)), scratch);
  result.fetch();
  return y;
}

inline Array reference(const LadderCase& t, const LadderArrays& arrays) {
  Array y = arrays.y;
  Scratch scratch;
  gemm(Ref{}, t.p, *arrays.a, *arrays.b, *arrays.c, y.out(write_of(t)), scratch);
  return y;
}

}  // namespace roundoff::test
