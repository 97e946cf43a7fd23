#include "kernels/dropout/dropout.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "kernels/base/convert.h"

namespace roundoff {

namespace {

constexpr std::int64_t kBlock = 512;  // elements

// Words of elements [first, first + n) of a sample into `bits`, which holds n rounded up to 256;
// first is a multiple of 4. philox4x32 over 64 counters side by side, written out so that compilers
// turn it into vector instructions (a test compares every word with PhiloxStream).
void random_bits(const PhiloxStream& stream, std::uint32_t sample, std::int64_t first,
                 std::int64_t n, std::uint32_t* __restrict bits) {
  constexpr int kCounters = 64;
  static_assert(kBlock % (4 * kCounters) == 0);
  std::uint32_t c0[kCounters], c1[kCounters], c2[kCounters], c3[kCounters];
  for (std::int64_t i = 0; i < n; i += 4 * kCounters) {
    for (int j = 0; j < kCounters; ++j) {
      c0[j] = static_cast<std::uint32_t>((first + i) / 4) + static_cast<std::uint32_t>(j);
      c1[j] = sample;
      c2[j] = stream.step;
      c3[j] = stream.tensor;
    }
    auto key0 = static_cast<std::uint32_t>(stream.seed);
    auto key1 = static_cast<std::uint32_t>(stream.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int j = 0; j < kCounters; ++j) {
        const std::uint64_t a = kPhiloxMultiplier0 * c0[j];
        const std::uint64_t b = kPhiloxMultiplier1 * c2[j];
        c0[j] = static_cast<std::uint32_t>(b >> 32) ^ c1[j] ^ key0;
        c1[j] = static_cast<std::uint32_t>(b);
        c2[j] = static_cast<std::uint32_t>(a >> 32) ^ c3[j] ^ key1;
        c3[j] = static_cast<std::uint32_t>(a);
      }
      key0 += kPhiloxKeyStep0;
      key1 += kPhiloxKeyStep1;
    }
    for (int j = 0; j < kCounters; ++j) {
      bits[i + 4 * j] = c0[j];
      bits[i + 4 * j + 1] = c1[j];
      bits[i + 4 * j + 2] = c2[j];
      bits[i + 4 * j + 3] = c3[j];
    }
  }
}

// Selects by bits, not by a branch that nobody can predict.
template <class T>
void select(const std::uint32_t* __restrict bits, std::uint32_t last_dropped, double scale,
            std::int64_t n, T* __restrict values) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  for (std::int64_t i = 0; i < n; ++i) {
    const T kept = static_cast<T>(static_cast<double>(values[i]) * scale);
    const Bits mask = bits[i] > last_dropped ? ~Bits{0} : Bits{0};
    values[i] = std::bit_cast<T>(std::bit_cast<Bits>(kept) & mask);
  }
}

// 0 < p <= 1
template <class T>
void run(const DropoutParams& params, std::int64_t samples, std::int64_t elements,
         const ConstView& x, const Out& y) {
  const auto last_dropped =
      static_cast<std::uint32_t>(static_cast<std::uint64_t>(std::ceil(params.p * 0x1p32)) - 1);
  const double scale = params.p < 1.0 ? 1.0 / (1.0 - params.p) : 0.0;
  T values[kBlock];
  std::uint32_t bits[kBlock];
  for (std::int64_t s = 0; s < samples; ++s) {
    const auto sample = static_cast<std::uint32_t>(params.sample0 + static_cast<std::uint64_t>(s));
    for (std::int64_t e = 0; e < elements; e += kBlock) {
      const std::int64_t m = std::min(kBlock, elements - e);
      random_bits(params.stream, sample, e, m, bits);
      widen(x, s * elements + e, m, values);
      select(bits, last_dropped, scale, m, values);
      narrow(values, m, y, s * elements + e);
    }
  }
}

void apply(std::string_view operation, const DropoutParams& params, const ConstView& x,
           const Out& y) {
  validate(params);
  if (!y.wanted) return;
  detail::check_dropout(operation, params, x, y);
  if (x.numel() == 0) return;
  const std::int64_t samples = x.shape.rank() == 0 ? 1 : x.shape[0];
  const std::int64_t elements = x.numel() / samples;
  if (params.p == 0.0) return convert(Ref{}, x, y);
  if (x.dtype == DType::fp64 || y.view.dtype == DType::fp64)
    run<double>(params, samples, elements, x, y);
  else
    run<float>(params, samples, elements, x, y);
}

}  // namespace

void detail::check_dropout(std::string_view operation, const DropoutParams& params,
                           const ConstView& x, const Out& y) {
  ROUNDOFF_CHECK(x.shape == y.view.shape, operation, "input has shape ", x.shape,
                 ", output has shape ", y.view.shape);
  ROUNDOFF_CHECK(is_floating(x.dtype) && is_floating(y.view.dtype), operation, "does not take ",
                 name(x.dtype), " to ", name(y.view.dtype), "; floating types expected");
  const std::int64_t samples = x.shape.rank() == 0 ? 1 : x.shape[0];
  if (x.numel() == 0) return;
  const std::int64_t elements = x.numel() / samples;
  constexpr std::uint64_t kSamples = std::uint64_t{1} << 32;
  ROUNDOFF_CHECK(params.sample0 <= kSamples &&
                     static_cast<std::uint64_t>(samples) <= kSamples - params.sample0,
                 operation, "samples ", params.sample0, " + ", samples, ", below 2^32 expected");
  ROUNDOFF_CHECK(elements <= (std::int64_t{1} << 34), operation, elements,
                 " elements a sample, at most 2^34 expected");
  ROUNDOFF_CHECK(y.write == Write::overwrite || !is_16bit(y.view.dtype), operation,
                 "cannot accumulate into ", name(y.view.dtype), "; fp32 or fp64 expected");
}

void validate(const DropoutParams& params) {
  if (!(params.p >= 0.0 && params.p <= 1.0))
    throw UsageError(concat("[dropout] p ", params.p, ", expected in [0, 1]"));
}

void dropout_forward(Ref, const DropoutParams& params, const ConstView& x, const Out& y) {
  apply("dropout", params, x, y);
}

void dropout_backward(Ref, const DropoutParams& params, const ConstView& dy, const Out& dx) {
  apply("dropout_backward", params, dy, dx);
}

}  // namespace roundoff
