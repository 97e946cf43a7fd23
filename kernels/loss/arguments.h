// What the launchers of cross_entropy check before they run, on every target; what stands in labels
// and class weights is looked at elsewhere.
#pragma once

#include "kernels/loss/cross_entropy.h"

namespace roundoff {

struct CrossEntropyShape {
  std::int64_t rows = 0;
  std::int64_t classes = 0;
  bool soft = false;  // the targets are probabilities
};

// All throw for what the launchers refuse.
CrossEntropyShape check_cross_entropy_forward(const CrossEntropyParams& params,
                                              const ConstView& logits, const ConstView& target,
                                              const ConstView& weight, const Out& loss,
                                              const Out& valid, const Out& row_stats);
CrossEntropyShape check_cross_entropy_backward(const CrossEntropyParams& params,
                                               const ConstView& logits, const ConstView& target,
                                               const ConstView& weight, const ConstView& valid,
                                               const ConstView& row_stats, const ConstView& dloss,
                                               const Out& dlogits);
CrossEntropyShape check_cross_entropy_with_gradient(const CrossEntropyParams& params,
                                                    const ConstView& logits,
                                                    const ConstView& target,
                                                    const ConstView& weight, const ConstView& dloss,
                                                    const Out& loss, const Out& valid,
                                                    const Out& dlogits);

}  // namespace roundoff
