#include "kernels/dropout/dropout.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/convert.h"

namespace roundoff {

namespace {

constexpr std::int64_t kBlock = 512;  // elements; a multiple of 4, the words of a Philox block

// Words of elements [first, first + n) of a sample; first is a multiple of 4, `bits` holds n
// rounded up to a multiple of 4.
void random_bits(const PhiloxStream& stream, std::uint32_t sample, std::int64_t first,
                 std::int64_t n, std::uint32_t* bits) {
  for (std::int64_t i = 0; i < n; i += 4) {
    const PhiloxBlock r = stream.block(sample, static_cast<std::uint32_t>((first + i) / 4));
    std::copy_n(r.word, 4, bits + i);
  }
}

template <class T>
void run(const DropoutParams& params, std::int64_t samples, std::int64_t elements,
         const ConstView& x, const Out& y) {
  const auto threshold = static_cast<std::uint64_t>(std::ceil(params.p * 0x1p32));
  const double scale = params.p < 1.0 ? 1.0 / (1.0 - params.p) : 0.0;
  T values[kBlock];
  std::uint32_t bits[kBlock];
  for (std::int64_t s = 0; s < samples; ++s) {
    const auto sample = static_cast<std::uint32_t>(params.sample0 + static_cast<std::uint64_t>(s));
    for (std::int64_t e = 0; e < elements; e += kBlock) {
      const std::int64_t m = std::min(kBlock, elements - e);
      random_bits(params.stream, sample, e, m, bits);
      widen(x, s * elements + e, m, values);
      for (std::int64_t i = 0; i < m; ++i) {
        const T kept = static_cast<T>(static_cast<double>(values[i]) * scale);
        values[i] = bits[i] < threshold ? T(0) : kept;
      }
      narrow(values, m, y, s * elements + e);
    }
  }
}

void apply(std::string_view operation, const DropoutParams& params, const ConstView& x,
           const Out& y) {
  validate(params);
  if (!y.wanted) return;
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
  if (params.p == 0.0) return convert(Ref{}, x, y);
  if (x.dtype == DType::fp64 || y.view.dtype == DType::fp64)
    run<double>(params, samples, elements, x, y);
  else
    run<float>(params, samples, elements, x, y);
}

}  // namespace

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
