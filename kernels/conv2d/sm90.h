// Convolution on sm_90a: the main loop of kernels/gemm/sm90.cuh, its stages filled by TMA's im2col,
// whose zeros are the padding. Host declarations.
#pragma once

#include <string>

#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/sm90.h"

namespace roundoff {

// Which product: what its `images` are, of which patches are taken, and what they are multiplied
// with.
enum class ConvPass : unsigned char {
  forward,     // x and w:  y [N P Q, K], depth (r, s, c)
  grad_input,  // dy and w: dx [N H W, C], depth (r, s, k)
  grad_weight  // x and dy: dw [K, R S C], depth (n, p, q)
};

// Why they do not take a product; empty where they do. p: the sizes above, a result for each group
// of channels.
inline std::string conv2d_sm90_refuses(ConvPass pass, const ProductProblem& p, const Conv2dShape& z,
                                       const Conv2dParams& params, const ConstView& images,
                                       const ConstView& other);

// Throws where conv2d_sm90_refuses() has something to say. Sums as in conv2d.h; a tap's channels
// are padded with zeros to 64 (tf32: 32), so that where they are a multiple of 16 (8) the tensor
// cores' blocks of products are those of any other kernel.
template <DeviceTarget T>
void launch_conv2d_sm90(T target, ConvPass pass, const ProductProblem& p, const Conv2dShape& z,
                        const Conv2dParams& params, const ConstView& images, const ConstView& other,
                        const ProductOutput& out, Scratch& scratch,
                        const Sm90Options& options = {});

// Pixels of the result in the order of memory, and where their patches lie.
struct Sm90Pixels {
  unsigned width = 1, height = 1;  // of an image of them
  int stride[2] = {1, 1};          // down, across, as all pairs here
  int corner[2] = {0, 0};          // where the patch of pixel 0 begins, below 0 by the padding
  unsigned dilation[2] = {1, 1};
  unsigned taps[2] = {1, 1};         // of a filter
  bool backwards = false;            // the first tap is the patch's last
  unsigned blocks = 1;               // of a tap's channels along depth
  unsigned channels = 0, other = 0;  // of a group: of the images; rows of the other operand

  // Where the last pixel's patch begins.
  int last(int axis) const {
    return corner[axis] + static_cast<int>((axis == 0 ? height : width) - 1) * stride[axis];
  }
};

inline Sm90Pixels sm90_pixels(ConvPass pass, const Conv2dShape& z, const Conv2dParams& params,
                              DType dtype) {
  Sm90Pixels x;
  const bool backwards = pass == ConvPass::grad_input;
  x.width = static_cast<unsigned>(backwards ? z.w : z.q);
  x.height = static_cast<unsigned>(backwards ? z.h : z.p);
  x.backwards = backwards;
  for (std::size_t i = 0; i < 2; ++i) {
    x.taps[i] = static_cast<unsigned>(i == 0 ? z.r : z.s);
    x.dilation[i] = static_cast<unsigned>(params.dilation[i]);
    const auto reach = static_cast<std::int64_t>(x.taps[i] - 1) * params.dilation[i];
    x.corner[i] = static_cast<int>(backwards ? params.padding[i] - reach : -params.padding[i]);
    if (!backwards) x.stride[i] = static_cast<int>(params.stride[i]);
  }
  const auto depth = static_cast<unsigned>(128 / size_of(dtype));
  x.channels = static_cast<unsigned>((backwards ? z.k : z.c) / params.groups);
  x.other = static_cast<unsigned>(z.k / params.groups);
  x.blocks = (x.channels + depth - 1) / depth;
  return x;
}

inline std::string conv2d_sm90_refuses(ConvPass pass, const ProductProblem& p, const Conv2dShape& z,
                                       const Conv2dParams& params, const ConstView& images,
                                       const ConstView& other) {
  if (std::string why = sm90_detail::refuses_types(p, images.dtype, other.dtype, params.tf32);
      !why.empty())
    return why;
  const bool input = pass == ConvPass::grad_input, weight = pass == ConvPass::grad_weight;
  if (images.dtype == DType::fp32 && pass != ConvPass::forward)
    return "the sum does not run along channels of both operands, and wgmma transposes 16-bit "
           "operands only: tf32 ones are K-major";
  const auto bytes = static_cast<std::int64_t>(size_of(images.dtype));
  const std::int64_t depth = 128 / bytes, group = (input ? z.k : z.c) / params.groups;
  const auto channels = [&](const char* of, std::int64_t n) {
    return std::string(of) + " of " + std::to_string(n * bytes) +
           " bytes, no multiple of 16, as TMA asks";
  };
  if ((input ? z.k : z.c) * bytes % 16 != 0)
    return channels("the images' channels are", input ? z.k : z.c);
  if (weight ? z.k * bytes % 16 != 0 : z.c / params.groups * bytes % 16 != 0)
    return weight ? channels("dy's channels are", z.k)
                  : channels("a filter's channels are", z.c / params.groups);
  if ((weight || params.groups > 1) && group % depth != 0)
    return std::to_string(group) + " channels of a group, a multiple of " + std::to_string(depth) +
           " expected where a tile's columns, or its depth, must end with them";
  for (const void* at : {images.data, other.data})
    if (reinterpret_cast<std::uintptr_t>(at) % 16 != 0)
      return "an operand does not begin at a multiple of 16 bytes, as TMA asks";
  for (std::size_t i = 0; i < 2; ++i) {
    if (input && params.stride[i] != 1)
      return "the images' gradient at stride " + std::to_string(params.stride[i]) +
             " skips taps, stride 1 expected";
    if (params.stride[i] > 8)
      return "stride " + std::to_string(params.stride[i]) + ", TMA takes 8 at most";
    const std::int64_t reach = ((i == 0 ? z.r : z.s) - 1) * params.dilation[i];
    if (reach > 255)
      return "filters that reach over " + std::to_string(reach) +
             " pixels, TMA's im2col takes 255 at most";
    if (params.padding[i] > 127)
      return "padding " + std::to_string(params.padding[i]) +
             ", TMA's im2col takes corners from -128 to 127";
  }
  const Sm90Pixels x = sm90_pixels(pass, z, params, images.dtype);
  for (int i = 0; i < 2; ++i) {
    const auto size = static_cast<int>(i == 0 ? (input ? z.p : z.h) : (input ? z.q : z.w));
    for (const int corner : {x.corner[i], x.last(i) + 1 - size})
      if (corner < -128 || corner > 127)
        return "a patch that begins " + std::to_string(corner) +
               " pixels from an image's corner, TMA's im2col takes -128 to 127";
  }
  return {};
}

}  // namespace roundoff
