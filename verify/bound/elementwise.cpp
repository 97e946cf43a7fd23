#include "verify/bound/elementwise.h"

#include <numbers>

#include "verify/bound/tracked.h"

namespace roundoff::bound {

using oracle::Binary;
using oracle::In;
using oracle::Unary;

namespace {

using Real = long double;
constexpr Real kSqrt2 = std::numbers::sqrt2_v<Real>;
constexpr Real kInvSqrtPi = std::numbers::inv_sqrtpi_v<Real>;
constexpr Real kCubic = 0.044715L;

Tracked sigmoid(const Tracker& t, const Tracked& x) {
  // One error of the exponential sits in numerator and denominator; counted twice, which is safe.
  const Tracked e = t.exp(-abs(x));
  const Tracked q = t.exact(1) / (t.exact(1) + e);
  return x.value >= 0 ? q : e * q;
}

Tracked normal_cdf(const Tracker& t, const Tracked& x) {
  return t.exact(0.5L) * t.erfc(-(x * t.constant(1 / kSqrt2)));
}

Tracked gelu_tanh_argument(const Tracker& t, const Tracked& x) {
  return t.constant(kSqrt2 * kInvSqrtPi) * (x + t.constant(kCubic) * (x * x * x));
}

Tracked forward(const Tracker& t, Unary f, const Tracked& x) {
  switch (f) {
    case Unary::relu:
      return x.value > 0 ? x : t.exact(0);
    case Unary::gelu:
      return x * normal_cdf(t, x);
    case Unary::gelu_tanh:
      return t.exact(0.5L) * x * (t.exact(1) + t.tanh(gelu_tanh_argument(t, x)));
    case Unary::tanh:
      return t.tanh(x);
    case Unary::sigmoid:
      return sigmoid(t, x);
    case Unary::exp:
      return t.exp(x);
    case Unary::log:
      return t.log(x);
  }
  fail("unary bound", "unknown function");
}

// The derivative, from x or from the saved y.
Tracked derivative(const Tracker& t, Unary f, const Tracked& x, const Tracked& y) {
  const Tracked one = t.exact(1);
  switch (f) {
    case Unary::relu:
      return x.value > 0 ? one : t.exact(0);
    case Unary::gelu: {
      const Tracked density = t.constant(kInvSqrtPi / kSqrt2) * t.exp(-(t.exact(0.5L) * x * x));
      return normal_cdf(t, x) + x * density;
    }
    case Unary::gelu_tanh: {
      const Tracked th = t.tanh(gelu_tanh_argument(t, x));
      const Tracked inner =
          t.constant(kSqrt2 * kInvSqrtPi) * (one + t.constant(3 * kCubic) * (x * x));
      return t.exact(0.5L) * (one + th) + t.exact(0.5L) * x * (one - th * th) * inner;
    }
    case Unary::tanh:
      return one - y * y;
    case Unary::sigmoid:
      return y * (one - y);
    case Unary::exp:
      return y;
    case Unary::log:
      return one / x;
  }
  fail("unary bound", "unknown function");
}

// Rounds to a storage format on the way, as a saved tensor is.
Tracked stored(const Tracked& x, const std::optional<Format>& format) {
  if (!format) return x;
  Tracked y = x;
  y.error = rounded_tolerance(x.value, x.error, *format);
  if (std::abs(x.value) + y.error > format->max_finite()) y.error = INFINITY;
  return y;
}

}  // namespace

Bound unary(Unary f, In x, const Arithmetic& a) {
  const Tracker t(a);
  std::vector<Tracked> y;
  for (const double v : x) y.push_back(forward(t, f, t.exact(v)));
  return bound_of(oracle::unary(f, x), y, a,
                  f == Unary::relu ? BoundKind::proven : BoundKind::derived);
}

Bound unary_backward(Unary f, In x, In dy, const Arithmetic& a, std::optional<Format> saved) {
  const Tracker t(a);
  std::vector<Tracked> dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Tracked v = t.exact(x[i]);
    const Tracked y = stored(forward(t, f, v), saved);
    dx.push_back(t.exact(dy[i]) * derivative(t, f, v, y));
  }
  return bound_of(oracle::unary_backward(f, x, dy), dx, a,
                  f == Unary::relu ? BoundKind::proven : BoundKind::derived);
}

