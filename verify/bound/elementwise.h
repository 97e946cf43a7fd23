// Elementwise functions, dropout and embedding.
#pragma once

#include "verify/bound/base.h"
#include "verify/oracle/binary.h"
#include "verify/oracle/select.h"
#include "verify/oracle/unary.h"

namespace roundoff::bound {

// The formula is run in Tracked numbers (verify/bound/tracked.h): relu exact; exp, log, tanh within
// libm_ulps; sigmoid from exp(-|x|); gelu x erfc(-x / sqrt 2) / 2; gelu_tanh x (1 + tanh) / 2.
Bound unary(oracle::Unary f, oracle::In x, const Arithmetic& a);

// dx = dy f'(x). tanh, sigmoid and exp are differentiated from the output y, which was rounded to
// `saved` where that is given; 1 - y and 1 - y^2 magnify its error.
Bound unary_backward(oracle::Unary f, oracle::In x, oracle::In dy, const Arithmetic& a,
                     std::optional<Format> saved = std::nullopt);

// One rounding: u |y|.
Bound binary(oracle::Binary f, oracle::In a, const Shape& a_shape, oracle::In b,
             const Shape& b_shape, const Arithmetic& arithmetic);

struct BinaryGradients {
  Bound a, b;
};
// Each term is formed with at most three roundings; repeated axes are summed.
BinaryGradients binary_backward(oracle::Binary f, oracle::In a, const Shape& a_shape, oracle::In b,
                                const Shape& b_shape, oracle::In dy, const Arithmetic& arithmetic);

// Kept values: x times 1 / (1 - p), or over 1 - p; two roundings beyond the one of the factor.
// Exact for p = 0.
Bound dropout(double p, oracle::In x, std::span<const std::uint8_t> kept, const Arithmetic& a);

// Rows are copied; a gradient is the sum of the rows that a table's row was copied to.
Bound embedding(std::int64_t rows, std::int64_t width, oracle::In table,
                std::span<const std::int64_t> index, const Arithmetic& a);
Bound embedding_backward(std::int64_t rows, std::int64_t width, std::span<const std::int64_t> index,
                         oracle::In dy, const Arithmetic& a,
                         std::optional<std::int64_t> padding_index = std::nullopt);

}  // namespace roundoff::bound
