#include "verify/host_dot.h"

#include <bit>
#include <cmath>

#include "kernels/base/format.h"
#include "kernels/base/tensor_core.h"

namespace roundoff {

namespace {

// a + b rounded to odd, so that rounding it again to a narrower format rounds once (Boldo and
// Melquiond 2008); the rounding error by Knuth's two-sum.
double sum_to_odd(double a, double b) {
  const double s = a + b;
  const double of_b = s - a;
  const double error = (a - (s - of_b)) + (b - of_b);
  if (!std::isfinite(s) || error == 0) return s;
  std::uint64_t bits = std::bit_cast<std::uint64_t>(s);
  if ((bits & 1U) == 0) bits += (error > 0) == (s > 0) ? 1 : std::uint64_t{0} - 1;
  return std::bit_cast<double>(bits);
}

}  // namespace

bool has_host_dot(Accumulator accumulator, DType operands) {
  if (accumulator == Accumulator::fp32 || accumulator == Accumulator::fp64) return false;
  if (accumulator == Accumulator::fp16) return is_16bit(operands);
  return is_16bit(operands) && has_tensor_core(accumulator, operands);
}

double host_dot(Accumulator accumulator, DType operands, std::span<const float> a,
                std::span<const float> b) {
  if (accumulator != Accumulator::fp16)
    return tensor_core_dot(tensor_core(accumulator, operands), a.data(), b.data(),
                           static_cast<std::int64_t>(a.size()), 0.0F);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum = round_to_format(sum_to_odd(static_cast<double>(a[i]) * b[i], sum), kFp16).value;
  return sum;
}

}  // namespace roundoff
