// The parts of the study of gradient accumulation; each adds its tables, figures and claims.
#pragma once

#include "study/experiment.h"

namespace roundoff::study {

// One window, cut and weighted in right and wrong ways.
void accumulation_cuts(const Options& options, const Dataset& data, Result& result);
// Layers for which a window is not the batch.
void accumulation_layers(const Options& options, const Dataset& data, Result& result);
// The loop that steps at every micro-batch, beside the right one.
void accumulation_loop(const Options& options, const Dataset& data, Result& result);
// The variance of the gradient against the number of samples.
void accumulation_variance(const Options& options, const Dataset& data, Result& result);
// The mode in which windows are equal to the bit.
void accumulation_bitwise(const Options& options, const Dataset& data, Result& result);

}  // namespace roundoff::study
