#include <cmath>
#include <limits>

#include "kernels/elementwise/chunks.h"
#include "kernels/elementwise/exponential.h"
#include "kernels/loss/arguments.h"
#include "kernels/reduce/sum_tree.h"
#include "kernels/softmax/row.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "cross_entropy";

using Problem = CrossEntropyShape;

std::int64_t label_at(const ConstView& target, std::int64_t row) {
  switch (target.dtype) {
    case DType::i64:
      return target.as<std::int64_t>()[row];
    case DType::i32:
      return target.as<std::int32_t>()[row];
    default:
      return target.as<std::uint8_t>()[row];
  }
}

// What only a look at the data shows.
void check_data(const CrossEntropyParams& params, const Problem& p, const ConstView& target,
                const ConstView& weight) {
  if (weight.present)
    for (std::int64_t c = 0; c < p.classes; ++c) {
      double value = 0;
      widen(weight, c, 1, &value);
      ROUNDOFF_CHECK(std::isfinite(value) && value >= 0, kName, "weight of class ", c, " is ",
                     value, ", expected a finite value >= 0");
    }
  if (!p.soft)
    for (std::int64_t i = 0; i < p.rows; ++i) {
      const std::int64_t t = label_at(target, i);
      ROUNDOFF_CHECK(t == params.ignore_index || (t >= 0 && t < p.classes), kName, "row ", i,
                     " has label ", t, ", expected 0 to ", p.classes - 1, " or ignore_index ",
                     params.ignore_index);
    }
}

// Class weights as T, 1 where there are none.
template <class T>
const T* load_weights(const ConstView& weight, std::int64_t offset, std::int64_t n, T* buffer) {
  if (weight.present) return detail::load(weight, offset, n, buffer);
  std::fill_n(buffer, n, T(1));
  return buffer;
}
template <class T>
T weight_of(const ConstView& weight, std::int64_t c) {
  T buffer;
  return *load_weights(weight, c, 1, &buffer);
}

template <class T>
struct RowStats {
  T max;
  T sum;
};

template <class T>
RowStats<T> row_stats_of(const ConstView& logits, std::int64_t at, std::int64_t n) {
  const T max = detail::row_maximum<T>(logits, at, n);
  const T sum =
      detail::sum_contiguous<T>(n, [&](std::int64_t i, std::int64_t m, T* buffer) -> const T* {
        const T* x = detail::load(logits, at + i, m, buffer);
        for (std::int64_t j = 0; j < m; ++j) buffer[j] = detail::exponential(x[j] - max);
        return buffer;
      });
  return {max, sum};
}

// sum_c q_c w_c (log s - (x_c - max)); q(i, m, buffer) gives the q_c as T.
template <class T, class Load>
T expected_loss(const ConstView& logits, const ConstView& weight, std::int64_t at, std::int64_t n,
                const RowStats<T>& row, Load q) {
  const T log_sum = std::log(row.sum);
  T q_buffer[detail::kLeaf];
  T x_buffer[detail::kLeaf];
  return detail::sum_contiguous<T>(n, [&](std::int64_t i, std::int64_t m, T* buffer) -> const T* {
    const T* x = detail::load(logits, at + i, m, x_buffer);
    const T* qs = q(i, m, q_buffer);
    const T* w = load_weights(weight, i, m, buffer);
    for (std::int64_t j = 0; j < m; ++j) {
      const T factor = w[j] * qs[j];
      // A class of probability 0 counts as 0 even where log p is -inf.
      buffer[j] = factor == T(0) ? T(0) : factor * (log_sum - (x[j] - row.max));
    }
    return buffer;
  });
}

// Smoothed probabilities of a row: (1 - e) q + e / C.
template <class T>
struct SoftTarget {
  const ConstView& target;
  std::int64_t at;
  T keep;     // 1 - e
  T uniform;  // e / C
  const T* operator()(std::int64_t i, std::int64_t m, T* buffer) const {
    const T* q = detail::load(target, at + i, m, buffer);
    for (std::int64_t j = 0; j < m; ++j) buffer[j] = keep * q[j] + uniform;
    return buffer;
  }
};

