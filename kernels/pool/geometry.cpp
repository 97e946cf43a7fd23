#include "kernels/pool/geometry.h"

namespace roundoff {

namespace {

void check(std::string_view operation, const Pool2dGeometry& g, const ConstView& x, const Out& y,
           bool forward) {
  const Shape small{g.n, g.p, g.q, g.c};
  const Shape large{g.n, g.h, g.w, g.c};
  const Shape& in = forward ? large : small;
  const Shape& out = forward ? small : large;
  ROUNDOFF_CHECK(is_floating(x.dtype) && is_floating(y.view.dtype), operation, "takes ",
                 name(x.dtype), " to ", name(y.view.dtype), ", floating types expected");
  ROUNDOFF_CHECK(x.shape == in, operation, forward ? "x" : "dy", " of shape ", x.shape, ", ", in,
                 " expected");
  ROUNDOFF_CHECK(y.view.shape == out, operation, forward ? "y" : "dx", " of shape ", y.view.shape,
                 ", ", out, " expected");
  ROUNDOFF_CHECK(y.write == Write::overwrite || !is_16bit(y.view.dtype), operation,
                 "cannot accumulate into ", name(y.view.dtype), "; fp32 or fp64 expected");
}

}  // namespace

Pool2dGeometry pool2d_geometry(std::string_view operation, const Shape& x,
                               const Pool2dParams& params) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 31;
  ROUNDOFF_CHECK(x.rank() == 4, operation, "x of shape ", x, ", [N, H, W, C] expected");
  Pool2dGeometry g{.n = x[0], .h = x[1], .w = x[2], .c = x[3], .params = params};
  const auto extent = [&](const char* axis, std::size_t i, std::int64_t image) {
    const std::int64_t kernel = params.kernel[i], stride = params.stride[i],
                       padding = params.padding[i];
    ROUNDOFF_CHECK(kernel >= 1 && kernel <= kLargest, operation, axis, " kernel ", kernel,
                   ", at least 1 expected");
    ROUNDOFF_CHECK(stride >= 1 && stride <= kLargest, operation, axis, " stride ", stride,
                   ", at least 1 expected");
    ROUNDOFF_CHECK(padding >= 0 && padding <= kernel / 2, operation, axis, " padding ", padding,
                   " of kernel ", kernel, ", between 0 and half the kernel expected");
    ROUNDOFF_CHECK(image >= 1 && image < kLargest, operation, axis, " image ", image,
                   ", at least 1 expected");
    ROUNDOFF_CHECK(kernel <= image + 2 * padding, operation, axis, " kernel ", kernel,
                   " exceeds the padded image ", image + 2 * padding);
    return (image + 2 * padding - kernel) / stride + 1;
  };
  g.p = extent("vertical", 0, g.h);
  g.q = extent("horizontal", 1, g.w);
  return g;
}

Shape pool2d_shape(const Shape& x, const Pool2dParams& params) {
  const Pool2dGeometry g = pool2d_geometry("pool2d", x, params);
  return {g.n, g.p, g.q, g.c};
}

Pool2dGeometry check_max_pool2d(const Pool2dParams& params, const ConstView& x, const Out& y,
                                const Out& argmax) {
  const Pool2dGeometry g = pool2d_geometry(kMaxPool2d, x.shape, params);
  check(kMaxPool2d, g, x, y, true);
  ROUNDOFF_CHECK(g.h <= 0x7FFFFFFF / g.w, kMaxPool2d, "image of ", g.h, " x ", g.w,
                 " pixels, fewer than 2^31 expected");
  if (argmax.wanted)
    ROUNDOFF_CHECK(argmax.view.dtype == DType::i32 && argmax.view.shape == y.view.shape, kMaxPool2d,
                   "argmax is ", name(argmax.view.dtype), " of shape ", argmax.view.shape,
                   ", int32 of shape ", y.view.shape, " expected");
  return g;
}

Pool2dGeometry check_max_pool2d_backward(const Pool2dParams& params, const ConstView& argmax,
                                         const ConstView& dy, const Out& dx) {
  const Pool2dGeometry g = pool2d_geometry(kMaxPool2d, dx.view.shape, params);
  check(kMaxPool2d, g, dy, dx, false);
  ROUNDOFF_CHECK(argmax.dtype == DType::i32 && argmax.shape == dy.shape, kMaxPool2d, "argmax is ",
                 name(argmax.dtype), " of shape ", argmax.shape, ", int32 of shape ", dy.shape,
                 " expected");
  return g;
}

Pool2dGeometry check_avg_pool2d(const Pool2dParams& params, const ConstView& x, const Out& y) {
  const Pool2dGeometry g = pool2d_geometry(kAvgPool2d, x.shape, params);
  check(kAvgPool2d, g, x, y, true);
  return g;
}

Pool2dGeometry check_avg_pool2d_backward(const Pool2dParams& params, const ConstView& dy,
                                         const Out& dx) {
  const Pool2dGeometry g = pool2d_geometry(kAvgPool2d, dx.view.shape, params);
  check(kAvgPool2d, g, dy, dx, false);
  return g;
}

}  // namespace roundoff
