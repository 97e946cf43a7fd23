#include "study/list.h"

#include <array>

namespace roundoff::study {

std::span<const Study> studies() {
  // One line a study, in the order of a report.
  static constexpr std::array kStudies{
      Study{"accumulation",
            "Does a window of micro-batches give the large batch's gradient, and what breaks it?",
            run_accumulation},
      Study{"underflow",
            "How much of a gradient does fp16 flush to zero, and what does scaling save?",
            run_underflow},
      Study{"masters", "What do fp32 masters save, and can stochastic rounding do without them?",
            run_masters},
      Study{"scaler", "Where does a loss scale settle, when does it fail, what is clipped when?",
            run_scaler},
      Study{"amp", "Does mixed precision change the test accuracy by more than one point?",
            run_amp},
      Study{"accumulator", "How does the error of a sum grow with its length, by accumulator?",
            run_accumulator},
      Study{"sanity", "Does training work at all, and which faults does learning by heart miss?",
            run_sanity},
      Study{"memory", "Where does the memory of a step go, and what does a careless clock show?",
            run_memory},
  };
  return kStudies;
}

}  // namespace roundoff::study
