// Dropout (Srivastava et al. 2014), inverted: y = kept ? x / (1 - p) : 0.
//
// Element e of sample s is dropped where its 32 random bits (kernels/base/philox.h) are below
// ceil(p 2^32): the mask depends on seed, step, tensor, global sample index and element only, and
// backward makes it again, so nothing is saved. Dropping selects and never multiplies: NaN and
// infinity in a dropped element become 0.
//
// x is [samples, ...]: axis 0 counts samples, the rest are a sample's elements; a scalar is one
// sample. Any floating dtype; the product with 1 / (1 - p) is formed in fp64 and rounded once to
// fp32 (fp64 stays), then to the output's dtype. p = 0 copies bits; p = 1 gives zeros.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/base/philox.h"
#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

// What changes from one step to the next.
struct DropoutKey {
  std::uint32_t step = 0;
  std::uint32_t sample0 = 0;
};

struct DropoutParams {
  double p = 0.5;  // probability of dropping an element, in [0, 1]
  PhiloxStream stream = {};
  std::uint64_t sample0 = 0;  // global index of x's first sample
  // In memory of a device: read by the kernel in place of stream.step and sample0, so that a graph
  // draws other masks each time.
  const DropoutKey* key = nullptr;
};

// Throws UsageError unless p is in [0, 1].
void validate(const DropoutParams& params);

// Throw where shapes differ, or where samples or elements leave the generator's range.
void dropout_forward(Ref, const DropoutParams& params, const ConstView& x, const Out& y);
template <DeviceTarget T>
void dropout_forward(T target, const DropoutParams& params, const ConstView& x, const Out& y);
// The gradient is the same map, applied to dy.
void dropout_backward(Ref, const DropoutParams& params, const ConstView& dy, const Out& dx);
template <DeviceTarget T>
void dropout_backward(T target, const DropoutParams& params, const ConstView& dy, const Out& dx);

namespace detail {
// What the launchers throw for, where y is wanted.
void check_dropout(std::string_view operation, const DropoutParams& params, const ConstView& x,
                   const Out& y);
}  // namespace detail

}  // namespace roundoff
