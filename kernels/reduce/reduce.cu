// Sum, mean, norm and maximum over any axes (kernels/reduce/reduce.h), on
// kernels/reduce/stages.cuh.
//
// sum:  in fp32, or fp64.
// mean: in fp64, which no sum of narrower terms overflows; of fp64 terms the sum, and beside it the
//       sum scaled by a power of two below 1 / n, which is taken where the first one is not finite.
// norm: squares in fp64. Those of fp64 terms may over- or underflow: three sums side by side, of
//       the squares of terms above 2^500 times 2^-600, below 2^-500 times 2^600, and of the others
//       (Blue, "A portable Fortran program to find the Euclidean norm of a vector", TOMS 1978).
// max:  values with their offsets; the first one wins, NaN before all.
// Bytes: x once, y once.
#include <cmath>

#include "kernels/elementwise/chunks.h"
#include "kernels/reduce/reduce.h"
#include "kernels/reduce/stages.cuh"
#include "kernels/simt/any_array.cuh"
#include "kernels/simt/grid.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using reduce::Indexed;
  using reduce::Values;

  struct Itself {
    ROUNDOFF_DEVICE static int identity() { return 0; }
    template <class A>
    ROUNDOFF_DEVICE A operator()(A v, std::int64_t) const {
      return v;
    }
  };
  struct Square {
    ROUNDOFF_DEVICE static double identity() { return 0; }
    ROUNDOFF_DEVICE double operator()(double v, std::int64_t) const { return v * v; }
  };
  struct AndScaled {
    double scale = 1;
    ROUNDOFF_DEVICE static Values<double, 2> identity() { return {{0, 0}}; }
    ROUNDOFF_DEVICE Values<double, 2> operator()(double v, std::int64_t) const {
      return {{v, v * scale}};
    }
  };
  struct SquareByRange {
    ROUNDOFF_DEVICE static Values<double, 3> identity() { return {{0, 0, 0}}; }
    ROUNDOFF_DEVICE Values<double, 3> operator()(double v, std::int64_t) const {
      const double size = fabs(v);
      const double large = v * 0x1p-600;
      const double small = v * 0x1p600;
      if (size > 0x1p500) return {{large * large, 0.0, 0.0}};
      if (size < 0x1p-500) return {{0.0, 0.0, small * small}};
      return {{0.0, v * v, 0.0}};
    }
  };
  template <class A>
  struct WithIndex {
    ROUNDOFF_DEVICE static Indexed<A> identity() {
      return {-static_cast<A>(INFINITY), 0x7FFFFFFFFFFFFFFF};
    }
    ROUNDOFF_DEVICE Indexed<A> operator()(A v, std::int64_t i) const { return {v, i}; }
  };

  using FloatTerms = reduce::ArrayTerms<float, Itself, true, false>;
  using DoubleTerms = reduce::ArrayTerms<double, Itself, true, true>;
  using MeanTerms = reduce::ArrayTerms<double, AndScaled, false, true>;
  using NormTerms = reduce::ArrayTerms<double, Square, true, false>;
  using WideNormTerms = reduce::ArrayTerms<double, SquareByRange, false, true>;
  using MaxTerms = reduce::ArrayTerms<float, WithIndex<float>, true, false>;
  using WideMaxTerms = reduce::ArrayTerms<double, WithIndex<double>, false, true>;

  enum class Result : unsigned char { sum, mean, root };

  struct StoreSum {
    AnyOut y;
    Result result = Result::sum;
    double count = 1;
    double scale = 1;

    ROUNDOFF_DEVICE void operator()(std::int64_t output, float sum) const {
      store_any(y, output, sum);
    }
    ROUNDOFF_DEVICE void operator()(std::int64_t output, double sum) const {
      if (result == Result::mean) sum /= count;
      if (result == Result::root) sum = sqrt(sum);
      store_any(y, output, sum);
    }
    // A mean of fp64 terms.
    ROUNDOFF_DEVICE void operator()(std::int64_t output, Values<double, 2> sums) const {
      double mean = sums.at[0] / count;
      if (!(fabs(mean) <= 0x1.fffffffffffffp1023)) mean = sums.at[1] / (count * scale);
      store_any(y, output, mean);
    }
    // A norm of fp64 terms. What is left out is below 2^-70 of the rest.
    ROUNDOFF_DEVICE void operator()(std::int64_t output, Values<double, 3> sums) const {
      const double large = sums.at[0], middle = sums.at[1], small = sums.at[2];
      double norm = 0;
      if (large != 0.0)  // NaN as well
        norm = sqrt(large + middle * 0x1p-600 * 0x1p-600) * 0x1p600;
      else if (middle != 0.0)
        norm = sqrt(middle + small * 0x1p-600 * 0x1p-600);
      else
        norm = sqrt(small) * 0x1p-600;
      store_any(y, output, norm);
    }
  };

  template <class A>
  struct StoreMax {
    AnyOut y;
    std::int64_t* index = nullptr;
    bool wanted = true;
    ROUNDOFF_DEVICE void operator()(std::int64_t output, Indexed<A> max) const {
      if (wanted) store_any(y, output, max.value);
      if (index != nullptr) index[output] = max.index;
    }
  };

  constexpr unsigned kOrderedThreads = 64;

  // Each addition rounded to fp16, in index order: a thread an output.
  __global__ void __launch_bounds__(kOrderedThreads)
      sum_in_fp16(AnyArray x, StoreSum finish, const __grid_constant__ ReducePlan plan) {
    const std::int64_t output =
        static_cast<std::int64_t>(blockIdx.x) * kOrderedThreads + threadIdx.x;
    if (output >= plan.outputs) return;
    const std::int64_t base = reduce::first_term(plan, output);
    Half sum;
    for (std::int64_t t = 0; t < plan.terms; ++t)
      sum = narrow_value<Half>(widen_value<double>(sum) +
                               load_any<double>(x, base + reduce::term_offset(plan, t)));
    const auto value = widen_value<float>(sum);
    if (finish.result == Result::mean)
      finish(output, static_cast<float>(static_cast<double>(value) / finish.count));
    else
      finish(output, value);
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void reduce_forward(T target, Reduce op, const ReduceParams& params, const ConstView& x,
                    const Out& y, Scratch& scratch) {
  if (!y.wanted) return;
  detail::check_reduce_forward(op, params, x, y);
  const detail::ReduceGeometry g(x.shape, params.axes);
  if (op == Reduce::norm) {
    const StoreSum finish{.y = y, .result = Result::root};
    if (x.dtype == DType::fp64)
      return reduce::run(target, "norm", WideNormTerms{x, {}}, reduce::Sum{}, finish, g, scratch);
    return reduce::run(target, "norm", NormTerms{x, {}}, reduce::Sum{}, finish, g, scratch);
  }
  const bool mean = op == Reduce::mean;
  StoreSum finish{
      .y = y, .result = mean ? Result::mean : Result::sum, .count = static_cast<double>(g.terms)};
  const bool fp64 = detail::wants_fp64(params.accumulator, x);
  if (!fp64 && params.accumulator == Accumulator::fp16) {
    if (g.outputs == 0) return;
    launch(target,
           {.name = "sum_in_fp16",
            .grid = {static_cast<unsigned>((g.outputs + kOrderedThreads - 1) / kOrderedThreads)},
            .block = {kOrderedThreads}},
           sum_in_fp16, AnyArray(x), finish, ReducePlan(g));
    return;
  }
  ROUNDOFF_CHECK(fp64 || params.accumulator == Accumulator::fp32 || !is_16bit(x.dtype), name(op),
                 "accumulator ", name(params.accumulator),
                 " is modelled on cpu only; fp32, fp64 or fp16 expected");
  if (mean && x.dtype == DType::fp64) {
    finish.scale =
        std::ldexp(1.0, -static_cast<int>(std::bit_width(static_cast<std::uint64_t>(g.terms))));
    return reduce::run(target, "mean", MeanTerms{x, {finish.scale}}, reduce::Sum{}, finish, g,
                       scratch);
  }
  if (mean || fp64)
    return reduce::run(target, mean ? "mean" : "sum", DoubleTerms{x, {}}, reduce::Sum{}, finish, g,
                       scratch);
  reduce::run(target, "sum", FloatTerms{x, {}}, reduce::Sum{}, finish, g, scratch);
}

template <DeviceTarget T>
void max_forward(T target, const ReduceParams& params, const ConstView& x, const Out& y,
                 const Out& index, Scratch& scratch) {
  if (!y.wanted && !index.wanted) return;
  detail::check_max_forward(params, x, y, index);
  const detail::ReduceGeometry g(x.shape, params.axes);
  auto* where = index.wanted ? index.view.as<std::int64_t>() : nullptr;
  if (x.dtype == DType::fp64)
    return reduce::run(target, "max", WideMaxTerms{x, {}}, reduce::FirstMax{},
                       StoreMax<double>{y, where, y.wanted}, g, scratch);
  reduce::run(target, "max", MaxTerms{x, {}}, reduce::FirstMax{},
              StoreMax<float>{y, where, y.wanted}, g, scratch);
}

template void reduce_forward(Target, Reduce, const ReduceParams&, const ConstView&, const Out&,
                             Scratch&);
template void max_forward(Target, const ReduceParams&, const ConstView&, const Out&, const Out&,
                          Scratch&);

}  // namespace roundoff
