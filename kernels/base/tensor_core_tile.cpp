// Tiles of products by the model of tensor cores, and by plain fused multiply-adds.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/base/simd.h"
#include "kernels/base/tensor_core.h"

namespace roundoff {

namespace {

// One element, or one block of it, with b's column gathered.
constexpr int kColumn = 64;
template <bool kHalf>
void scalar_element(const TensorCore& core, const TensorCoreTile& t, int i, int j, int first,
                    int k) {
  float& c = t.c[i * t.ldc + j];
  float column[kColumn];
  // A multiple of every block, so that the chain is cut where blocks are.
  for (int start = first; start < first + k; start += kColumn) {
    const int n = std::min(kColumn, first + k - start);
    for (int l = 0; l < n; ++l) column[l] = t.b[(start + l) * t.ldb + j];
    const float* a = t.a + i * t.lda + start;
    c = kHalf ? static_cast<float>(tensor_core_dot_half(core, a, column, n, Half(c)))
              : tensor_core_dot(core, a, column, n, c);
  }
}

#if defined(__AVX2__)

constexpr int kLanes = 8;
constexpr int kRows = 32;   // of a panel whose operands are decoded once
constexpr int kDepth = 32;  // the longest block

struct Decoded {
  __m256i significand;  // with its sign
  __m256i exponent;
};

// Eight operands as tensor_core_operand has them; `special` collects infinities and NaN.
Decoded decode(__m256 values, int emin, int& special) {
  const __m256i bits = _mm256_castps_si256(values);
  const __m256i field = _mm256_and_si256(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(255));
  special |= _mm256_movemask_epi8(_mm256_cmpeq_epi32(field, _mm256_set1_epi32(255)));
  const __m256i subnormal = _mm256_cmpeq_epi32(field, _mm256_setzero_si256());
  const __m256i hidden = _mm256_andnot_si256(subnormal, _mm256_set1_epi32(0x800000));
  __m256i significand =
      _mm256_or_si256(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFF)), hidden);
  __m256i exponent =
      _mm256_sub_epi32(_mm256_max_epi32(field, _mm256_set1_epi32(1)), _mm256_set1_epi32(127));
  const __m256i below =
      _mm256_max_epi32(_mm256_sub_epi32(_mm256_set1_epi32(emin), exponent), _mm256_setzero_si256());
  significand = _mm256_srlv_epi32(significand, _mm256_add_epi32(below, _mm256_set1_epi32(13)));
  exponent = _mm256_max_epi32(exponent, _mm256_set1_epi32(emin));
  const __m256i zero = _mm256_cmpeq_epi32(significand, _mm256_setzero_si256());
  return {_mm256_sign_epi32(significand, bits),
          _mm256_blendv_epi8(exponent, _mm256_set1_epi32(kZeroExponent), zero)};
}

// 2^exponent in four lanes.
__m256d power(__m128i exponent) {
  return _mm256_castsi256_pd(
      _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm_add_epi32(exponent, _mm_set1_epi32(1023))), 52));
}

class Panel {
 public:
  Panel(const TensorCore& core, const TensorCoreTile& tile) : core_(core), tile_(tile) {
    // A product in units of 2^(emax - F) is its significands' product shifted left by F - 20; the
    // shift goes into the operands, which stay within 15 bits.
    const int left = std::max(core.kept_bits - 20, 0);
    a_left_ = left / 2;
    b_left_ = left - a_left_;
    right_ = std::max(20 - core.kept_bits, 0);
  }

  // Whether a block's sum fits 32 bits, operands 16 and arrays their length.
  static bool takes(const TensorCore& core) {
    return core.block <= kDepth && core.kept_bits >= 10 && core.kept_bits <= 28 &&
           (std::int64_t{core.block} << (core.kept_bits + 2)) <= (std::int64_t{1} << 31);
  }

  template <bool kHalf>
  void run() {
    for (int k0 = 0; k0 < tile_.k; k0 += core_.block) {
      const int n = std::min(core_.block, tile_.k - k0);
      for (int i0 = 0; i0 < tile_.m; i0 += kRows) {
        const int rows = std::min(kRows, tile_.m - i0);
        decode_rows(i0, rows, k0, n);
        for (int j0 = 0; j0 < tile_.n; j0 += kLanes) {
          const int lanes = std::min(kLanes, tile_.n - j0);
          const int special = decode_columns(j0, lanes, k0, n);
          for (int i = 0; i < rows; ++i) {
            if (special != 0 || row_special_[i] != 0 ||
                !block<kHalf>(i, &tile_.c[(i0 + i) * tile_.ldc + j0], lanes, n)) {
              for (int j = 0; j < lanes; ++j)
                scalar_element<kHalf>(core_, tile_, i0 + i, j0 + j, k0, n);
            }
          }
        }
      }
    }
  }

