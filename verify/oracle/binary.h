// Elementwise functions of two arguments with broadcasting: shapes are aligned at the right, and an
// axis of extent 1 (or a missing one) is repeated.
#pragma once

#include "verify/oracle/base.h"

namespace roundoff::oracle {

enum class Binary : unsigned char { add, sub, mul, div };

Shape broadcast(const Shape& a, const Shape& b);

// For each element of the broadcast shape, in row-major order, the flat index of the operand's
// element that it comes from.
std::vector<std::size_t> broadcast_source(const Shape& operand, const Shape& result);

Values binary(Binary f, In a, const Shape& a_shape, In b, const Shape& b_shape);

struct BinaryGradients {
  Values a, b;  // in the operands' own shapes: summed over the repeated axes
};
BinaryGradients binary_backward(Binary f, In a, const Shape& a_shape, In b, const Shape& b_shape,
                                In dy);

}  // namespace roundoff::oracle
