// Several operations in a row on one tape, each judged by itself: every node is fed what the device
// itself gave, so that each has its own bound, forward and backward, and the first node that left
// it is named. This is where 16-bit values and gradients pass between operations.
#pragma once

#include <string>
#include <vector>

#include "verify/check.h"

namespace roundoff {

struct ChainStep {
  std::string operation;  // of ops/run.h
  CaseParameters parameters;
  // The operation's input: a leaf of the chain, or "#2", the result of step 2. Each result is used
  // once, and so is each leaf.
  std::map<std::string, std::string> inputs;
};

struct Chain {
  std::string name;
  std::vector<CaseInput> leaves;
  std::vector<ChainStep> steps;
};

// mlp (linear, relu, linear, cross_entropy), conv (conv2d, batch_norm, relu, max_pool2d, flatten,
// linear, mse), attention (matmul, softmax, matmul, layer_norm).
std::vector<Chain> list_chains();

// Names the first step, forward and then backward, whose result or gradient is outside its own
// bound. `ratio` and `gradient_ratio` are the largest over all steps.
CheckReport check_chain(const Chain& chain, DType dtype, Device device,
                        const RunnerOptions& options, std::uint64_t seed,
                        std::uint64_t schedule = 0);

// The same with a hook on each step's result (a step's number and what it gave), for tests.
CheckReport check_chain(const Chain& chain, DType dtype, Device device,
                        const RunnerOptions& options, std::uint64_t seed, std::uint64_t schedule,
                        const std::function<void(std::size_t, Tensor&)>& after_step);

}  // namespace roundoff
