// Convolutions for tests of their kernels: shapes with ragged channels and every kind of geometry,
// their data, and the three passes on a device.
#pragma once

#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "tests/simt_kernels/sim_device.h"
#include "verify/oracle/conv2d.h"

namespace roundoff::test {

struct ConvCase {
  const char* what;
  std::int64_t n, h, w, c_group, k_group, r, s;
  std::array<std::int64_t, 2> stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;

  Shape x() const { return {n, h, w, c_group * groups}; }
  Shape filters() const { return {k_group * groups, r, s, c_group}; }
  Conv2dParams params() const {
    return {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups};
  }
  Shape y() const { return conv2d_shape(x(), filters(), params()).y(); }
  oracle::Conv2dParams oracle() const {
    return {.n = n,
            .h = h,
            .w = w,
            .c = c_group * groups,
            .k = k_group * groups,
            .r = r,
            .s = s,
            .stride_h = stride[0],
            .stride_w = stride[1],
            .pad_h = padding[0],
            .pad_w = padding[1],
            .dilation_h = dilation[0],
            .dilation_w = dilation[1],
            .groups = groups};
  }
};

inline constexpr ConvCase kConvCases[] = {
    {"same padding", 2, 6, 5, 8, 8, 3, 3, {1, 1}, {1, 1}},
    {"stride 2, 64 and 65 channels", 1, 7, 7, 64, 65, 3, 3, {2, 2}, {1, 1}},
    {"1 x 1, stride 2", 3, 5, 6, 17, 5, 1, 1, {2, 2}},
    {"3 channels to 64", 2, 9, 8, 3, 64, 3, 5, {1, 2}, {2, 2}},
    {"padding beyond the kernel", 1, 4, 4, 65, 17, 2, 3, {1, 1}, {3, 4}},
    {"one channel", 2, 8, 8, 1, 16, 3, 3, {1, 1}, {1, 1}},
    {"stride 3, dilation 2", 2, 9, 10, 16, 24, 3, 3, {3, 3}, {1, 2}, {2, 2}},
    {"stride 2 across dilation 3", 1, 9, 11, 8, 5, 3, 3, {2, 2}, {3, 2}, {3, 2}},
    {"3 groups", 2, 6, 7, 8, 16, 3, 3, {2, 1}, {1, 0}, {1, 2}, 3},
    {"2 groups of 2 channels", 1, 5, 5, 2, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, 2},
    {"a kernel a channel, 8", 2, 17, 9, 1, 1, 3, 3, {2, 1}, {1, 1}, {1, 1}, 8},
    {"a kernel a channel, 5", 2, 6, 7, 1, 1, 2, 3, {1, 3}, {0, 1}, {2, 1}, 5},
    {"no samples", 0, 6, 6, 8, 8, 3, 3, {1, 1}, {1, 1}},
    {"patches", 2, 8, 8, 8, 32, 4, 4, {4, 4}},
    {"a stride beyond the kernel", 1, 7, 8, 5, 8, 2, 1, {4, 3}, {1, 0}},
    {"many pixels", 4, 13, 12, 16, 40, 3, 3, {1, 1}, {1, 1}},
    {"1 x 1", 2, 9, 8, 24, 40, 1, 1},
};
inline constexpr int kConvCaseCount = static_cast<int>(std::size(kConvCases));

enum class ConvPass { forward, grad_input, grad_weight };

// What a pass reads and writes.
inline Shape left_shape(const ConvCase& c, ConvPass pass) {
  return pass == ConvPass::grad_input ? c.y() : c.x();
}
inline Shape right_shape(const ConvCase& c, ConvPass pass) {
  return pass == ConvPass::grad_weight ? c.y() : c.filters();
}
inline Shape result_shape(const ConvCase& c, ConvPass pass) {
  if (pass == ConvPass::forward) return c.y();
  return pass == ConvPass::grad_input ? c.x() : c.filters();
}

template <class Target>
void run_pass(Target target, ConvPass pass, const Conv2dParams& p, const ConstView& left,
              const ConstView& right, const ConstView& bias, const Out& out, Scratch& scratch) {
  if (pass == ConvPass::forward) return conv2d_forward(target, p, left, right, bias, out, scratch);
  if (pass == ConvPass::grad_input) return conv2d_grad_input(target, p, left, right, out, scratch);
  conv2d_grad_weight(target, p, left, right, out, scratch);
}

inline std::vector<double> exact_pass(const ConvCase& c, ConvPass pass,
                                      const std::vector<double>& left,
                                      const std::vector<double>& right,
                                      const std::vector<double>& bias = {}) {
  if (pass == ConvPass::forward) return oracle::conv2d(c.oracle(), left, right, bias);
  if (pass == ConvPass::grad_input) return oracle::conv2d_dgrad(c.oracle(), right, left);
  return oracle::conv2d_wgrad(c.oracle(), left, right);
}
// Products that one sum has, at most.
inline std::int64_t terms_of(const ConvCase& c, ConvPass pass) {
  if (pass == ConvPass::forward) return c.r * c.s * c.c_group;
  if (pass == ConvPass::grad_input) return c.r * c.s * c.k_group;
  return c.n * c.y()[1] * c.y()[2];
}

// The same on a device.
inline Array device_pass(SimDevice& device, ConvPass pass, const Conv2dParams& p, const Array& left,
                         const Array& right, const Array* bias, Array out,
                         Write write = Write::overwrite) {
  SimScratch scratch(device);
  const Resident a(device, left), b(device, right);
  std::unique_ptr<Resident> offsets;
  if (bias != nullptr) offsets = std::make_unique<Resident>(device, *bias);
  Resident y(device, out);
  run_pass(device.target(), pass, p, *a, *b, bias == nullptr ? ConstView::absent() : **offsets,
           y.out(write), scratch);
  y.fetch();
  return out;
}

}  // namespace roundoff::test
