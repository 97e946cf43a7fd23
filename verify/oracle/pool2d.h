// Max and average pooling over NHWC windows.
#pragma once

#include "verify/oracle/base.h"

namespace roundoff::oracle {

struct Pool2dParams {
  std::int64_t n = 0, h = 0, w = 0, c = 0;  // input
  std::int64_t kernel_h = 0, kernel_w = 0;
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;
  // Average only: the padding's zeros count in the divisor (the field's usual default).
  bool count_include_pad = true;

  std::int64_t p() const { return (h + 2 * pad_h - kernel_h) / stride_h + 1; }
  std::int64_t q() const { return (w + 2 * pad_w - kernel_w) / stride_w + 1; }
  std::int64_t x_size() const { return n * h * w * c; }
  std::int64_t y_size() const { return n * p() * q() * c; }
};

// The padding never wins. A NaN in the window gives NaN. The gradient goes to the first maximum in
// row-major order, or to the first NaN where there is one.
Values max_pool2d(const Pool2dParams& p, In x);
Values max_pool2d_backward(const Pool2dParams& p, In x, In dy);

Values avg_pool2d(const Pool2dParams& p, In x);
Values avg_pool2d_backward(const Pool2dParams& p, In dy);

}  // namespace roundoff::oracle
