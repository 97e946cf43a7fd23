// Tiles of products against single elements, bit for bit: the vector path against the scalar one.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/base/bfloat16.h"
#include "kernels/base/tensor_core.h"

using namespace roundoff;

namespace {

std::uint32_t bits(float v) { return std::bit_cast<std::uint32_t>(v); }

struct Model {
  TensorCore core;
  DType operand;  // fp32: tf32; u8: E4M3
};
std::vector<Model> models() {
  std::vector<Model> all{{tensor_core_e4m3(), DType::u8}};
  for (const Accumulator gpu : {Accumulator::v100, Accumulator::a100, Accumulator::h100})
    for (const DType operand : {DType::fp16, DType::bf16, DType::fp32})
      if (has_tensor_core(gpu, operand)) all.push_back({tensor_core(gpu, operand), operand});
  return all;
}

// Numbers of the format: ordinary ones, the format's whole range, zeros of both signs and, where
// asked for, infinities and NaN.
class Draw {
 public:
  Draw(DType operand, int kind) : operand_(operand), kind_(kind) {}
  float operator()() {
    if (random_() % 8 == 0) return random_() % 2 == 0 ? 0.0F : -0.0F;
    const auto raw = static_cast<std::uint32_t>(random_());
    float v = 0;
    if (kind_ == 0) {
      v = std::ldexp(normal_(random_), static_cast<int>(random_() % 8) - 4);
    } else if (operand_ == DType::fp16) {
      v = static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(raw)));
    } else if (operand_ == DType::u8) {
      v = std::ldexp(normal_(random_), static_cast<int>(random_() % 20) - 11);
    } else {
      v = std::bit_cast<float>(raw);
    }
    v = rounded(v);
    return std::isfinite(v) || kind_ == 2 ? v : 1.0F;
  }
  // Any float, or one near the products.
  float addend() {
    const float v = kind_ == 0 ? std::ldexp(normal_(random_), static_cast<int>(random_() % 40) - 30)
                               : std::bit_cast<float>(static_cast<std::uint32_t>(random_()));
    return std::isfinite(v) || kind_ == 2 ? v : 0.0F;
  }

 private:
  float rounded(float v) const {
    if (operand_ == DType::fp16) return static_cast<float>(Half(v));
    if (operand_ == DType::bf16) return static_cast<float>(BFloat16(v));
    if (operand_ == DType::fp32) return std::bit_cast<float>(bits(v) & ~0x1FFFU);
    // Four significant bits down to 2^-6, multiples of 2^-9 below; 448 at most.
    const double unit = std::exp2(std::max(std::ilogb(v == 0 ? 1.0F : v), -6) - 3);
    const auto e4m3 = static_cast<float>(std::nearbyint(static_cast<double>(v) / unit) * unit);
    return std::min(std::max(e4m3, -448.0F), 448.0F);
  }

  DType operand_;
  int kind_;
  std::mt19937_64 random_{11};
  std::normal_distribution<float> normal_;
};

struct Size {
  int m, n, k;
};

}  // namespace

TEST_CASE("a tile's elements are the model's dot products, bit for bit") {
  for (const Model& model : models()) {
    for (int kind = 0; kind < 3; ++kind) {
      Draw draw(model.operand, kind);
      int differ = 0, half_differ = 0, chain_differ = 0, subnormal = 0;
      for (const Size s : {Size{16, 8, 16},
                           {64, 40, 16},
                           {16, 8, 8},
                           {1, 1, 1},
                           {3, 5, 7},
                           {33, 17, 40},
                           {2, 9, 0}}) {
        const int lda = s.k + 3, ldb = s.n + 1, ldc = s.n + 2;
        std::vector<float> a(static_cast<std::size_t>(s.m * lda)),
            b(static_cast<std::size_t>(s.k * ldb + 1)), c(static_cast<std::size_t>(s.m * ldc));
        for (float& v : a) v = draw();
        for (float& v : b) v = draw();
        for (float& v : c) v = draw.addend();
        std::vector<float> half_c = c;
        for (float& v : half_c) v = static_cast<float>(Half(v));
        std::vector<float> exact = c, half = half_c, chain = c;
        TensorCoreTile tile{a.data(), lda, b.data(), ldb, exact.data(), ldc, s.m, s.n, s.k};
        tensor_core_tile(model.core, tile);
        tile.c = half.data();
        tensor_core_tile_half(model.core, tile);
        tile.c = chain.data();
        fma_tile(tile);
        std::vector<float> column(static_cast<std::size_t>(s.k));
        for (int i = 0; i < s.m; ++i) {
          for (int j = 0; j < ldc; ++j) {
            const auto at = static_cast<std::size_t>(i * ldc + j);
            float want = c[at], want_half = half_c[at], want_chain = c[at];
            if (j < s.n) {
              for (int l = 0; l < s.k; ++l) {
                column[static_cast<std::size_t>(l)] = b[static_cast<std::size_t>(l * ldb + j)];
                want_chain = std::fma(a[static_cast<std::size_t>(i * lda + l)],
                                      column[static_cast<std::size_t>(l)], want_chain);
              }
              want = tensor_core_dot(model.core, &a[static_cast<std::size_t>(i * lda)],
                                     column.data(), s.k, c[at]);
              want_half = static_cast<float>(
                  tensor_core_dot_half(model.core, &a[static_cast<std::size_t>(i * lda)],
                                       column.data(), s.k, Half(half_c[at])));
            }
            if (bits(exact[at]) != bits(want)) ++differ;
            if (bits(half[at]) != bits(want_half)) ++half_differ;
            const bool nan = std::isnan(chain[at]) && std::isnan(want_chain);
            if (!nan && bits(chain[at]) != bits(want_chain)) ++chain_differ;
            if (std::fpclassify(want) == FP_SUBNORMAL) ++subnormal;
          }
        }
      }
      CAPTURE(model.core.kept_bits);
      CAPTURE(model.core.block);
      CAPTURE(kind);
      CHECK(differ == 0);
      CHECK(half_differ == 0);
      CHECK(chain_differ == 0);
      if (kind == 1 && model.operand == DType::bf16) CHECK(subnormal > 0);
    }
  }
}

