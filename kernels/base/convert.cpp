#include "kernels/base/convert.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__F16C__) && defined(__AVX__)
#include <immintrin.h>
#endif

namespace roundoff {

namespace {

constexpr std::int64_t kChunk = 512;

template <class T>
void widen_half(const Half* from, std::int64_t n, T* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
}

#if defined(__F16C__) && defined(__AVX__)
// F16C converts without regard to FTZ and DAZ and quiets NaN, exactly like the scalar code.
template <>
void widen_half<float>(const Half* from, std::int64_t n, float* to) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  for (; i < n; ++i) to[i] = static_cast<float>(from[i]);
}
#endif

void narrow_half(const float* from, std::int64_t n, Half* to) {
  std::int64_t i = 0;
#if defined(__F16C__) && defined(__AVX__)
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#endif
  for (; i < n; ++i) to[i] = Half(from[i]);
}

// Branch-free, so that compilers vectorise it.
void narrow_bfloat16(const float* from, std::int64_t n, BFloat16* to) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
    const std::uint32_t quiet = (bits >> 16) | 0x0040U;
    to[i].bits = static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded);
  }
}

// fp32 to fp64 and back by instruction, and again on integers where a subnormal fp32 takes part:
// the instructions obey FTZ and DAZ.
void copy_floats(const float* from, std::int64_t n, double* to) {
  bool subnormal = false;
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = static_cast<double>(from[i]);
    subnormal |= (std::bit_cast<std::uint32_t>(from[i]) & 0x7FFFFFFFU) - 1U < 0x7FFFFFU;
  }
  if (!subnormal) return;
  for (std::int64_t i = 0; i < n; ++i)
    to[i] = std::bit_cast<double>(detail::widen_fp32_bits(std::bit_cast<std::uint32_t>(from[i])));
}
void copy_floats(const double* from, std::int64_t n, float* to) {
  constexpr std::uint64_t kNormal = std::uint64_t{1023 - 126} << 52;  // 2^-126
  bool subnormal = false;
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = static_cast<float>(from[i]);
    subnormal |=
        (std::bit_cast<std::uint64_t>(from[i]) & ~(std::uint64_t{1} << 63)) - 1 < kNormal - 1;
  }
  if (!subnormal) return;
  for (std::int64_t i = 0; i < n; ++i)
    to[i] = std::bit_cast<float>(
        detail::narrow_bits<11, 52, 8, 23>(std::bit_cast<std::uint64_t>(from[i])));
}
template <class T>
void copy_floats(const T* from, std::int64_t n, T* to) {
  std::copy_n(from, n, to);
}

// The double nearest to `value` whose last bit says whether anything was lost: rounding it again to
// at most 51 bits is rounding `value` once (round to odd).
double to_double_odd(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  std::uint64_t magnitude = value < 0 ? ~bits + 1 : bits;
  const int drop = 11 - std::countl_zero(magnitude);
  if (drop > 0) {
    const std::uint64_t kept = magnitude >> drop;
    magnitude = (kept | (magnitude != kept << drop ? 1U : 0U)) << drop;
  }
  return value < 0 ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
}

template <class T>
void widen_any(const ConstView& from, std::int64_t offset, std::int64_t n, T* to) {
  const auto copy = [&](const auto* source) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(source[i]);
  };
  switch (from.dtype) {
    case DType::fp64:
      return copy_floats(from.as<double>() + offset, n, to);
    case DType::fp32:
      return copy_floats(from.as<float>() + offset, n, to);
    case DType::fp16:
      return widen_half(from.as<Half>() + offset, n, to);
    case DType::bf16:
      return copy(from.as<BFloat16>() + offset);
    case DType::i64:
      return copy(from.as<std::int64_t>() + offset);
    case DType::i32:
      return copy(from.as<std::int32_t>() + offset);
    case DType::u8:
      return copy(from.as<std::uint8_t>() + offset);
  }
}

template <class T>
void narrow_any(const T* from, std::int64_t n, const Out& to, std::int64_t offset) {
  if (!to.wanted) return;
  const View& view = to.view;
  if (to.write == Write::accumulate) {
    if (view.dtype == DType::fp64) {
      double* y = view.as<double>() + offset;
      for (std::int64_t i = 0; i < n; ++i) y[i] += static_cast<double>(from[i]);
      return;
    }
    ROUNDOFF_CHECK(view.dtype == DType::fp32, "convert", "cannot accumulate into ",
                   name(view.dtype), "; fp32 or fp64 expected");
    float* y = view.as<float>() + offset;
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(static_cast<T>(y[i]) + from[i]);
    return;
  }
  switch (view.dtype) {
    case DType::fp64:
      return copy_floats(from, n, view.as<double>() + offset);
    case DType::fp32:
      return copy_floats(from, n, view.as<float>() + offset);
    case DType::fp16:
      if constexpr (std::is_same_v<T, float>) {
        narrow_half(from, n, view.as<Half>() + offset);
      } else {
        Half* y = view.as<Half>() + offset;
        for (std::int64_t i = 0; i < n; ++i) y[i] = Half(from[i]);
      }
      return;
    case DType::bf16:
      if constexpr (std::is_same_v<T, float>) {
        narrow_bfloat16(from, n, view.as<BFloat16>() + offset);
      } else {
        BFloat16* y = view.as<BFloat16>() + offset;
        for (std::int64_t i = 0; i < n; ++i) y[i] = BFloat16(from[i]);
      }
      return;
    default:
      fail("convert", "cannot write ", name(view.dtype), "; a floating type expected");
  }
}

}  // namespace