void put(double value, const Out& out, std::int64_t at) {
  if (out.wanted) narrow(&value, 1, out, at);
}

template <class T>
T uniform_share(const CrossEntropyParams& params, const Problem& p) {
  return p.classes == 0 ? T(0)
                        : static_cast<T>(params.label_smoothing / static_cast<double>(p.classes));
}

template <class T>
void forward(const CrossEntropyParams& params, const Problem& p, const ConstView& logits,
             const ConstView& target, const ConstView& weight, const Out& loss, const Out& valid,
             const Out& stats) {
  const T keep = static_cast<T>(1 - params.label_smoothing);
  const T uniform = uniform_share<T>(params, p);
  double total = 0;
  double divisor = 0;
  for (std::int64_t i = 0; i < p.rows; ++i) {
    const std::int64_t at = i * p.classes;
    const std::int64_t t = p.soft ? 0 : label_at(target, i);
    RowStats<T> row{T(0), T(1)};
    T value = T(0);
    if (p.soft || t != params.ignore_index) {
      row = row_stats_of<T>(logits, at, p.classes);
      if (p.soft) {
        value = expected_loss(logits, weight, at, p.classes, row,
                              SoftTarget<T>{target, at, keep, uniform});
        divisor += 1;
      } else {
        const T w = weight_of<T>(weight, t);
        T x;
        const T shifted = *detail::load(logits, at + t, 1, &x) - row.max;
        const T factor = keep * w;
        if (factor != T(0)) value = factor * (std::log(row.sum) - shifted);
        if (uniform != T(0))
          value += uniform * expected_loss(logits, weight, at, p.classes, row,
                                           [](std::int64_t, std::int64_t m, T* buffer) {
                                             std::fill_n(buffer, m, T(1));
                                             return static_cast<const T*>(buffer);
                                           });
        divisor += static_cast<double>(w);
      }
    }
    if (stats.wanted) {
      const T pair[2] = {row.max, row.sum};
      narrow(pair, 2, stats, 2 * i);
    }
    if (params.reduction == Reduction::none)
      put(static_cast<double>(value), loss, i);
    else
      total += static_cast<double>(value);
  }
  if (params.reduction == Reduction::sum) put(total, loss, 0);
  if (params.reduction == Reduction::mean) put(divisor == 0 ? 0 : total / divisor, loss, 0);
  put(divisor, valid, 0);
}

template <class T>
void backward(const CrossEntropyParams& params, const Problem& p, const ConstView& logits,
              const ConstView& target, const ConstView& weight, const ConstView& valid,
              const ConstView& stats, const ConstView& dloss, const Out& dlogits) {
  using detail::kChunk;
  const T keep = static_cast<T>(1 - params.label_smoothing);
  const T uniform = uniform_share<T>(params, p);
  T seed = T(0);
  bool none_valid = false;
  if (params.reduction != Reduction::none) widen(dloss, 0, 1, &seed);
  if (params.reduction == Reduction::mean) {
    T divisor;
    widen(valid, 0, 1, &divisor);
    none_valid = divisor == T(0);
    seed /= divisor;
  }
  T weight_sum = T(0);
  if (!p.soft && uniform != T(0))
    weight_sum = detail::sum_contiguous<T>(
        p.classes, [&](std::int64_t i, std::int64_t m, T* buffer) -> const T* {
          return load_weights(weight, i, m, buffer);
        });
  T x_buffer[kChunk];
  T w_buffer[kChunk];
  T q_buffer[kChunk];
  T out[kChunk];
  for (std::int64_t row = 0; row < p.rows; ++row) {
    const std::int64_t at = row * p.classes;
    const std::int64_t t = p.soft ? -1 : label_at(target, row);
    const bool counts = !none_valid && (p.soft || t != params.ignore_index);
    if (params.reduction == Reduction::none) widen(dloss, row, 1, &seed);
    T pair[2];
    widen(stats, 2 * row, 2, pair);
    const SoftTarget<T> soft{target, at, keep, uniform};
    T mass = T(0);  // what the softmax is multiplied by: sum_c w_c q_c
    if (counts && p.soft)
      mass = detail::sum_contiguous<T>(p.classes,
                                       [&](std::int64_t i, std::int64_t m, T* buffer) -> const T* {
                                         const T* q = soft(i, m, buffer);
                                         const T* w = load_weights(weight, i, m, w_buffer);
                                         for (std::int64_t j = 0; j < m; ++j)
                                           buffer[j] = q[j] * w[j];
                                         return buffer;
                                       });
    T on_target = T(0);
    if (counts && !p.soft) {
      on_target = keep * weight_of<T>(weight, t);
      mass = on_target + uniform * weight_sum;
    }
    for (std::int64_t i = 0; i < p.classes; i += kChunk) {
      const std::int64_t m = std::min(kChunk, p.classes - i);
      if (!counts) {
        std::fill_n(out, m, T(0));
      } else {
        const T* x = detail::load(logits, at + i, m, x_buffer);
        for (std::int64_t j = 0; j < m; ++j)
          out[j] = mass * (detail::exponential(x[j] - pair[0]) / pair[1]);
        if (p.soft) {
          const T* q = soft(i, m, q_buffer);
          const T* w = load_weights(weight, i, m, w_buffer);
          for (std::int64_t j = 0; j < m; ++j) out[j] -= w[j] * q[j];
        } else {
          if (uniform != T(0)) {
            const T* w = load_weights(weight, i, m, w_buffer);
            for (std::int64_t j = 0; j < m; ++j) out[j] -= uniform * w[j];
          }
          if (t >= i && t < i + m) out[t - i] -= on_target;
        }
        for (std::int64_t j = 0; j < m; ++j) out[j] *= seed;
      }
      narrow(out, m, dlogits, at + i);
    }
  }
}

}  // namespace

