// Small kernels that are right, or wrong in one chosen way.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

enum class Fault : std::uint8_t {
  none,
  dropped_product,     // one product of one element is left out
  narrow_partial_sum,  // the sum is held in fp16 between terms
  truncation,          // cut instead of rounded: the result, or in fp32 every addition
  wrong_lane,          // one step of the butterfly meets another lane than it should
  mask_off_by_one,     // the row's last element is not summed
};
inline constexpr Fault kFaults[] = {Fault::dropped_product, Fault::narrow_partial_sum,
                                    Fault::truncation, Fault::wrong_lane, Fault::mask_off_by_one};
const char* name(Fault fault);

// y [m, n] = a [m, k] b [k, n]: a thread an element, the products in order.
template <DeviceTarget T>
void planted_matmul(T target, Fault fault, const ConstView& a, const ConstView& b, const Out& y);
// Over the last axis, a warp a row.
template <DeviceTarget T>
void planted_softmax(T target, Fault fault, const ConstView& x, const Out& y);
// dx = y (dy - sum(dy y))
template <DeviceTarget T>
void planted_softmax_backward(T target, Fault fault, const ConstView& y, const ConstView& dy,
                              const Out& dx);

}  // namespace roundoff
