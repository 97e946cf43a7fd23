// Checks the gradients that the tape gives of any function of tensors, in fp64, against central
// differences (verify/difference.h). The tolerance comes from the differences: nothing is typed in.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/context.h"

namespace roundoff {

// Must give the same result for the same inputs. What it takes beside them (labels, settings) it
// captures.
using TensorFunction = std::function<Tensor(Context&, std::span<const Tensor>)>;

struct GradcheckInput {
  Shape shape;
  std::vector<double> values;  // row-major
};

struct GradcheckReport {
  std::int64_t checked = 0;  // elements of inputs
  std::int64_t kinks = 0;    // of them, so close to a kink that one-sided slopes were used
  // Largest distance of a gradient from its difference, in tolerances: at most 1 where it holds.
  double worst_ratio = 0;
  std::string worst;  // which element that was, its gradient and its difference
  // Largest tolerance, relative to the largest gradient of its input: errors below it go unseen.
  double blind_below = 0;
  bool holds() const { return worst_ratio <= 1; }
};

struct GradcheckOptions {
  // Of the weights w of the scalar sum(w y) whose gradient is checked.
  std::uint64_t seed = 1;
  // Settings of the context (training, rng); called for each of the contexts that are used.
  std::function<void(Context&)> configure{};
};

// Throws where f does not give fp64 from fp64, or gives something that is not finite.
GradcheckReport gradcheck(const TensorFunction& f, std::span<const GradcheckInput> inputs,
                          const GradcheckOptions& options = {});

}  // namespace roundoff
