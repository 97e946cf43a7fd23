// The studies' functions, for list.cpp.
#pragma once

#include "study/study.h"

namespace roundoff::study {

Result run_accumulation(const Options& options);
Result run_accumulator(const Options& options);
Result run_amp(const Options& options);
Result run_masters(const Options& options);
Result run_memory(const Options& options);
Result run_sanity(const Options& options);
Result run_scaler(const Options& options);
Result run_underflow(const Options& options);

}  // namespace roundoff::study