void widen(const ConstView& from, std::int64_t offset, std::int64_t n, float* to) {
  widen_any(from, offset, n, to);
}
void widen(const ConstView& from, std::int64_t offset, std::int64_t n, double* to) {
  widen_any(from, offset, n, to);
}
void narrow(const float* from, std::int64_t n, const Out& to, std::int64_t offset) {
  narrow_any(from, n, to, offset);
}
void narrow(const double* from, std::int64_t n, const Out& to, std::int64_t offset) {
  narrow_any(from, n, to, offset);
}

void detail::check_convert(const ConstView& from, const Out& to) {
  const DType target = to.view.dtype;
  ROUNDOFF_CHECK(from.numel() == to.view.numel(), "convert", "shapes ", from.shape, " and ",
                 to.view.shape, " differ in size");
  ROUNDOFF_CHECK(to.write == Write::overwrite || target == DType::fp32 || target == DType::fp64,
                 "convert", "cannot accumulate into ", name(target), "; fp32 or fp64 expected");
  ROUNDOFF_CHECK(from.dtype == target || is_floating(target), "convert", "cannot write ",
                 name(target), "; a floating type expected");
}

void convert(Ref, const ConstView& from, const Out& to) {
  if (!to.wanted) return;
  detail::check_convert(from, to);
  const DType target = to.view.dtype;
  const std::int64_t n = from.numel();
  if (from.dtype == target && to.write == Write::overwrite) {
    if (n != 0) std::memcpy(to.view.data, from.data, static_cast<std::size_t>(n) * size_of(target));
    return;
  }
  // fp64 and integers go through double, so that the result is rounded once.
  const auto run = [&]<class T>(T* buffer) {
    for (std::int64_t i = 0; i < n; i += kChunk) {
      const std::int64_t m = std::min(kChunk, n - i);
      if (from.dtype == DType::i64 && target != DType::fp64) {
        const std::int64_t* source = from.as<std::int64_t>() + i;
        for (std::int64_t k = 0; k < m; ++k) buffer[k] = static_cast<T>(to_double_odd(source[k]));
      } else {
        widen(from, i, m, buffer);
      }
      narrow(buffer, m, to, i);
    }
  };
  if (is_16bit(from.dtype) || from.dtype == DType::fp32) {
    float buffer[kChunk];
    run(buffer);
  } else {
    double buffer[kChunk];
    run(buffer);
  }
}

void fill(Ref, double value, const View& to) {
  const std::int64_t n = to.numel();
  switch (to.dtype) {
    case DType::fp64:
      std::fill_n(to.as<double>(), n, value);
      return;
    case DType::fp32:
      std::fill_n(to.as<float>(), n, static_cast<float>(value));
      return;
    case DType::fp16:
      std::fill_n(to.as<Half>(), n, Half(value));
      return;
    case DType::bf16:
      std::fill_n(to.as<BFloat16>(), n, BFloat16(value));
      return;
    case DType::i64:
      std::fill_n(to.as<std::int64_t>(), n, static_cast<std::int64_t>(value));
      return;
    case DType::i32:
      std::fill_n(to.as<std::int32_t>(), n, static_cast<std::int32_t>(value));
      return;
    case DType::u8:
      std::fill_n(to.as<std::uint8_t>(), n, static_cast<std::uint8_t>(value));
      return;
  }
}

void round_to_tf32(float* values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    const std::uint32_t rounded = (bits + 0xFFFU + ((bits >> 13) & 1U)) & ~0x1FFFU;
    const std::uint32_t quiet = (bits | 0x00400000U) & ~0x1FFFU;
    values[i] = std::bit_cast<float>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded);
  }
}

DType parse_dtype(std::string_view text) {
  for (const DType d :
       {DType::fp64, DType::fp32, DType::fp16, DType::bf16, DType::i64, DType::i32, DType::u8})
    if (name(d) == text) return d;
  fail("dtype", "unknown type '", text,
       "'; fp64, fp32, fp16, bf16, int64, int32 or uint8 expected");
}

}  // namespace roundoff
