// The first pass of a step over the gradients: unscale, look for infinities and NaN, form the
// global norm and the clip coefficient. Everything lands in a StepStatus; the gradients themselves
// are only read. The optimizer's pass applies inv_scale and clip, in this order, each with one fp32
// rounding, so that fused and unfused steps agree bit for bit:
//
//   u = fp32(g) * inv_scale          unscaled gradient, fp32
//   norm = sqrt(sum u^2)             squares and sums in fp64: a square of an fp32 is within
//                                    2^-298..2^256, so nothing over- or underflows
//   clip = max_norm / norm           where norm > max_norm (no epsilon), else 1
//   g' = u * clip
//
// The sum of squares is finite if and only if every u is; u is non-finite wherever g is. So the
// check costs nothing and sees every element before and after unscaling.
//
// Order of the sum: element i of a gradient goes to lane i mod 16; lanes are folded in halves
// (16, 8, 4, 2, 1); gradients are added in the order of the list. The squares are exact in fp64, so
// the relative error of norm is at most (n/16 + 4 + gradients + 2) 2^-54 to first order, n the
// largest gradient's size.
//
// Gradients are fp16, bf16 or fp32, of any shape, may be empty, and may be absent
// (ConstView::absent()), which is not the same as zero: it does not count as present.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "kernels/base/view.h"
#include "kernels/step/status.h"

namespace roundoff {

struct ClipParams {
  // L2 norm to clip to; >= 0. Infinity: no clipping. 0: every gradient becomes 0.
  double max_norm = std::numeric_limits<double>::infinity();
};

// Throws UsageError for a negative or NaN max_norm.
void validate(const ClipParams& params);

// The fused pass. Reads status.inv_scale; sets found_inf, first_offender, norm, clip and present
// afresh, whatever they held. Throws, before it changes anything, for another dtype, a bad
// max_norm, or an inv_scale that is not finite and above 0.
void inspect_gradients(Ref, const ClipParams& params, std::span<const ConstView> gradients,
                       StepStatus& status);

// max_norm / norm where norm > max_norm, else 1; one rounding to fp32. 1 for a non-finite norm.
ROUNDOFF_HD constexpr float clip_coefficient(double norm, double max_norm) {
  return norm > max_norm && norm - norm == 0.0 ? static_cast<float>(max_norm / norm) : 1.0F;
}

// The unfused pieces: what the fused pass and the optimizer do, one at a time.

// to[i] = fp32(from[i]) * inv_scale. `to` is fp32 with as many elements as `from`; it may be
// `from`.
void unscale(Ref, float inv_scale, const ConstView& from, const View& to);
// Whether every element is finite.
bool all_finite(Ref, const ConstView& gradient);
// L2 norm over all gradients, in the order above, without unscaling.
double global_norm(Ref, std::span<const ConstView> gradients);
// g[i] *= factor for an fp32 gradient; a factor of 1 leaves the bits alone.
void scale_gradient(Ref, float factor, const View& gradient);

}  // namespace roundoff
