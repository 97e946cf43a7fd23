// The sm_90a kernels of conv2d, called as its launchers are, with a choice of tile and of how many
// blocks share the work.
#pragma once

#include <string>

#include "kernels/conv2d/sm90.h"

namespace roundoff {

struct Sm90ConvCall {
  ConvPass pass = ConvPass::forward;
  Conv2dParams params;
  Shape x, w;
  bool may_split = false;
  Sm90Options options;
};

// other: what the images are multiplied with; bias: absent but for forward.
template <DeviceTarget T>
void sm90_conv2d(T target, const Sm90ConvCall& call, const ConstView& images,
                 const ConstView& other, const ConstView& bias, const Out& y, Scratch& scratch);
// Why they do not take it.
template <DeviceTarget T>
std::string sm90_conv2d_refuses(T target, const Sm90ConvCall& call, const ConstView& images,
                                const ConstView& other);

}  // namespace roundoff
