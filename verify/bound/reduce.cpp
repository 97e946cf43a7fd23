#include "verify/bound/reduce.h"

#include <cmath>

#include "verify/bound/tracked.h"

namespace roundoff::bound {

using oracle::In;
using oracle::Pool2dParams;
using oracle::Reduce;
using oracle::Values;

namespace {

Values absolute(In x) {
  Values m(x.begin(), x.end());
  for (double& v : m) v = std::abs(v);
  return m;
}

// |error| = factor(terms) * magnitude.
Bound scaled(std::vector<double> reference, std::span<const double> error, const Arithmetic& a,
             BoundKind kind) {
  Bound bound{std::move(reference), std::vector<double>(error.size()), kind, a.lambda};
  for (std::size_t i = 0; i < error.size(); ++i)
    if (std::isfinite(bound.reference[i]))
      bound.tolerance[i] = rounded_tolerance(bound.reference[i], error[i], a.output);
  return bound;
}

// The relative error of a sum of n terms with `extra` roundings after it; one term needs none.
double sum_error(const Arithmetic& a, std::int64_t n, double extra) {
  if (n < 2 && extra == 0) return 0;
  return n < 2 ? gamma(extra, a.u()) : sum_factor(a, n, extra);
}

std::vector<std::int64_t> group_sizes(const oracle::Groups& groups) {
  std::vector<std::int64_t> sizes(groups.count, 0);
  for (const std::size_t g : groups.of) ++sizes[g];
  return sizes;
}

}  // namespace

Bound reduce(Reduce f, In x, const Shape& shape, std::span<const std::int64_t> axes,
             const Arithmetic& a) {
  if (a.tensor_core && (f == Reduce::sum || f == Reduce::mean))
    fail("reduce bound", "a sum on tensor cores is bounded as a product with 1");
  const auto sizes = group_sizes(oracle::reduction_groups(shape, axes));
  Values reference = oracle::reduce(f, x, shape, axes);
  Values error(reference.size(), 0.0);
  if (f == Reduce::sum || f == Reduce::mean) {
    const Values magnitude = oracle::reduce(f, absolute(x), shape, axes);
    for (std::size_t g = 0; g < error.size(); ++g) {
      const double extra = f == Reduce::mean && sizes[g] != 1 ? 1 : 0;
      error[g] = sum_error(a, sizes[g], extra) * magnitude[g] + extra * a.underflow();
      // A mean that fits has to come out whatever its sum is, in fp32 and fp64; the narrow
      // accumulators have no wider type to fall back to.
      const bool narrow = a.accumulator.max_finite() < kFp32.max_finite();
      const double terms = f == Reduce::mean ? static_cast<double>(sizes[g]) : 1;
      // Terms of a wider format are rounded to it, the first one too.
      if (narrow) error[g] += a.u() * magnitude[g] + static_cast<double>(sizes[g]) * a.underflow();
      if (f == Reduce::sum || narrow) error[g] = unless_overflow(error[g], terms * magnitude[g], a);
    }
  } else if (f == Reduce::norm) {
    for (std::size_t g = 0; g < error.size(); ++g)
      error[g] = reference[g] * sum_factor(a, sizes[g], 3) / 2;
  }
  return scaled(std::move(reference), error, a,
                f == Reduce::max ? BoundKind::proven : a.sum_kind());
}

Bound reduce_backward(Reduce f, In x, const Shape& shape, std::span<const std::int64_t> axes, In dy,
                      const Arithmetic& a, oracle::Ties ties, std::optional<Format> saved) {
  const Tracker t(a);
  const auto groups = oracle::reduction_groups(shape, axes);
  const auto sizes = group_sizes(groups);
  Values reference = oracle::reduce_backward(f, x, shape, axes, dy, ties);
  const Values forward =
      f == Reduce::norm ? oracle::reduce(f, x, shape, axes) : Values(groups.count);
  std::vector<Tracked> dx(reference.size());
  for (std::size_t i = 0; i < dx.size(); ++i) {
    const std::size_t g = groups.of[i];
    if (f == Reduce::sum) {
      dx[i] = t.exact(dy[g]);
    } else if (f == Reduce::norm) {
      const long double size = forward[g];
      const long double relative = sum_factor(a, sizes[g], 3) / 2;
      long double error = size * relative;
      if (saved) error = rounded_tolerance(size, error, *saved);
      dx[i] = size == 0 ? t.exact(0) : t.exact(dy[g]) * (t.exact(x[i]) / t.with_error(size, error));
    } else {
      // One product or quotient beyond a factor that was rounded itself; a whole number is exact.
      const long double whole = reference[i] == 0 ? 0 : std::round(dy[g] / reference[i]);
      dx[i] = whole == 0   ? t.exact(0)
              : whole == 1 ? t.exact(dy[g])
                           : t.exact(dy[g]) * (t.exact(1) / t.exact(whole));
    }
  }
  return bound_of(std::move(reference), dx, a, BoundKind::derived);
}

namespace {

// How many windows each input lies in.
std::vector<std::int64_t> windows_over(const Pool2dParams& p) {
  // The gradient of all-ones windows without division counts them.
  Pool2dParams count = p;
  count.count_include_pad = true;
  const auto area = static_cast<double>(p.kernel_h * p.kernel_w);
  const Values hits = oracle::avg_pool2d_backward(count, Values(oracle::at(p.y_size()), area));
  std::vector<std::int64_t> windows;
  for (const double h : hits) windows.push_back(std::llround(h));
  return windows;
}

}  // namespace

Bound max_pool2d(const Pool2dParams& p, In x, const Arithmetic& a) {
  Values y = oracle::max_pool2d(p, x);
  const Values exact(y.size(), 0.0);
  return scaled(std::move(y), exact, a, BoundKind::proven);
}

Bound max_pool2d_backward(const Pool2dParams& p, In x, In dy, const Arithmetic& a) {
  Values dx = oracle::max_pool2d_backward(p, x, dy);
  Values error = oracle::max_pool2d_backward(p, x, absolute(dy));
  const auto windows = windows_over(p);
  for (std::size_t i = 0; i < error.size(); ++i)
    error[i] = unless_overflow(error[i] * sum_error(a, windows[i], 0), error[i], a);
  return scaled(std::move(dx), error, a, a.sum_kind());
}

Bound avg_pool2d(const Pool2dParams& p, In x, const Arithmetic& a) {
  Values y = oracle::avg_pool2d(p, x);
  Values error = oracle::avg_pool2d(p, absolute(x));
  const std::int64_t area = p.kernel_h * p.kernel_w;
  for (double& e : error)
    if (e != 0)
      e = unless_overflow(e * sum_error(a, area, 2) + a.underflow(), static_cast<double>(area) * e,
                          a);
  return scaled(std::move(y), error, a, a.sum_kind());
}

Bound avg_pool2d_backward(const Pool2dParams& p, In dy, const Arithmetic& a) {
  Values dx = oracle::avg_pool2d_backward(p, dy);
  Values error = oracle::avg_pool2d_backward(p, absolute(dy));
  const auto windows = windows_over(p);
  for (std::size_t i = 0; i < error.size(); ++i)
    if (error[i] != 0)
      error[i] = unless_overflow(
          error[i] * sum_error(a, windows[i], 2) + static_cast<double>(windows[i]) * a.underflow(),
          error[i], a);
  return scaled(std::move(dx), error, a, a.sum_kind());
}

}  // namespace roundoff::bound
