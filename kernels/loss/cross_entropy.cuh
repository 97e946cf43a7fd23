// What cross-entropy's kernels share: the problem as they see it, and what is left of a row when
// its maximum and its sum of exponentials are known.
#pragma once

#include <cmath>

#include "kernels/elementwise/chunks.h"
#include "kernels/loss/arguments.h"
#include "kernels/loss/terms.cuh"
#include "kernels/reduce/row.cuh"
#include "kernels/simt/report.cuh"
#include "kernels/softmax/online.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace cross_entropy {

  // The problem as kernels see it.
  struct Problem {
    std::int64_t rows = 0;
    std::int64_t classes = 0;
    AnyOperand target;  // labels, or probabilities
    AnyOperand weight;
    std::int64_t ignore_index = 0;
    double keep = 1;     // 1 - e
    double uniform = 0;  // e / C
    bool soft = false;   // the targets are probabilities
    Reduction reduction = Reduction::mean;
    DeviceErrors* errors = nullptr;

    // The label of a row; -1 for one that does not count. `reporter`: says so of a bad label.
    ROUNDOFF_DEVICE std::int64_t label(std::int64_t row, bool reporter) const {
      if (soft) return 0;
      std::int64_t t = 0;
      if (target.dtype == DType::i64)
        t = static_cast<const std::int64_t*>(target.data)[row];
      else if (target.dtype == DType::i32)
        t = static_cast<const std::int32_t*>(target.data)[row];
      else
        t = static_cast<const std::uint8_t*>(target.data)[row];
      if (t == ignore_index) return -1;
      if (t >= 0 && t < classes) return t;
      if (reporter)
        report(errors, DeviceError::cross_entropy_label, row, t,
               static_cast<std::int32_t>(classes));
      return -1;
    }
    template <class A>
    ROUNDOFF_DEVICE A weight_of(std::int64_t c) const {
      return weight.get_or(c, A(1));
    }
    // (1 - e) q + e / C of probabilities that begin at `at`.
    template <class A>
    ROUNDOFF_DEVICE A share(std::int64_t at, std::int64_t c) const {
      return static_cast<A>(keep) * target.get<A>(at + c) + static_cast<A>(uniform);
    }
  };

  inline Problem problem_of(Target device, const CrossEntropyShape& shape,
                            const CrossEntropyParams& params, const ConstView& target,
                            const ConstView& weight) {
    Problem p;
    p.rows = shape.rows;
    p.classes = shape.classes;
    p.soft = shape.soft;
    p.target = AnyOperand(target);
    p.weight = AnyOperand(weight);
    p.ignore_index = params.ignore_index;
    p.keep = 1 - params.label_smoothing;
    p.uniform = p.classes == 0 ? 0 : params.label_smoothing / static_cast<double>(p.classes);
    p.reduction = params.reduction;
    p.errors = device.errors;
    return p;
  }

  struct ForwardOut {
    AnyResult loss;  // of rows, for Reduction::none
    AnyResult stats;
    LossTerm* terms;
  };

  // What is left of a row when its maximum and sum are known. x_label: its logit at the label;
  // walk(f) calls f(x, class) for this thread's logits; sum(v) adds over the row's threads.
  template <class A, class Walk, class SumUp>
  ROUNDOFF_DEVICE void finish_row(const Problem& p, const ForwardOut& out, std::int64_t row,
                                  std::int64_t label, bool first, A max, A row_sum, A x_label,
                                  Walk walk, SumUp sum) {
    const bool counts = label >= 0;
    const A log_sum = logarithm(row_sum);
    A value = A(0);
    A divisor = A(1);
    if (!p.soft) {
      const A w = counts ? p.weight_of<A>(label) : A(0);
      const A factor = static_cast<A>(p.keep) * w;
      if (factor != A(0)) value = factor * (log_sum - (x_label - max));
      divisor = w;
    }
    const auto uniform = static_cast<A>(p.uniform);
    if (p.soft || uniform != A(0)) {
      A terms = A(0);
      walk([&](A x, std::int64_t c) {
        const A factor = p.weight_of<A>(c) * (p.soft ? p.share<A>(row * p.classes, c) : A(1));
        // A class of probability 0 counts as 0 even where log p is -inf.
        if (factor != A(0)) terms += factor * (log_sum - (x - max));
      });
      terms = sum(terms);
      value = p.soft ? terms : value + uniform * terms;
    }
    if (!first || row >= p.rows) return;
    if (!counts) {
      value = A(0);
      divisor = A(0);
    }
    if (out.stats.wanted()) {
      out.stats.put(2 * row, counts ? max : A(0));
      out.stats.put(2 * row + 1, counts ? row_sum : A(1));
    }
    if (p.reduction == Reduction::none && out.loss.wanted())
      out.loss.put(row, static_cast<double>(value));
    out.terms[row] = {{static_cast<double>(value), static_cast<double>(divisor)}};
  }

  // The sum of a row whose exponentials were summed without -inf rows in mind.
  template <class A>
  ROUNDOFF_DEVICE A checked_sum(A sum, A max, std::int64_t classes) {
    if (classes == 0) return A(0);
    return max == -kInfinity<A> ? max - max : sum;
  }

  // Class weights that are no weights are reported.
  template <class = void>
  __global__ void __launch_bounds__(256)
      check_weights_kernel(AnyOperand weight, std::int64_t classes, DeviceErrors* errors) {
    const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
    if (c >= classes) return;
    const auto w = weight.get<double>(c);
    if (!(w >= 0 && w < kInfinity<double>))
      report(errors, DeviceError::cross_entropy_weight, c, std::bit_cast<std::int64_t>(w), 0);
  }

  inline void check_weights(Target device, const Problem& p) {
    if (p.weight.data == nullptr || p.classes == 0 || device.errors == nullptr) return;
    launch(device,
           {.name = "cross_entropy_weights",
            .grid = {reduce::grid_of("cross_entropy", (p.classes + 255) / 256)},
            .block = {256}},
           check_weights_kernel<>, p.weight, p.classes, device.errors);
  }

  }  // namespace cross_entropy
}  // namespace

}  // namespace roundoff
