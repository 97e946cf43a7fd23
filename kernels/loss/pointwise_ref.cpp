#include "kernels/loss/pointwise.h"

#include <cmath>

#include "kernels/elementwise/chunks.h"
#include "kernels/elementwise/exponential.h"
#include "kernels/reduce/sum_tree.h"

namespace roundoff {

std::string_view name(PointwiseLoss loss) {
  return loss == PointwiseLoss::mse ? "mse" : "bce_with_logits";
}

namespace {

using detail::kChunk;
using detail::load;

template <class T>
struct Mse {
  // In double: the mean of squares may fit where a square of fp32 numbers does not.
  static double loss(T x, T t) {
    const auto difference = static_cast<double>(x - t);
    return difference * difference;
  }
  static T dx(T x, T t) { return T(2) * (x - t); }
  static T dtarget(T x, T t) { return T(-2) * (x - t); }
};

// factor * x, where a factor of 0 counts as 0 even times infinity.
template <class T>
T unless_zero(T factor, T x) {
  return factor == T(0) ? T(0) : factor * x;
}

template <class T>
struct BceWithLogits {
  static double loss(T x, T t) {
    const T linear = x >= T(0) ? unless_zero(T(1) - t, x) : unless_zero(-t, x);
    return static_cast<double>(linear + detail::softplus_tail(x));
  }
  // sigmoid(x) - t; for x >= 0 as (1 - t) - sigmoid(-x), which keeps the digits where t is 1.
  static T dx(T x, T t) {
    const T small = detail::sigmoid(-std::abs(x));
    return x >= T(0) ? (T(1) - t) - small : small - t;
  }
  static T dtarget(T x, T) { return -x; }
};

template <class T, template <class> class Loss>
void forward(const PointwiseLossParams& params, const ConstView& x, const ConstView& target,
             const Out& out) {
  if (params.reduction == Reduction::none)
    return detail::map<T>(x, target, out,
                          [](T a, T b) { return static_cast<T>(Loss<T>::loss(a, b)); });
  const std::int64_t n = x.numel();
  T x_buffer[detail::kLeaf];
  T t_buffer[detail::kLeaf];
  double total = detail::sum_contiguous<double>(
      n, [&](std::int64_t i, std::int64_t m, double* buffer) -> const double* {
        const T* xs = load(x, i, m, x_buffer);
        const T* ts = load(target, i, m, t_buffer);
        for (std::int64_t j = 0; j < m; ++j) buffer[j] = Loss<T>::loss(xs[j], ts[j]);
        return buffer;
      });
  if (params.reduction == Reduction::mean && n != 0) total /= static_cast<double>(n);
  narrow(&total, 1, out, 0);
}

// out = dloss * slope(x, t), dloss being one number (already over n) or one for each element.
template <class T, class F>
void gradient(const PointwiseLossParams& params, const ConstView& x, const ConstView& target,
              const ConstView& dloss, const Out& out, F slope) {
  if (!out.wanted) return;
  const std::int64_t n = x.numel();
  T seed = T(0);
  if (params.reduction != Reduction::none) seed = *load(dloss, 0, 1, &seed);
  if (params.reduction == Reduction::mean) seed /= static_cast<T>(n);
  T x_buffer[kChunk];
  T t_buffer[kChunk];
  T seeds[kChunk];
  T result[kChunk];
  std::fill_n(seeds, kChunk, seed);
  for (std::int64_t i = 0; i < n; i += kChunk) {
    const std::int64_t m = std::min(kChunk, n - i);
    const T* xs = load(x, i, m, x_buffer);
    const T* ts = load(target, i, m, t_buffer);
    const T* g = params.reduction == Reduction::none ? load(dloss, i, m, seeds) : seeds;
    for (std::int64_t j = 0; j < m; ++j) result[j] = g[j] * slope(xs[j], ts[j]);
    narrow(result, m, out, i);
  }
}

void check(const PointwiseLossParams& params, const ConstView& x, const ConstView& target) {
  const std::string_view operation = name(params.loss);
  detail::check_floating(x, operation, "x");
  detail::check_floating(target, operation, "target");
  ROUNDOFF_CHECK(x.shape == target.shape, operation, "x has shape ", x.shape, ", target ",
                 target.shape);
}

Shape loss_shape(const PointwiseLossParams& params, const ConstView& x) {
  return params.reduction == Reduction::none ? x.shape : Shape{};
}

}  // namespace

void pointwise_loss_forward(Ref, const PointwiseLossParams& params, const ConstView& x,
                            const ConstView& target, const Out& loss) {
  if (!loss.wanted) return;
  check(params, x, target);
  detail::check_out(loss, loss_shape(params, x), name(params.loss), "loss");
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, x, target), [&]<class T>(T) {
    if (params.loss == PointwiseLoss::mse)
      forward<T, Mse>(params, x, target, loss);
    else
      forward<T, BceWithLogits>(params, x, target, loss);
  });
}

void pointwise_loss_backward(Ref, const PointwiseLossParams& params, const ConstView& x,
                             const ConstView& target, const ConstView& dloss, const Out& dx,
                             const Out& dtarget) {
  check(params, x, target);
  const std::string_view operation = name(params.loss);
  detail::check_floating(dloss, operation, "dloss");
  const Shape expected = loss_shape(params, x);
  ROUNDOFF_CHECK(dloss.shape == expected, operation, "dloss has shape ", dloss.shape, ", expected ",
                 expected);
  detail::check_out(dx, x.shape, operation, "dx");
  detail::check_out(dtarget, x.shape, operation, "dtarget");
  detail::with_arithmetic(
      detail::wants_fp64(params.accumulator, x, target, dloss), [&]<class T>(T) {
        if (params.loss == PointwiseLoss::mse) {
          gradient<T>(params, x, target, dloss, dx, [](T a, T b) { return Mse<T>::dx(a, b); });
          gradient<T>(params, x, target, dloss, dtarget,
                      [](T a, T b) { return Mse<T>::dtarget(a, b); });
        } else {
          gradient<T>(params, x, target, dloss, dx,
                      [](T a, T b) { return BceWithLogits<T>::dx(a, b); });
          gradient<T>(params, x, target, dloss, dtarget,
                      [](T a, T b) { return BceWithLogits<T>::dtarget(a, b); });
        }
      });
}

}  // namespace roundoff
