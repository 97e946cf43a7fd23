#include <cmath>
#include <numbers>

#include "kernels/elementwise/chunks.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/exponential.h"

namespace roundoff {

std::string_view name(Unary op) {
  switch (op) {
    case Unary::relu:
      return "relu";
    case Unary::gelu:
    case Unary::gelu_tanh:
      return "gelu";
    case Unary::tanh:
      return "tanh";
    case Unary::sigmoid:
      return "sigmoid";
    case Unary::exp:
      return "exp";
    case Unary::log:
      return "log";
  }
  return "unary";
}

namespace {

using detail::exponential;
using detail::map;
using detail::sigmoid;
using detail::tangent;

// Phi(x), the standard normal distribution function.
template <class T>
T normal_cdf(T x) {
  return T(0.5) * std::erfc(-x * T(1 / std::numbers::sqrt2));
}

// Where the weight has underflowed to 0, x = -inf gives the limit 0 and not inf * 0.
template <class T>
T weighted(T x, T weight) {
  return weight == T(0) ? std::copysign(T(0), x) : x * weight;
}

template <class T>
T gelu_tanh_argument(T x) {
  return T(std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (x + T(0.044715) * x * x * x);
}

template <class T>
void forward(Unary op, const ConstView& x, const Out& y) {
  switch (op) {
    case Unary::relu:
      return map<T>(x, y, [](T v) { return v <= T(0) ? T(0) : v; });
    case Unary::gelu:
      return map<T>(x, y, [](T v) { return weighted(v, normal_cdf(v)); });
    case Unary::gelu_tanh:
      return map<T>(x, y, [](T v) { return weighted(v, sigmoid(T(2) * gelu_tanh_argument(v))); });
    case Unary::tanh:
      return map<T>(x, y, [](T v) { return tangent(v); });
    case Unary::sigmoid:
      return map<T>(x, y, [](T v) { return sigmoid(v); });
    case Unary::exp:
      return map<T>(x, y, [](T v) { return exponential(v); });
    case Unary::log:
      return map<T>(x, y, [](T v) { return std::log(v); });
  }
}

// relu moves 16-bit values or drops them, so it needs no conversion: patterns, as conversions to
// fp32 and back would leave them (a NaN is quiet afterwards).
class Relu16 {
 public:
  explicit Relu16(DType dtype)
      : infinity_(dtype == DType::fp16 ? 0x7C00 : 0x7F80),
        quiet_(dtype == DType::fp16 ? 0x0200 : 0x0040) {}

  void forward(const ConstView& x, const View& y) const {
    const auto* from = x.as<std::uint16_t>();
    auto* to = y.as<std::uint16_t>();
    const std::int64_t n = x.numel();
    for (std::int64_t i = 0; i < n; ++i) to[i] = kept(from[i], from[i]);
  }
  void backward(const ConstView& saved, const ConstView& dy, const View& dx) const {
    const auto* values = saved.as<std::uint16_t>();
    const auto* from = dy.as<std::uint16_t>();
    auto* to = dx.as<std::uint16_t>();
    const std::int64_t n = saved.numel();
    for (std::int64_t i = 0; i < n; ++i) to[i] = kept(values[i], from[i]);
  }

 private:
  bool is_nan(std::uint16_t v) const { return (v & 0x7FFFU) > infinity_; }
  // `from`, or 0 where v <= 0.
  std::uint16_t kept(std::uint16_t v, std::uint16_t from) const {
    const auto quiet = static_cast<std::uint16_t>(from | quiet_);
    const std::uint16_t value = is_nan(from) ? quiet : from;
    return static_cast<std::int16_t>(v) > 0 || is_nan(v) ? value : std::uint16_t{0};
  }

  std::uint16_t infinity_, quiet_;
};

template <class T>
T gelu_slope(T x) {
  const T density =
      T(std::numbers::inv_sqrtpi / std::numbers::sqrt2) * exponential(T(-0.5) * x * x);
  return normal_cdf(x) + weighted(x, density);
}

// s = sigmoid(u): y = x s and y' = s + x s (1 - s) u'.
template <class T>
T gelu_tanh_slope(T x) {
  const T u = T(2) * gelu_tanh_argument(x);
  const T s = sigmoid(u);
  const T du =
      T(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (T(1) + T(3 * 0.044715) * x * x);
  const T product = s * sigmoid(-u);
  return s + (product == T(0) ? T(0) : product * x * du);
}

template <class T>
void backward(Unary op, const ConstView& saved, const ConstView& dy, const Out& dx) {
  switch (op) {
    case Unary::relu:
      return map<T>(saved, dy, dx, [](T y, T g) { return y <= T(0) ? T(0) : g; });
    case Unary::gelu:
      return map<T>(saved, dy, dx, [](T x, T g) { return g * gelu_slope(x); });
    case Unary::gelu_tanh:
      return map<T>(saved, dy, dx, [](T x, T g) { return g * gelu_tanh_slope(x); });
    case Unary::tanh:
      return map<T>(saved, dy, dx, [](T y, T g) { return g * ((T(1) - y) * (T(1) + y)); });
    case Unary::sigmoid:
      return map<T>(saved, dy, dx, [](T y, T g) { return g * (y * (T(1) - y)); });
    case Unary::exp:
      return map<T>(saved, dy, dx, [](T y, T g) { return g * y; });
    case Unary::log:
      return map<T>(saved, dy, dx, [](T x, T g) { return g / x; });
  }
}

}  // namespace

void detail::check_unary_forward(const UnaryParams& params, const ConstView& x, const Out& y) {
  check_floating(x, name(params.op), "x");
  check_out(y, x.shape, name(params.op), "y");
}

void detail::check_unary_backward(const UnaryParams& params, const ConstView& saved,
                                  const ConstView& dy, const Out& dx) {
  check_floating(saved, name(params.op), saves_input(params.op) ? "x" : "y");
  check_floating(dy, name(params.op), "dy");
  ROUNDOFF_CHECK(dy.shape == saved.shape, name(params.op), "dy has shape ", dy.shape, ", expected ",
                 saved.shape);
  check_out(dx, saved.shape, name(params.op), "dx");
}

void unary_forward(Ref, const UnaryParams& params, const ConstView& x, const Out& y) {
  if (!y.wanted) return;
  detail::check_unary_forward(params, x, y);
  if (params.op == Unary::relu && is_16bit(x.dtype) && y.view.dtype == x.dtype)
    return Relu16(x.dtype).forward(x, y.view);
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, x),
                          [&]<class T>(T) { forward<T>(params.op, x, y); });
}

void unary_backward(Ref, const UnaryParams& params, const ConstView& saved, const ConstView& dy,
                    const Out& dx) {
  if (!dx.wanted) return;
  detail::check_unary_backward(params, saved, dy, dx);
  if (params.op == Unary::relu && is_16bit(dx.view.dtype) && saved.dtype == dx.view.dtype &&
      dy.dtype == dx.view.dtype)
    return Relu16(dx.view.dtype).backward(saved, dy, dx.view);
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, saved, dy),
                          [&]<class T>(T) { backward<T>(params.op, saved, dy, dx); });
}

}  // namespace roundoff
