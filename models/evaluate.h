// Predictions of a model and how many of them are right.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/metrics.h"
#include "models/model.h"

namespace roundoff {

// The class with the largest logit in each row [N, classes], the first of equals; -1 for a row that
// holds a NaN. correct[i] = whether it equals labels[i], where a place for it is given. Returns the
// number that do.
std::int64_t count_correct(const Tensor& logits, const Tensor& labels,
                           std::span<std::uint8_t> correct = {});

// x in the type that the model takes: 16 bit for a model without fp32 masters, else as it is.
Tensor model_input(Context& context, const Model& model, const Tensor& x);

struct Evaluation {
  std::int64_t samples = 0;
  std::int64_t correct_count = 0;
  double loss = 0;                    // mean cross-entropy
  std::vector<std::uint8_t> correct;  // a sample each
  double accuracy() const {
    return samples == 0 ? 0 : static_cast<double>(correct_count) / static_cast<double>(samples);
  }
  Interval interval() const { return wilson_interval(correct_count, samples); }
};

// Runs the model over the split in evaluation mode, in the context's precision, without a tape.
Evaluation evaluate(Context& context, Model& model, const Split& split,
                    const Normalization& normalization, std::int64_t batch = 250);

}  // namespace roundoff