TEST_CASE("a block's largest sum does not overflow the vector path") {
  // Sixteen products just below 4 and an addend just below 2: 33 bits at H100's alignment.
  for (const float sign : {1.0F, -1.0F}) {
    const std::vector<float> a(16, 2 - 0x1p-10F), b(16 * 8, sign * (2 - 0x1p-10F));
    std::vector<float> c(8, sign * (2 - 0x1p-23F));
    const float want =
        tensor_core_dot(tensor_core(Accumulator::h100, DType::fp16), a.data(), b.data(), 16, c[0]);
    tensor_core_tile(tensor_core(Accumulator::h100, DType::fp16),
                     {a.data(), 16, b.data(), 8, c.data(), 8, 1, 8, 16});
    for (const float v : c) CHECK(v == want);
    CHECK(std::abs(want) > 65);
  }
}

TEST_CASE("an fp16 accumulator is rounded once a block, to nearest even") {
  const TensorCore core = tensor_core(Accumulator::h100, DType::fp16);
  // 2049 lies between 2048 and 2050; the even neighbour is 2048. 2051 goes to 2052.
  const std::vector<float> a = {1, 1}, b = {1, 2};
  CHECK(static_cast<float>(tensor_core_dot_half(core, a.data(), b.data(), 1, Half(2048.0F))) ==
        2048);
  CHECK(static_cast<float>(tensor_core_dot_half(core, a.data(), b.data(), 2, Half(2048.0F))) ==
        2052);
  // V100 rounds after four products: four single ones are lost one block at a time.
  const std::vector<float> ones(8, 1), apart = {1, 0, 0, 0, 1, 0, 0, 0};
  const TensorCore volta = tensor_core(Accumulator::v100, DType::fp16);
  CHECK(static_cast<float>(
            tensor_core_dot_half(volta, ones.data(), apart.data(), 8, Half(2048.0F))) == 2048);
  CHECK(static_cast<float>(
            tensor_core_dot_half(core, ones.data(), apart.data(), 8, Half(2048.0F))) == 2050);
  const std::vector<float> large = {65504, 65504}, one = {1, 1};
  CHECK(std::isinf(
      static_cast<float>(tensor_core_dot_half(core, large.data(), one.data(), 2, Half(0.0F)))));
}

TEST_CASE("E4M3 products keep 13 bits below the largest, and 13 fraction bits of the sum") {
  const TensorCore core = tensor_core_e4m3();
  const auto dot = [&](const std::vector<float>& a, const std::vector<float>& b) {
    return tensor_core_dot(core, a.data(), b.data(), static_cast<std::int64_t>(a.size()), 0);
  };
  CHECK(dot({1, 0x1p-6F}, {1, 0x1p-6F}) == 1 + 0x1p-12F);
  CHECK(dot({1, 0x1p-6F}, {1, 0x1p-7F}) == 1 + 0x1p-13F);
  CHECK(dot({1, 0x1p-7F}, {1, 0x1p-7F}) == 1);
  // 2 + 2^-13: the last bit lies beyond the 13 fraction bits of [2, 4).
  CHECK(dot({1, 1, 0x1p-6F}, {1, 1, 0x1p-7F}) == 2);
}
