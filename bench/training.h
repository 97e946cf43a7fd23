// Whole training steps: forward with the tape, cross-entropy, backward, AdamW.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "models/precision.h"
#include "models/train_step.h"

namespace roundoff::bench {

// One step of a model on one batch that stays the same. The learning rate is 0, so that what is
// measured does not depend on how far the training has come.
class TrainingStep {
 public:
  // name: "tiny-mlp" (576-16-3, batch 16) or "convnet" (24x24x1, conv 16, pool, conv 32, pool, fc
  // 3, batch 64). Throws for another.
  TrainingStep(std::string_view name, Precision precision);
  ~TrainingStep();
  void operator()();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What it trains and on what, for other devices: the model, a batch of so many samples (0: as many
// as TrainingStep takes) in the allocator's memory, and how many those are. Throw for another name.
ModelSettings training_model(std::string_view name);
MicroBatch training_batch(Allocator& allocator, std::string_view name, std::int64_t samples = 0);
std::int64_t training_batch_size(std::string_view name);

// "tiny-mlp fp32" and so on: what TrainingStep takes, in the order of the report.
struct TrainingCase {
  std::string_view model;
  Precision precision;
  std::string name() const;
};
std::vector<TrainingCase> training_cases();

}  // namespace roundoff::bench
