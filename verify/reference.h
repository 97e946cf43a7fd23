// What a named call of an operation (ops/run.h) should give, and how far off it may be: the oracles
// and bounds behind `roundoff op`.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "ops/run.h"
#include "verify/bound/base.h"

namespace roundoff {

// How the implementation that is judged computes.
struct JudgedArithmetic {
  // Of products, convolutions and sums of operands. v100, a100 and h100 stand for that GPU's tensor
  // cores where the operands are 16 bit, and for fp32 where they are wider.
  Accumulator accumulator = Accumulator::fp32;
  DType operands = DType::fp32;
  // Of the results that are judged.
  DType output = DType::fp32;
  // What the forward result was rounded to, where backward may start from it (softmax, tanh).
  DType saved = DType::fp32;
  // exp, log, tanh and erf are within so many ulp of fp32 (fp64 where that is the accumulator).
  double libm_ulps = 4;
  // Gradients of an fp64 accumulator are held in fp32 before they are rounded to `output`.
  bool gradients_in_fp32 = false;
  // The tensor cores of the device that ran it (device_tensor_core), for products of 16-bit
  // operands whose accumulator is fp32. Its kernels choose between them and plain arithmetic by
  // themselves.
  std::optional<Accumulator> device_core{};
};

enum class Pass : unsigned char { forward, backward };

using NamedBounds = std::map<std::string, Bound, std::less<>>;

// What JudgedArithmetic::device_core is on this device: absent on cpu and on sim, whose tensor
// cores chain fp32 multiply-adds unless an accumulator asks for a GPU's. The one place that says
// so.
std::optional<Accumulator> device_tensor_core(Device device);
// The same for a GPU of this compute capability (10 major + minor).
std::optional<Accumulator> device_tensor_core(Device device, int capability);
// Whether a call's products may run on the device's tensor cores.
bool on_device_core(const JudgedArithmetic& judged);

// Forward: y, and what else run_op() puts into OpResult::outputs, but for unscale_clip's norm and
// clip always in `output`. Backward: d<input> for every operand. The inputs as run_op() takes them,
// already rounded; it checks them, so call it first.
NamedBounds op_bounds(const OpParameters& parameters, const NamedTensors& inputs, const Tensor& dy,
                      const JudgedArithmetic& judged, Pass pass);

}  // namespace roundoff
