// The same step in fp64 beside the low-precision one: how far every node's output and gradient is
// off, how much of that the node added itself, and which operation lost the most.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/trainer.h"

namespace roundoff {

// How far a tensor is from its reference.
struct ShadowError {
  // ||actual - reference|| / ||reference||, L2; infinite where an element is not finite and its
  // reference is.
  double relative = 0;
  // In units of the last place of the tensor's format at the reference: a correctly rounded result
  // is within 0.5. Subnormal references have the smallest subnormal's.
  double max_ulp = 0;
  double rms_ulp = 0;
  // -log2 of `relative`: the significant bits that are right; infinite where all are. A result
  // rounded once to a format of p bits has about p + 1.
  double bits() const;
};
ShadowError shadow_error(std::span<const double> actual, std::span<const double> reference,
                         DType dtype);

struct ShadowRow {
  enum class Pass : unsigned char { forward, backward };
  Pass pass = Pass::forward;
  int node = 0;           // place in the forward pass of the low-precision run, from 0
  std::string operation;  // "copy" for a weight that was rounded to 16 bit before the node read it
  std::string name;       // the parameters that the node reads
  std::string tensor;     // "output", "gradient of fc1.weight", "gradient of input 0"
  DType dtype = DType::fp32;
  std::int64_t elements = 0;
  // What the node added: against the same operation in fp64 on the very inputs (and, backward, the
  // very gradient of its output) that it had.
  ShadowError local;
  // What the value is off altogether: against the run that is in fp64 from the start.
  ShadowError total;
  // Bits that its format has and it does not, through the node's own doing: 0 for results that are
  // as good as one rounding.
  double bits_lost() const;
};

struct ShadowReport {
  std::int64_t step = 0;     // the window that it ran before, from 1
  std::int64_t samples = 0;  // of the micro-batch that was run
  double scale = 1;
  double loss = 0;  // mean, low precision
  double fp64_loss = 0;
  // Largest local relative error first; of equals, the order in which they ran.
  std::vector<ShadowRow> rows;
};

// Runs `micro` in the context's precision, node by node again in fp64 on the node's own inputs,
// and from the start in fp64 with `twin`: a model of the same settings, not yet allocated, which
// gets the masters of `model`. `seed` is the loss scale. All fp64 runs are on cpu, where dropout's
// masks are the same. Nothing moves on: gradients are absent afterwards, buffers as before. Of a
// reproducible context the sums are formed in the plain order here. Throws where the two runs do
// not have the same operations.
ShadowReport shadow_step(Context& context, Model& model, Model& twin, const MicroBatch& micro,
                         double seed, const LossSettings& loss = {});

// That of the first micro-batch of the trainer's next window, at its scale. The trainer is settled.
ShadowReport shadow_step(Trainer& trainer);

}  // namespace roundoff
