// Whether a run's results are right, before anything is reported of it: against the fp64 oracles,
// within computed bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "bench/operands.h"

namespace roundoff::bench {

struct Verdict {
  bool holds = true;
  std::string text;  // "all 65536 elements within bounds", or what is wrong
};

// Every element of every result. `results`: of PassRun, of any device. `device_core`: the GPU's
// tensor cores (device_tensor_core of verify/reference.h).
Verdict verify_all(const Problem& problem, const Operands& operands, const NamedTensors& results,
                   std::optional<Accumulator> device_core = {});

// Elements of a product all over its results, the first and the last of each among them.
Verdict verify_sampled(const Problem& problem, const Operands& operands,
                       const NamedTensors& results, std::optional<Accumulator> device_core = {});

// Of a product some of the elements that were written: of a run of a part of its blocks, whose
// other results hold what the emulator's new memory holds.
Verdict verify_written(const Problem& problem, const Operands& operands,
                       const NamedTensors& results);

// Whether all of it can be run and compared within a second or so.
bool is_small(const Problem& problem);

}  // namespace roundoff::bench
