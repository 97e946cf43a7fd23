// Functions of one element, forward and backward (kernels/elementwise/elementwise.h), on
// kernels/elementwise/map.cuh and math.cuh. Bytes: x and y once; saved, dy and dx once.
#include "kernels/elementwise/chunks.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/map.cuh"
#include "kernels/elementwise/math.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  template <Unary kOp>
  struct Forward {
    template <class A>
    ROUNDOFF_DEVICE A operator()(A x) const {
      if constexpr (kOp == Unary::relu) return x <= A(0) ? A(0) : x;
      if constexpr (kOp == Unary::gelu) return math::weighted(x, math::normal(x).distribution);
      if constexpr (kOp == Unary::gelu_tanh)
        return math::weighted(x, math::sigmoid(math::gelu_tanh_argument(x)));
      if constexpr (kOp == Unary::tanh) return math::tangent(x);
      if constexpr (kOp == Unary::sigmoid) return math::sigmoid(x);
      if constexpr (kOp == Unary::exp) return math::exponential(x);
      if constexpr (kOp == Unary::log) return math::logarithm(x);
    }
  };

  template <Unary kOp>
  struct Backward {
    // saved: x or y, as saves_input() says; g: dy.
    template <class A>
    ROUNDOFF_DEVICE A operator()(A saved, A g) const {
      if constexpr (kOp == Unary::relu) return saved <= A(0) ? A(0) : g;
      if constexpr (kOp == Unary::gelu) {
        const auto normal = math::normal(saved);
        return g * (normal.distribution + math::weighted(saved, normal.density));
      }
      if constexpr (kOp == Unary::gelu_tanh) return g * math::gelu_tanh_slope(saved);
      if constexpr (kOp == Unary::tanh) return g * ((A(1) - saved) * (A(1) + saved));
      if constexpr (kOp == Unary::sigmoid) return g * (saved * (A(1) - saved));
      if constexpr (kOp == Unary::exp) return g * saved;
      if constexpr (kOp == Unary::log) return g / saved;
    }
  };

  // Calls f with the operation as a constant.
  template <class F>
  void with_operation(Unary op, F&& f) {
    switch (op) {
      case Unary::relu:
        return f(std::integral_constant<Unary, Unary::relu>{});
      case Unary::gelu:
        return f(std::integral_constant<Unary, Unary::gelu>{});
      case Unary::gelu_tanh:
        return f(std::integral_constant<Unary, Unary::gelu_tanh>{});
      case Unary::tanh:
        return f(std::integral_constant<Unary, Unary::tanh>{});
      case Unary::sigmoid:
        return f(std::integral_constant<Unary, Unary::sigmoid>{});
      case Unary::exp:
        return f(std::integral_constant<Unary, Unary::exp>{});
      case Unary::log:
        return f(std::integral_constant<Unary, Unary::log>{});
    }
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void unary_forward(T target, const UnaryParams& params, const ConstView& x, const Out& y) {
  if (!y.wanted) return;
  detail::check_unary_forward(params, x, y);
  with_operation(params.op, [&]<Unary kOp>(std::integral_constant<Unary, kOp>) {
    map<Forward<kOp>>(target, "unary_forward", detail::wants_fp64(params.accumulator, x), x, y);
  });
}

template <DeviceTarget T>
void unary_backward(T target, const UnaryParams& params, const ConstView& saved,
                    const ConstView& dy, const Out& dx) {
  if (!dx.wanted) return;
  detail::check_unary_backward(params, saved, dy, dx);
  with_operation(params.op, [&]<Unary kOp>(std::integral_constant<Unary, kOp>) {
    map<Backward<kOp>>(target, "unary_backward", detail::wants_fp64(params.accumulator, saved, dy),
                       saved, dy, dx);
  });
}

template void unary_forward(Target, const UnaryParams&, const ConstView&, const Out&);
template void unary_backward(Target, const UnaryParams&, const ConstView&, const ConstView&,
                             const Out&);

}  // namespace roundoff
