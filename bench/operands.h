// A problem's arrays and one run of its pass, on any device: what all benchmarks share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bench/problem.h"
#include "engine/context.h"
#include "ops/run.h"

namespace roundoff::bench {

// On the host. Normally distributed (zeros run faster on GPUs, by the power they do not take);
// labels and indices uniform, and none of them ignored.
struct Operands {
  NamedTensors inputs;
  Tensor dy;  // where the pass goes backward
};
// The same for the same problem and seed. A large array repeats 65,521 values, whose number is
// prime so that rows differ.
Operands make_operands(const Problem& problem, std::uint64_t seed);

// The pass of one problem with its arrays in a context's memory.
class PassRun {
 public:
  // `begin` is called before the pass's own work and `end` after it, forward too where the pass is
  // a gradient's: what was queued between the two is the pass.
  struct Marks {
    std::function<void()> begin, end;
  };

  PassRun(Context& context, const Problem& problem, const Operands& operands);
  // Queues the pass; a gradient's runs forward first, once, and what that keeps is used again.
  void operator()(const Marks& marks = {});
  // What the last run wrote, in the context's memory: "y", or "dx" and so on. Waits for it.
  NamedTensors results();

 private:
  void record();

  Context& context_;
  const Problem& problem_;
  OpParameters parameters_;
  NamedTensors inputs_;
  std::map<std::string, Tensor, std::less<>> leaves_;  // by "dx"
  Tensor dy_, y_;
  NamedTensors outputs_;
};

}  // namespace roundoff::bench
