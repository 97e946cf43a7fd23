#include "kernels/conv2d/conv2d.h"

namespace roundoff {

namespace {

constexpr std::string_view kName = "conv2d";
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 31;

// The output's extent along one axis.
std::int64_t output_extent(const char* axis, std::int64_t image, std::int64_t kernel,
                           std::int64_t stride, std::int64_t padding, std::int64_t dilation) {
  ROUNDOFF_CHECK(stride >= 1 && stride <= kMaxExtent, kName, axis, " stride ", stride,
                 ", at least 1 expected");
  ROUNDOFF_CHECK(dilation >= 1 && dilation <= kMaxExtent, kName, axis, " dilation ", dilation,
                 ", at least 1 expected");
  ROUNDOFF_CHECK(padding >= 0 && padding <= kMaxExtent, kName, axis, " padding ", padding,
                 ", at least 0 expected");
  ROUNDOFF_CHECK(kernel >= 1 && kernel <= kMaxExtent && image <= kMaxExtent, kName, axis,
                 " kernel ", kernel, " on image ", image, ", both between 1 and ", kMaxExtent,
                 " expected");
  const std::int64_t padded = image + 2 * padding;
  ROUNDOFF_CHECK(kernel - 1 <= (padded - 1) / dilation && padded >= 1, kName, axis, " kernel ",
                 kernel, " with dilation ", dilation, " exceeds the padded image ", padded);
  return (padded - 1 - (kernel - 1) * dilation) / stride + 1;
}

}  // namespace

Conv2dShape conv2d_shape(const Shape& x, const Shape& w, const Conv2dParams& params) {
  ROUNDOFF_CHECK(x.rank() == 4, kName, "x of shape ", x, ", [N, H, W, C] expected");
  ROUNDOFF_CHECK(w.rank() == 4, kName, "weight of shape ", w, ", [K, R, S, C / groups] expected");
  const std::int64_t groups = params.groups;
  ROUNDOFF_CHECK(groups >= 1, kName, "groups ", groups, ", at least 1 expected");
  ROUNDOFF_CHECK(x[3] % groups == 0 && w[0] % groups == 0, kName, groups,
                 " groups do not divide input channels ", x[3], " and output channels ", w[0]);
  ROUNDOFF_CHECK(x[3] / groups == w[3], kName, "input channels ", x[3], " in ", groups,
                 " groups, weight expects ", w[3], " a group");
  Conv2dShape z{.n = x[0], .h = x[1], .w = x[2], .c = x[3], .k = w[0], .r = w[1], .s = w[2]};
  z.p =
      output_extent("vertical", z.h, z.r, params.stride[0], params.padding[0], params.dilation[0]);
  z.q = output_extent("horizontal", z.w, z.s, params.stride[1], params.padding[1],
                      params.dilation[1]);
  (void)z.y();  // throws where the output's size leaves 64 bit
  return z;
}

}  // namespace roundoff
