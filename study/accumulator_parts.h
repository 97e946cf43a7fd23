// The parts of the study of accumulators (accumulator.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/target.h"
#include "study/study.h"

namespace roundoff::study {

// Whether it cuts its sums in place of rounding them: the GPUs' tensor cores.
constexpr bool truncates(Accumulator a) {
  return a == Accumulator::v100 || a == Accumulator::a100 || a == Accumulator::h100;
}

// Adds a table and claims: the same runs with one accumulator after another.
void accumulator_training(const Options& options, const std::vector<std::uint64_t>& seeds,
                          Result& result);

}  // namespace roundoff::study