 private:
  static __m256i first(int lanes) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  void decode_rows(int i0, int rows, int k0, int n) {
    for (int i = 0; i < rows; ++i) {
      const float* from = tile_.a + (i0 + i) * tile_.lda + k0;
      row_special_[i] = 0;
      for (int l = 0; l < n; l += kLanes) {
        const __m256 values = _mm256_maskload_ps(from + l, first(n - l));
        const Decoded x = decode(values, core_.emin, row_special_[i]);
        // Only the low halves take part in the product.
        const __m256i low =
            _mm256_and_si256(_mm256_slli_epi32(x.significand, a_left_), _mm256_set1_epi32(0xFFFF));
        _mm256_store_si256(reinterpret_cast<__m256i*>(a_significand_[i] + l), low);
        _mm256_store_si256(reinterpret_cast<__m256i*>(a_exponent_[i] + l), x.exponent);
      }
    }
  }

  int decode_columns(int j0, int lanes, int k0, int n) {
    int special = 0;
    for (int l = 0; l < n; ++l) {
      const Decoded x =
          decode(_mm256_maskload_ps(tile_.b + (k0 + l) * tile_.ldb + j0, first(lanes)), core_.emin,
                 special);
      b_significand_[l] = _mm256_slli_epi32(x.significand, b_left_);
      b_exponent_[l] = x.exponent;
    }
    return special;
  }

  // One block of n products onto eight elements; false where a c is not finite.
  template <bool kHalf>
  bool block(int row, float* at, int lanes, int n) const {
    int special = 0;
    const __m256 c = _mm256_maskload_ps(at, first(lanes));
    const __m256i c_bits = _mm256_castps_si256(c);
    const __m256i field = _mm256_and_si256(_mm256_srli_epi32(c_bits, 23), _mm256_set1_epi32(255));
    special = _mm256_movemask_epi8(_mm256_cmpeq_epi32(field, _mm256_set1_epi32(255)));
    if (special != 0) return false;
    const __m256i subnormal = _mm256_cmpeq_epi32(field, _mm256_setzero_si256());
    const __m256i c_significand =
        _mm256_or_si256(_mm256_and_si256(c_bits, _mm256_set1_epi32(0x7FFFFF)),
                        _mm256_andnot_si256(subnormal, _mm256_set1_epi32(0x800000)));
    const __m256i c_exponent =
        _mm256_sub_epi32(_mm256_max_epi32(field, _mm256_set1_epi32(1)), _mm256_set1_epi32(127));
    const __m256i c_zero = _mm256_cmpeq_epi32(c_significand, _mm256_setzero_si256());

    // Where all is zero a clamped emax keeps the scale a number; the sum is zero whatever it is.
    __m256i emax =
        _mm256_max_epi32(_mm256_blendv_epi8(c_exponent, _mm256_set1_epi32(kZeroExponent), c_zero),
                         _mm256_set1_epi32(-300));
    for (int l = 0; l < n; ++l)
      emax = _mm256_max_epi32(
          emax, _mm256_add_epi32(_mm256_set1_epi32(a_exponent_[row][l]), b_exponent_[l]));

    const __m256i from = _mm256_add_epi32(emax, _mm256_set1_epi32(right_));
    __m256i sum = _mm256_setzero_si256();
    for (int l = 0; l < n; ++l) {
      const __m256i product =
          _mm256_madd_epi16(_mm256_set1_epi32(a_significand_[row][l]), b_significand_[l]);
      const __m256i right = _mm256_sub_epi32(
          _mm256_sub_epi32(from, _mm256_set1_epi32(a_exponent_[row][l])), b_exponent_[l]);
      // A shift by 32 or more gives 0, as it should.
      const __m256i aligned = _mm256_srlv_epi32(_mm256_abs_epi32(product), right);
      sum = _mm256_add_epi32(sum, _mm256_sign_epi32(aligned, product));
    }
    const __m256i down =
        _mm256_max_epi32(_mm256_sub_epi32(emax, c_exponent), _mm256_setzero_si256());
    const int c_left = core_.kept_bits - 23;
    const __m256i c_aligned =
        _mm256_srlv_epi32(_mm256_slli_epi32(c_significand, std::max(c_left, 0)),
                          _mm256_add_epi32(down, _mm256_set1_epi32(std::max(-c_left, 0))));
    const __m256i c_signed =
        _mm256_blendv_epi8(c_aligned, _mm256_sub_epi32(_mm256_setzero_si256(), c_aligned),
                           _mm256_srai_epi32(c_bits, 31));
    const __m256i unit = _mm256_sub_epi32(emax, _mm256_set1_epi32(core_.kept_bits));
    // Both sums together may need 33 bits.
    const __m256d low =
        _mm256_mul_pd(_mm256_add_pd(_mm256_cvtepi32_pd(_mm256_castsi256_si128(sum)),
                                    _mm256_cvtepi32_pd(_mm256_castsi256_si128(c_signed))),
                      power(_mm256_castsi256_si128(unit)));
    const __m256d high =
        _mm256_mul_pd(_mm256_add_pd(_mm256_cvtepi32_pd(_mm256_extracti128_si256(sum, 1)),
                                    _mm256_cvtepi32_pd(_mm256_extracti128_si256(c_signed, 1))),
                      power(_mm256_extracti128_si256(unit, 1)));
    if constexpr (kHalf) {
      alignas(32) double exact[kLanes];
      _mm256_store_pd(exact, low);
      _mm256_store_pd(exact + 4, high);
      for (int j = 0; j < lanes; ++j) at[j] = static_cast<float>(Half(exact[j]));
      return true;
    }
    return truncate(low, high, at, lanes);
  }

