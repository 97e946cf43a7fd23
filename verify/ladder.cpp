#include "verify/ladder.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace roundoff {

std::string_view name(Rung rung) {
  switch (rung) {
    case Rung::integers:
      return "integers";
    case Rung::hard_bound:
      return "hard bound";
    case Rung::running_bound:
      return "running bound";
    case Rung::host_model:
      return "host model";
  }
  return "?";
}

std::int64_t exact_integer_limit(std::int64_t terms, const Format& operands,
                                 const Format& accumulator, const Format& output) {
  const int sum_bits = std::min(accumulator.precision, output.precision);
  const auto fits = [&](std::int64_t m) {
    const auto size = static_cast<double>(m);
    const double sum = static_cast<double>(std::max<std::int64_t>(terms, 1)) * size * size;
    return size <= std::exp2(operands.precision) && size <= operands.max_finite() &&
           sum <= std::exp2(sum_bits) && sum <= output.max_finite() &&
           sum <= accumulator.max_finite();
  };
  std::int64_t m = 0;
  while (m < 1000 && fits(m + 1)) ++m;
  return m;
}

std::vector<double> small_integers(std::int64_t n, std::int64_t limit, std::uint64_t seed) {
  ROUNDOFF_CHECK(limit >= 0, "small_integers", "limit ", limit, ", >= 0 expected");
  std::mt19937_64 generator(seed);
  std::vector<double> values;
  const auto range = static_cast<std::uint64_t>(2 * limit + 1);
  for (std::int64_t i = 0; i < n; ++i)
    values.push_back(static_cast<double>(static_cast<std::int64_t>(generator() % range) - limit));
  return values;
}

Bound exactly(std::vector<double> reference) {
  std::vector<double> none(reference.size(), 0.0);
  return {std::move(reference), std::move(none), BoundKind::proven, 0};
}

}  // namespace roundoff
