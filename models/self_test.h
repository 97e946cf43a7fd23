// What is asked of a model before a long run: do its 16-bit predictions agree with fp32 within what
// rounding explains, and is its accumulated gradient the large batch's?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/model.h"
#include "models/precision.h"
#include "models/train_step.h"

namespace roundoff {

struct AmpCheckResult {
  bool holds = true;
  std::int64_t samples = 0;
  double worst_ratio = 0;  // largest |difference| / bound over all logits
  // The element with the largest ratio, or the first non-finite one.
  std::int64_t sample = 0;
  std::int64_t logit = 0;
  double reference = 0;  // fp32
  double value = 0;      // 16 bit
  double bound = 0;
  std::string text() const;  // one line that says what was compared and how it came out
};

// Compares the logits of up to `samples` samples of x in the context's 16-bit precision with fp32,
// in evaluation mode. For logit z of one sample the bound is
//   2 sum over everything that the 16-bit run rounds of |dz/dv| (u |v| + eta)
// v being the inputs, the weights and the outputs of every operation that computes in 16 bit, u and
// eta of the 16-bit type (numerics: first order; the factor 2 covers second order terms and the
// kinks of relu and maximum pools). Derived, not proven. A logit that is not finite in 16 bit but
// is in fp32 fails.
// On a GPU the products of the 16-bit run are summed by its tensor cores: product_errors() joins
// the sum, times |dz/dv| of each product's outputs.
AmpCheckResult amp_check(Context& context, Model& model, const Tensor& x, std::int64_t samples = 8);

// How far the sums of a linear layer's or a convolution's products (x, w, and b where it is given)
// may be off on the tensor cores of `gpu`, by output channel: g (max |x| sum |w| + |b|), g of
// kernels/base/tensor_core.h for every filter position.
std::vector<double> product_errors(Accumulator gpu, DType operands, std::span<const Tensor> inputs);

struct AccumulationCheck {
  double largest_difference = 0;  // over all elements of all parameters; NaN where one is
  double largest_gradient = 0;    // magnitude, of the whole batch
};

// Runs the batch x, labels [n] as A micro-batches (the first n mod A of them one sample larger),
// each weighted by its share of the valid weight, and as a whole, at the same weights and in the
// context's precision, and compares the gradients. Nothing changes: gradients are absent
// afterwards, buffers as before. Throws UsageError unless 1 <= A <= n. With BatchNorm the
// difference is not rounding: the window is not the large batch. (Dropout's masks belong to
// samples here, so its is.)
AccumulationCheck compare_accumulated(Context& context, Model& model, const Tensor& x,
                                      const Tensor& labels, std::int64_t micro_batches,
                                      const LossSettings& loss = {});
// Its largest difference.
double accumulate_gradients(Context& context, Model& model, const Tensor& x, const Tensor& labels,
                            std::int64_t micro_batches);

}  // namespace roundoff