Bound binary(Binary f, In a, const Shape& a_shape, In b, const Shape& b_shape,
             const Arithmetic& arithmetic) {
  const Tracker t(arithmetic);
  const Shape shape = oracle::broadcast(a_shape, b_shape);
  const auto ia = oracle::broadcast_source(a_shape, shape);
  const auto ib = oracle::broadcast_source(b_shape, shape);
  std::vector<Tracked> y;
  for (std::size_t i = 0; i < ia.size(); ++i) {
    const Tracked u = t.exact(a[ia[i]]);
    const Tracked v = t.exact(b[ib[i]]);
    y.push_back(f == Binary::add   ? u + v
                : f == Binary::sub ? u - v
                : f == Binary::mul ? u * v
                                   : u / v);
  }
  return bound_of(oracle::binary(f, a, a_shape, b, b_shape), y, arithmetic, BoundKind::proven);
}

BinaryGradients binary_backward(Binary f, In a, const Shape& a_shape, In b, const Shape& b_shape,
                                In dy, const Arithmetic& arithmetic) {
  const Tracker t(arithmetic);
  const Shape shape = oracle::broadcast(a_shape, b_shape);
  const auto ia = oracle::broadcast_source(a_shape, shape);
  const auto ib = oracle::broadcast_source(b_shape, shape);
  std::vector<std::vector<Tracked>> terms_a(a.size()), terms_b(b.size());
  for (std::size_t i = 0; i < ia.size(); ++i) {
    const Tracked g = t.exact(dy[i]);
    const Tracked u = t.exact(a[ia[i]]);
    const Tracked v = t.exact(b[ib[i]]);
    const bool product = f == Binary::mul;
    const bool quotient = f == Binary::div;
    terms_a[ia[i]].push_back(product ? g * v : quotient ? g / v : g);
    terms_b[ib[i]].push_back(product            ? g * u
                             : quotient         ? -(g * (u / v) / v)
                             : f == Binary::sub ? -g
                                                : g);
  }
  std::vector<Tracked> da, db;
  for (const auto& terms : terms_a) da.push_back(t.sum(terms));
  for (const auto& terms : terms_b) db.push_back(t.sum(terms));
  auto exact = oracle::binary_backward(f, a, a_shape, b, b_shape, dy);
  return {bound_of(std::move(exact.a), da, arithmetic, arithmetic.sum_kind()),
          bound_of(std::move(exact.b), db, arithmetic, arithmetic.sum_kind())};
}

Bound dropout(double p, In x, std::span<const std::uint8_t> kept, const Arithmetic& a) {
  const Tracker t(a);
  std::vector<Tracked> y;
  // The factor: 1 - p rounded, then its reciprocal.
  const Tracked factor = p < 1 ? t.exact(1) / t.constant(1 - static_cast<Real>(p)) : t.exact(0);
  for (std::size_t i = 0; i < x.size(); ++i)
    y.push_back(kept[i] != 0 && p < 1 ? t.exact(x[i]) * factor : t.exact(0));
  return bound_of(oracle::dropout(p, x, kept), y, a, BoundKind::proven);
}

Bound embedding(std::int64_t rows, std::int64_t width, In table,
                std::span<const std::int64_t> index, const Arithmetic& a) {
  const Tracker t(a);
  std::vector<double> reference = oracle::embedding(rows, width, table, index);
  std::vector<Tracked> y;
  for (const double v : reference) y.push_back(t.exact(v));
  return bound_of(std::move(reference), y, a, BoundKind::proven);
}

Bound embedding_backward(std::int64_t rows, std::int64_t width, std::span<const std::int64_t> index,
                         In dy, const Arithmetic& a, std::optional<std::int64_t> padding_index) {
  const Tracker t(a);
  std::vector<double> reference = oracle::embedding_backward(rows, width, index, dy, padding_index);
  std::vector<std::vector<Tracked>> terms(reference.size());
  for (std::size_t i = 0; i < index.size(); ++i)
    for (std::int64_t j = 0; j < width && index[i] != padding_index; ++j)
      terms[oracle::at(index[i] * width + j)].push_back(
          t.exact(dy[i * oracle::at(width) + oracle::at(j)]));
  std::vector<Tracked> dtable;
  for (const auto& row : terms) dtable.push_back(t.sum(row));
  return bound_of(std::move(reference), dtable, a, a.sum_kind());
}

}  // namespace roundoff::bound