void cross_entropy_forward(Ref, const CrossEntropyParams& params, const ConstView& logits,
                           const ConstView& target, const ConstView& weight, const Out& loss,
                           const Out& valid, const Out& row_stats) {
  const Problem p =
      check_cross_entropy_forward(params, logits, target, weight, loss, valid, row_stats);
  check_data(params, p, target, weight);
  const DType stats = row_stats_dtype(params.accumulator, logits.dtype);
  detail::with_arithmetic(stats == DType::fp64, [&]<class T>(T) {
    forward<T>(params, p, logits, target, weight, loss, valid, row_stats);
  });
}

void cross_entropy_backward(Ref, const CrossEntropyParams& params, const ConstView& logits,
                            const ConstView& target, const ConstView& weight,
                            const ConstView& valid, const ConstView& row_stats,
                            const ConstView& dloss, const Out& dlogits) {
  if (!dlogits.wanted) return;
  const Problem p = check_cross_entropy_backward(params, logits, target, weight, valid, row_stats,
                                                 dloss, dlogits);
  check_data(params, p, target, weight);
  const DType stats = row_stats_dtype(params.accumulator, logits.dtype);
  detail::with_arithmetic(stats == DType::fp64, [&]<class T>(T) {
    backward<T>(params, p, logits, target, weight, valid, row_stats, dloss, dlogits);
  });
}

void cross_entropy_with_gradient(Ref ref, const CrossEntropyParams& params, const ConstView& logits,
                                 const ConstView& target, const ConstView& weight,
                                 const ConstView& dloss, const Out& loss, const Out& valid,
                                 const Out& dlogits, Scratch& scratch) {
  const Problem p = check_cross_entropy_with_gradient(params, logits, target, weight, dloss, loss,
                                                      valid, dlogits);
  const Scratch::Frame frame(scratch);
  detail::with_arithmetic(
      row_stats_dtype(params.accumulator, logits.dtype) == DType::fp64, [&]<class T>(T) {
        const View stats{scratch.get<T>(2 * p.rows), dtype_of<T>, Shape{p.rows, 2}};
        const View divisor{scratch.get<double>(1), DType::fp64, Shape{}};
        cross_entropy_forward(ref, params, logits, target, weight, loss, divisor, stats);
        cross_entropy_backward(ref, params, logits, target, weight, divisor, stats, dloss, dlogits);
        if (valid.wanted) narrow(divisor.as<double>(), 1, valid, 0);
      });
}

}  // namespace roundoff
