// The end of a training step. Formulas of kernels/step run in Tracked numbers: settings and
// quotients of settings are formed in fp64 and rounded once to the arithmetic (one constant error
// each), every operation is rounded once.
#pragma once

#include "verify/bound/base.h"
#include "verify/oracle/step.h"

namespace roundoff::bound {

// u = grad * (1 / scale), exact for a power of two; norm: relative (h + 3) u' / 2 beyond the
// unscaling, with u' of `norm_accumulator`; clip = min(1, max_norm / norm) has the norm's relative
// error (it is continuous where the norm reaches max_norm); u * clip.
struct UnscaleClip {
  std::vector<Bound> grads;
  Bound norm, clip;  // one value each
};
UnscaleClip unscale_clip(const oracle::UnscaleClipParams& p, std::span<const oracle::Values> grads,
                         const Arithmetic& a, const Format& norm_accumulator = kFp64);

// The state after one step from exact values before it.
struct Sgd {
  Bound w, buffer;
};
Sgd sgd_step(const oracle::SgdParams& p, oracle::In grad, oracle::In w, oracle::In buffer,
             const Arithmetic& a);

struct Adam {
  Bound w, m, v;
};
Adam adam_step(const oracle::AdamParams& p, std::int64_t step, oracle::In grad, oracle::In w,
               oracle::In m, oracle::In v, const Arithmetic& a);

}  // namespace roundoff::bound
