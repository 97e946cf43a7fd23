// Reductions over any set of axes, and their gradients.
// Sums are formed in the order of kernels/reduce/sum_tree.h, in fp32 (fp64 where x or the
// accumulator is fp64), and rounded once to the output's type.
// Errors (thrown before anything is written): types that are not floating, shapes that do not fit,
// a maximum of no elements, accumulation into a 16-bit output, bf16 terms on a V100.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

enum class Reduce : unsigned char {
  sum,   // of nothing: 0
  mean,  // of nothing: NaN. Does not overflow where only the sum of its terms would.
  max,   // NaN wins wherever it stands
  norm,  // sqrt(sum x^2), of nothing 0; its squares neither overflow nor underflow
};

std::string_view name(Reduce op);

// Bit i of `axes`: axis i is reduced.
struct ReduceParams {
  std::uint32_t axes = 0;
  // Of sum and mean. fp16 rounds every addition to fp16; v100, a100 and h100 model a sum of 16-bit
  // terms as products with 1 on that GPU's tensor cores (kernels/base/tensor_core.h): both run in
  // index order, as a plain loop does. fp64 terms, and fp32 ones on a GPU, are summed plainly.
  // Norms take fp32 and fp64 (squares are added in fp64 either way).
  Accumulator accumulator = Accumulator::fp32;
};

constexpr std::uint32_t all_axes(int rank) { return (1U << rank) - 1U; }

// The shape that is left; reduced axes stay with extent 1 where `keepdim`.
Shape reduced_shape(const Shape& shape, std::uint32_t axes, bool keepdim);

// y = op over the reduced axes of x, for sum, mean and norm. y has reduced_shape(x.shape, axes, k)
// for either k.
void reduce_forward(Ref, Reduce op, const ReduceParams& params, const ConstView& x, const Out& y);

// dx in the shape of x; x is read for norm only, and needs a shape and a dtype otherwise.
//   sum: dx = dy;  mean: dx = dy / n;  norm: dx = dy x / y, and 0 where the norm y is 0.
// The norm is formed from x again, so that a rounded y costs no accuracy.
void reduce_backward(Ref, Reduce op, const ReduceParams& params, const ConstView& x,
                     const ConstView& dy, const Out& dx, Scratch& scratch);

// y as above. `index` (int64, the shape of y, or not wanted) receives for each output the offset in
// x of the first element that attains the maximum, or of the first NaN.
void max_forward(Ref, const ReduceParams& params, const ConstView& x, const Out& y,
                 const Out& index);
// The whole gradient goes to the element that `index` names: dx = dy there, else 0.
void max_backward(Ref, const ReduceParams& params, const ConstView& index, const ConstView& dy,
                  const Out& dx);

// On a device: sums are formed in pairs (kernels/reduce/stages.cuh), means of fp32 and 16-bit terms
// in fp64; the fp16 accumulator runs in index order as above, one thread an output; the
// accumulators of GPUs are refused for 16-bit terms. An index that is none of its output's terms is
// reported (DeviceError::max_index), and its gradient dropped. `scratch` is of the device's memory.
template <DeviceTarget T>
void reduce_forward(T target, Reduce op, const ReduceParams& params, const ConstView& x,
                    const Out& y, Scratch& scratch);
template <DeviceTarget T>
void reduce_backward(T target, Reduce op, const ReduceParams& params, const ConstView& x,
                     const ConstView& dy, const Out& dx, Scratch& scratch);
template <DeviceTarget T>
void max_forward(T target, const ReduceParams& params, const ConstView& x, const Out& y,
                 const Out& index, Scratch& scratch);
template <DeviceTarget T>
void max_backward(T target, const ReduceParams& params, const ConstView& index, const ConstView& dy,
                  const Out& dx);
inline void reduce_forward(Ref target, Reduce op, const ReduceParams& params, const ConstView& x,
                           const Out& y, Scratch&) {
  reduce_forward(target, op, params, x, y);
}
inline void max_forward(Ref target, const ReduceParams& params, const ConstView& x, const Out& y,
                        const Out& index, Scratch&) {
  max_forward(target, params, x, y, index);
}

// What the launchers throw for.
namespace detail {
void check_reduce_forward(Reduce op, const ReduceParams& params, const ConstView& x, const Out& y);
void check_reduce_backward(Reduce op, const ReduceParams& params, const ConstView& x,
                           const ConstView& dy, const Out& dx);
void check_max_forward(const ReduceParams& params, const ConstView& x, const Out& y,
                       const Out& index);
void check_max_backward(const ReduceParams& params, const ConstView& index, const ConstView& dy,
                        const Out& dx);
}  // namespace detail

}  // namespace roundoff
