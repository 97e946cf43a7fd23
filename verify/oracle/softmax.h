// Softmax and log-softmax along one axis of an array seen as [outer, n, inner].
// A row with NaN or +inf, or with nothing but -inf, gives NaN everywhere.
#pragma once

#include "verify/oracle/base.h"

namespace roundoff::oracle {

struct SoftmaxParams {
  std::int64_t outer = 1, n = 0, inner = 1;
  std::int64_t size() const { return outer * n * inner; }
};

Values softmax(const SoftmaxParams& p, In x);
// dx = y (dy - sum(dy y)), with y = softmax(x)
Values softmax_backward(const SoftmaxParams& p, In x, In dy);

Values log_softmax(const SoftmaxParams& p, In x);
// dx = dy - softmax(x) sum(dy)
Values log_softmax_backward(const SoftmaxParams& p, In x, In dy);

}  // namespace roundoff::oracle
