// 2-D convolution (cross-correlation, as the field has it). Activations NHWC, weights KRSC.
//   Y[n, p, q, k] = b[k] + sum over r, s, c of
//     X[n, p stride_h + r dilation_h - pad_h, q stride_w + s dilation_w - pad_w, g C/groups + c]
//     W[k, r, s, c],   g the group of k; X counts as 0 outside its border.
#pragma once

#include "verify/oracle/base.h"

namespace roundoff::oracle {

struct Conv2dParams {
  std::int64_t n = 0, h = 0, w = 0, c = 0;  // input
  std::int64_t k = 0, r = 0, s = 0;         // output channels, kernel height and width
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_h = 0, pad_w = 0;
  std::int64_t dilation_h = 1, dilation_w = 1;
  std::int64_t groups = 1;

  std::int64_t p() const { return (h + 2 * pad_h - dilation_h * (r - 1) - 1) / stride_h + 1; }
  std::int64_t q() const { return (w + 2 * pad_w - dilation_w * (s - 1) - 1) / stride_w + 1; }
  std::int64_t x_size() const { return n * h * w * c; }
  std::int64_t w_size() const { return k * r * s * (c / groups); }
  std::int64_t y_size() const { return n * p() * q() * k; }
};

// bias may be empty.
Values conv2d(const Conv2dParams& p, In x, In w, In bias = {});

Values conv2d_dgrad(const Conv2dParams& p, In w, In dy);  // with respect to x
Values conv2d_wgrad(const Conv2dParams& p, In x, In dy);  // with respect to w
Values conv2d_bias_grad(const Conv2dParams& p, In dy);    // with respect to the bias

}  // namespace roundoff::oracle
