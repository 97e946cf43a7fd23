#include "engine/tensor_stats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/base/convert.h"

namespace roundoff {

namespace {

constexpr std::int64_t kChunk = 1024;
constexpr std::uint32_t kInfinity = 0x7F800000U;
constexpr std::uint32_t kBelowFp16 = std::bit_cast<std::uint32_t>(0x1p-24F);
constexpr std::uint32_t kFlushedFp16 = std::bit_cast<std::uint32_t>(0x1p-25F);

// Values that fp32 holds. On integers throughout: it must not depend on whether the processor
// flushes subnormals.
class Fp32Count {
 public:
  explicit Fp32Count(DType dtype)
      : subnormal_below_(dtype == DType::fp16 ? std::bit_cast<std::uint32_t>(0x1p-14F)
                                              : std::bit_cast<std::uint32_t>(0x1p-126F)) {}

  void add(const float* values, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t b = std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU;
      ++fields_[b >> 23];
      if (b >= kInfinity) {
        nans_ += b > kInfinity;
        continue;
      }
      amax_ = std::max(amax_, b);
      if (b >= subnormal_below_ && b >= kBelowFp16) continue;
      if (b == 0) {
        ++zeros_;
        continue;
      }
      subnormals_ += b < subnormal_below_;
      below_ += b < kBelowFp16;
      flushed_ += b <= kFlushedFp16;
      // fp32's subnormals share an exponent field; the leading bit tells them apart.
      if (b < 0x00800000U) ++tiny_[static_cast<std::size_t>(31 - std::countl_zero(b))];
    }
  }

  void finish(TensorStats& s) const {
    s.zeros = zeros_;
    s.subnormals = subnormals_;
    s.below_fp16 = below_;
    s.flushed_fp16 = flushed_;
    s.nans = nans_;
    s.infinities = fields_[255] - nans_;
    s.amax = static_cast<double>(std::bit_cast<float>(amax_));
    const auto bin = [&](int e) -> std::int64_t& {
      return s.exponents[static_cast<std::size_t>(e - TensorStats::kLowest)];
    };
    for (int field = 1; field < 255; ++field)
      bin(field - 127) = fields_[static_cast<std::size_t>(field)];
    for (int bit = 0; bit < 23; ++bit) bin(bit - 149) = tiny_[static_cast<std::size_t>(bit)];
  }

 private:
  std::uint32_t subnormal_below_;
  std::array<std::int64_t, 256> fields_{};
  std::array<std::int64_t, 23> tiny_{};
  std::int64_t zeros_ = 0, subnormals_ = 0, below_ = 0, flushed_ = 0, nans_ = 0;
  std::uint32_t amax_ = 0;
};

void count_fp64(const double* values, std::int64_t n, double factor, TensorStats& s) {
  for (std::int64_t i = 0; i < n; ++i) {
    const double v = std::abs(values[i] * factor);
    if (std::isnan(v)) {
      ++s.nans;
    } else if (std::isinf(v)) {
      ++s.infinities;
    } else if (v == 0) {
      ++s.zeros;
    } else {
      s.subnormals += v < 0x1p-1022;
      s.below_fp16 += v < 0x1p-24;
      s.flushed_fp16 += v <= 0x1p-25;
      s.amax = std::max(s.amax, v);
      const int e = std::clamp(std::ilogb(v), TensorStats::kLowest, TensorStats::kHighest);
      ++s.exponents[static_cast<std::size_t>(e - TensorStats::kLowest)];
    }
  }
}

}  // namespace

std::int64_t TensorStats::below_exponent(int e) const {
  std::int64_t count = 0;
  for (int i = kLowest; i < std::min(e, kHighest + 1); ++i) count += at_exponent(i);
  return count;
}

int TensorStats::doublings_left() const {
  const Format format = format_of(dtype);
  const double largest = amax == 0 ? format.min_subnormal() : amax;
  if (amax == 0 && !finite()) return 0;
  int k = format.emax - std::ilogb(largest);
  if (k > 0 && !fits(std::ldexp(largest, k), format)) --k;
  return std::max(k, 0);
}

void TensorStats::add(const TensorStats& other) {
  elements += other.elements;
  zeros += other.zeros;
  subnormals += other.subnormals;
  infinities += other.infinities;
  nans += other.nans;
  below_fp16 += other.below_fp16;
  flushed_fp16 += other.flushed_fp16;
  amax = std::max(amax, other.amax);
  for (std::size_t i = 0; i < kBins; ++i) exponents[i] += other.exponents[i];
}

TensorStats tensor_stats(const Tensor& tensor, float factor) {
  ROUNDOFF_CHECK(tensor.defined() && is_floating(tensor.dtype()), "probe", "a tensor of ",
                 tensor.defined() ? name(tensor.dtype()) : "no type", "; a floating type expected");
  TensorStats s;
  s.dtype = tensor.dtype();
  s.elements = tensor.numel();
  const Tensor host = on_host(tensor);
  if (s.dtype == DType::fp64) {
    count_fp64(host.data<double>(), s.elements, static_cast<double>(factor), s);
    return s;
  }
  Fp32Count count(s.dtype);
  if (s.dtype == DType::fp32 && factor == 1.0F) {
    count.add(host.data<float>(), s.elements);
  } else {
    std::array<float, kChunk> values;
    for (std::int64_t at = 0; at < s.elements; at += kChunk) {
      const std::int64_t n = std::min(kChunk, s.elements - at);
      widen(host.const_view(), at, n, values.data());
      if (factor != 1.0F)
        for (std::int64_t i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] *= factor;
      count.add(values.data(), n);
    }
  }
  count.finish(s);
  return s;
}

bool all_finite(const Tensor& tensor) {
  const Tensor host = on_host(tensor);
  std::array<double, kChunk> values;
  for (std::int64_t at = 0; at < host.numel(); at += kChunk) {
    const std::int64_t n = std::min(kChunk, host.numel() - at);
    widen(host.const_view(), at, n, values.data());
    // A sum of zeros times the values is NaN where one of them is not finite.
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += 0.0 * values[static_cast<std::size_t>(i)];
    if (sum != 0) return false;
  }
  return true;
}

bool fits(double magnitude, const Format& format) {
  return std::isfinite(magnitude) &&
         !round_to_format(magnitude, format, RoundingMode::rne).overflow;
}

}  // namespace roundoff
