#pragma once

#include "kernels/base/target.h"
#include "kernels/base/view.h"

// y = softmax(x) along the last axis, and dx = y (dy - sum(dy y)). fp32, fp16 or bf16; sums in
// fp32.
template <roundoff::DeviceTarget T>
void my_softmax(T target, const roundoff::ConstView& x, const roundoff::View& y);
template <roundoff::DeviceTarget T>
void my_softmax_backward(T target, const roundoff::ConstView& y, const roundoff::ConstView& dy,
                         const roundoff::View& dx);
