#include "verify/oracle/reduce.h"

#include <cmath>

namespace roundoff::oracle {

Groups reduction_groups(const Shape& shape, std::span<const std::int64_t> axes) {
  std::vector<bool> reduced(static_cast<std::size_t>(shape.rank()), axes.empty());
  for (const std::int64_t axis : axes)
    reduced[static_cast<std::size_t>(shape.normalize_axis(axis, "reduce oracle"))] = true;
  Groups groups{std::vector<std::size_t>(at(shape.numel())), 1};
  for (int i = 0; i < shape.rank(); ++i)
    if (!reduced[static_cast<std::size_t>(i)]) groups.count *= at(shape[i]);
  for (std::size_t flat = 0; flat < groups.of.size(); ++flat) {
    auto rest = static_cast<std::int64_t>(flat);
    std::int64_t stride = 1;
    std::int64_t group = 0;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      if (!reduced[static_cast<std::size_t>(i)]) {
        group += rest % shape[i] * stride;
        stride *= shape[i];
      }
      rest /= shape[i];
    }
    groups.of[flat] = at(group);
  }
  return groups;
}

namespace {

std::vector<std::size_t> group_sizes(const Groups& groups) {
  std::vector<std::size_t> sizes(groups.count, 0);
  for (const std::size_t g : groups.of) ++sizes[g];
  return sizes;
}

Values maxima(In x, const Groups& groups) {
  Values best(groups.count);
  std::vector<bool> seen(groups.count, false);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t g = groups.of[i];
    if (!seen[g] || std::isnan(x[i]) || x[i] > best[g]) best[g] = x[i];
    if (std::isnan(best[g])) best[g] = std::nan("");
    seen[g] = true;
  }
  for (const bool s : seen) ROUNDOFF_CHECK(s, "reduce oracle", "maximum of no elements");
  return best;
}

Sums sums_of_squares(In x, const Groups& groups) {
  // Squares of doubles neither overflow nor underflow in long double's range (x86-64).
  Sums s(groups.count, 0.0L);
  for (std::size_t i = 0; i < x.size(); ++i)
    s[groups.of[i]] += static_cast<long double>(x[i]) * x[i];
  return s;
}

}  // namespace

Values reduce(Reduce f, In x, const Shape& shape, std::span<const std::int64_t> axes) {
  check_size("reduce oracle", "x", x, shape.numel());
  const Groups groups = reduction_groups(shape, axes);
  if (f == Reduce::max) return maxima(x, groups);
  Sums y(groups.count, 0.0L);
  if (f == Reduce::norm) {
    y = sums_of_squares(x, groups);
    for (long double& v : y) v = std::sqrt(v);
    return rounded(y);
  }
  for (std::size_t i = 0; i < x.size(); ++i) y[groups.of[i]] += x[i];
  if (f == Reduce::mean) {
    const auto sizes = group_sizes(groups);
    for (std::size_t g = 0; g < y.size(); ++g) y[g] /= static_cast<long double>(sizes[g]);
  }
  return rounded(y);
}

Values reduce_backward(Reduce f, In x, const Shape& shape, std::span<const std::int64_t> axes,
                       In dy, Ties ties) {
  check_size("reduce oracle", "x", x, shape.numel());
  const Groups groups = reduction_groups(shape, axes);
  check_size("reduce oracle", "dy", dy, static_cast<std::int64_t>(groups.count));
  Sums dx = zeros(shape.numel());
  switch (f) {
    case Reduce::sum:
    case Reduce::mean: {
      const auto sizes = group_sizes(groups);
      for (std::size_t i = 0; i < dx.size(); ++i) {
        const std::size_t g = groups.of[i];
        dx[i] = f == Reduce::sum ? static_cast<long double>(dy[g])
                                 : dy[g] / static_cast<long double>(sizes[g]);
      }
      break;
    }
    case Reduce::max: {
      const Values best = maxima(x, groups);
      const auto attained = [&](std::size_t i) {
        const double m = best[groups.of[i]];
        return x[i] == m || (std::isnan(m) && std::isnan(x[i]));
      };
      std::vector<std::size_t> winners(groups.count, 0);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (attained(i)) ++winners[groups.of[i]];
      std::vector<bool> given(groups.count, false);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t g = groups.of[i];
        if (!attained(i) || (ties == Ties::first && given[g])) continue;
        given[g] = true;
        dx[i] = dy[g] / static_cast<long double>(ties == Ties::share ? winners[g] : 1);
      }
      break;
    }
    case Reduce::norm: {
      const Sums squares = sums_of_squares(x, groups);
      for (std::size_t i = 0; i < dx.size(); ++i) {
        const std::size_t g = groups.of[i];
        dx[i] = squares[g] == 0 ? 0 : dy[g] * (x[i] / std::sqrt(squares[g]));
      }
      break;
    }
  }
  return rounded(dx);
}

}  // namespace roundoff::oracle
