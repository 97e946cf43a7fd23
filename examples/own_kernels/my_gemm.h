#pragma once

#include "kernels/base/target.h"
#include "kernels/base/view.h"

// y = a b^T for bf16 a [m, k] and b [n, k], k a multiple of 8; y [m, n] bf16; sums on Hopper's
// tensor cores. Needs sm_90a.
template <roundoff::DeviceTarget T>
void my_gemm(T target, const roundoff::ConstView& a, const roundoff::ConstView& b,
             const roundoff::View& y);
