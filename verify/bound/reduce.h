// Reductions and pooling.
#pragma once

#include "verify/bound/base.h"
#include "verify/oracle/pool2d.h"
#include "verify/oracle/reduce.h"

namespace roundoff::bound {

// sum:  gamma_h sum|x|.
// mean: gamma_{h+1} mean|x| (the division).
// max:  exact.
// norm: relative (h + 3) u / 2: h + 1 roundings of the squares' sum are halved by the root, which
//       adds its own. An implementation must not lose squares to over- or underflow.
// Throws for sums on tensor cores: those are products with 1, bound::products().
Bound reduce(oracle::Reduce f, oracle::In x, const Shape& shape, std::span<const std::int64_t> axes,
             const Arithmetic& a);

// sum: exact. mean: one division. max: one division where ties share. norm: dy x / norm, the norm
// within its bound and rounded to `saved` where that is given.
Bound reduce_backward(oracle::Reduce f, oracle::In x, const Shape& shape,
                      std::span<const std::int64_t> axes, oracle::In dy, const Arithmetic& a,
                      oracle::Ties ties = oracle::Ties::first,
                      std::optional<Format> saved = std::nullopt);

// Exact; its gradient is a sum over the windows that an element won.
Bound max_pool2d(const oracle::Pool2dParams& p, oracle::In x, const Arithmetic& a);
Bound max_pool2d_backward(const oracle::Pool2dParams& p, oracle::In x, oracle::In dy,
                          const Arithmetic& a);
// gamma_{h+1} mean|x| over a window (gamma_{h+2}: the divisor may come as a reciprocal); its
// gradient is a sum of dy / divisor over the windows that hold an element.
Bound avg_pool2d(const oracle::Pool2dParams& p, oracle::In x, const Arithmetic& a);
Bound avg_pool2d_backward(const oracle::Pool2dParams& p, oracle::In dy, const Arithmetic& a);

}  // namespace roundoff::bound
