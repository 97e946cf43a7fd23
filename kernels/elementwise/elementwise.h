// Element-wise operations and their gradients.
// Operands of any floating type are widened to the arithmetic type (double where an operand is fp64
// or the accumulator is fp64, else float), computed there, and rounded once to the output's type.
// Errors (thrown before anything is written): shapes that differ or do not broadcast, types that
// are not floating, accumulation into a 16-bit output.
#pragma once

#include <string_view>

#include "kernels/base/scratch.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

enum class Unary : unsigned char {
  relu,       // max(x, 0); NaN stays NaN; gradient 0 at 0
  gelu,       // x Phi(x), Phi by erfc, so that the negative tail keeps its relative accuracy
  gelu_tanh,  // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2  (Hendrycks & Gimpel 2016)
  tanh,
  sigmoid,  // 1 / (1 + exp(-x)), formed from exp(-|x|)
  exp,
  log,
};

struct UnaryParams {
  Unary op = Unary::relu;
  Accumulator accumulator = Accumulator::fp32;
};

std::string_view name(Unary op);

// Whether the gradient is formed from the input x; otherwise it is formed from the output y.
constexpr bool saves_input(Unary op) {
  return op == Unary::gelu || op == Unary::gelu_tanh || op == Unary::log;
}

// y = op(x), the shape of x.
void unary_forward(Ref, const UnaryParams& params, const ConstView& x, const Out& y);
template <DeviceTarget T>
void unary_forward(T target, const UnaryParams& params, const ConstView& x, const Out& y);
// dx = dy op'(x); `saved` is x or y, as saves_input says. relu passes dy on where y is NaN.
void unary_backward(Ref, const UnaryParams& params, const ConstView& saved, const ConstView& dy,
                    const Out& dx);
template <DeviceTarget T>
void unary_backward(T target, const UnaryParams& params, const ConstView& saved,
                    const ConstView& dy, const Out& dx);

enum class Binary : unsigned char { add, sub, mul, div };

struct BinaryParams {
  Binary op = Binary::add;
  Accumulator accumulator = Accumulator::fp32;
};

std::string_view name(Binary op);

// Axes are aligned at the end; each pair of extents is equal or one of them is 1 (as NumPy does).
Shape broadcast_shape(const Shape& a, const Shape& b, std::string_view operation);

// y = a op b, with broadcasting; y has broadcast_shape(a, b).
void binary_forward(Ref, const BinaryParams& params, const ConstView& a, const ConstView& b,
                    const Out& y);
template <DeviceTarget T>
void binary_forward(T target, const BinaryParams& params, const ConstView& a, const ConstView& b,
                    const Out& y);
// Gradients in the shapes of a and b. The gradient of a broadcast operand is summed over the axes
// it was repeated along, in the arithmetic type and in the order of kernels/reduce/sum_tree.h.
//   mul: da = dy b, db = dy a;  div: da = dy / b, db = -dy (a / b) / b.
// An operand that no wanted gradient reads (both, for add and sub) needs a shape and a dtype only.
void binary_backward(Ref, const BinaryParams& params, const ConstView& a, const ConstView& b,
                     const ConstView& dy, const Out& da, const Out& db);
// On a device in pairs, then blocks of pairs (kernels/reduce/stages.cuh); `scratch` is of its
// memory.
template <DeviceTarget T>
void binary_backward(T target, const BinaryParams& params, const ConstView& a, const ConstView& b,
                     const ConstView& dy, const Out& da, const Out& db, Scratch& scratch);
inline void binary_backward(Ref target, const BinaryParams& params, const ConstView& a,
                            const ConstView& b, const ConstView& dy, const Out& da, const Out& db,
                            Scratch&) {
  binary_backward(target, params, a, b, dy, da, db);
}

// What the launchers throw for.
namespace detail {
void check_unary_forward(const UnaryParams& params, const ConstView& x, const Out& y);
void check_unary_backward(const UnaryParams& params, const ConstView& saved, const ConstView& dy,
                          const Out& dx);
void check_binary_forward(const BinaryParams& params, const ConstView& a, const ConstView& b,
                          const Out& y);
void check_binary_backward(const BinaryParams& params, const ConstView& a, const ConstView& b,
                           const ConstView& dy, const Out& da, const Out& db);
}  // namespace detail

}  // namespace roundoff
