// The sm_90a rungs, called as gemm is, with a choice of tile and of how many blocks share the work.
#pragma once

#include <string>

#include "kernels/gemm/sm90.h"

namespace roundoff {

struct Sm90Call {
  ProductKernel kernel = ProductKernel::sm90;
  Sm90Options options;
  bool may_split = false;
  GemmParams gemm;
};

template <DeviceTarget T>
void sm90_gemm(T target, const Sm90Call& call, const ConstView& a, const ConstView& b,
               const ConstView& c, const Out& y, Scratch& scratch);
// Why the rungs do not take it.
template <DeviceTarget T>
std::string sm90_gemm_refuses(T target, const Sm90Call& call, const ConstView& a,
                              const ConstView& b, const Out& y);

}  // namespace roundoff