  // False where a result would be subnormal.
  bool truncate(__m256d low, __m256d high, float* at, int lanes) const {
    const __m256d smallest = _mm256_set1_pd(0x1p-126);
    const __m256d sign = _mm256_set1_pd(-0.0);
    const __m256d zero = _mm256_setzero_pd();
    const auto is_small = [&](__m256d v) {
      return _mm256_movemask_pd(
          _mm256_and_pd(_mm256_cmp_pd(_mm256_andnot_pd(sign, v), smallest, _CMP_LT_OQ),
                        _mm256_cmp_pd(v, zero, _CMP_NEQ_OQ)));
    };
    if ((is_small(low) | is_small(high)) != 0) return false;
    const __m256d kept =
        _mm256_castsi256_pd(_mm256_set1_epi64x(-(std::int64_t{1} << (52 - core_.fraction_bits))));
    // What is 2^128 or more becomes infinite here.
    const __m256 result = _mm256_set_m128(_mm256_cvtpd_ps(_mm256_and_pd(high, kept)),
                                          _mm256_cvtpd_ps(_mm256_and_pd(low, kept)));
    _mm256_maskstore_ps(at, first(lanes), result);
    return true;
  }

  const TensorCore core_;
  const TensorCoreTile tile_;
  int a_left_, b_left_, right_;
  int row_special_[kRows];
  alignas(32) std::int32_t a_significand_[kRows][kDepth];
  alignas(32) std::int32_t a_exponent_[kRows][kDepth];
  __m256i b_significand_[kDepth];
  __m256i b_exponent_[kDepth];
};

#endif

template <bool kHalf>
void exact_tile(const TensorCore& core, const TensorCoreTile& tile) {
#if defined(__AVX2__)
  if (Panel::takes(core)) {
    Panel(core, tile).run<kHalf>();
    return;
  }
#endif
  for (int i = 0; i < tile.m; ++i)
    for (int j = 0; j < tile.n; ++j) scalar_element<kHalf>(core, tile, i, j, 0, tile.k);
}

}  // namespace

void tensor_core_tile(const TensorCore& core, const TensorCoreTile& tile) {
  exact_tile<false>(core, tile);
}

void tensor_core_tile_half(const TensorCore& core, const TensorCoreTile& tile) {
  exact_tile<true>(core, tile);
}

void fma_tile(const TensorCoreTile& t) {
  // kRows chains at a time hide the latency of one.
  constexpr int kRows = 8;
  const auto lanes = static_cast<int>(simd::kLanes);
  for (int j = 0; j < t.n; j += lanes) {
    const simd::Part part(std::min(lanes, t.n - j));
    int i = 0;
    for (; i + kRows <= t.m; i += kRows) {
      simd::Vector c[kRows];
      for (int r = 0; r < kRows; ++r) c[r] = part.load(t.c + (i + r) * t.ldc + j);
      for (int l = 0; l < t.k; ++l) {
        const simd::Vector b = part.load(t.b + l * t.ldb + j);
        simd::unroll<kRows>(
            [&](auto r) { c[r] = simd::fma(simd::broadcast(t.a[(i + r) * t.lda + l]), b, c[r]); });
      }
      for (int r = 0; r < kRows; ++r) part.store(t.c + (i + r) * t.ldc + j, c[r]);
    }
    for (; i < t.m; ++i) {
      simd::Vector c = part.load(t.c + i * t.ldc + j);
      for (int l = 0; l < t.k; ++l)
        c = simd::fma(simd::broadcast(t.a[i * t.lda + l]), part.load(t.b + l * t.ldb + j), c);
      part.store(t.c + i * t.ldc + j, c);
    }
  }
}

}  // namespace roundoff
