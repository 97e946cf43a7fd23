// Learning-rate schedules: pure functions of the number of real updates, so that a skipped step
// does not move them on and a resumed run goes on where it was.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/step/learning_rate.h"

namespace roundoff {

struct ScheduleSettings {
  // cosine: from lr to min_lr over the run, half a cosine (Loshchilov & Hutter 2017).
  // step: times `gamma` after every `step_every` updates that follow the warm-up.
  using Kind = ScheduleKind;
  Kind kind = Kind::constant;
  double lr = 1e-3;
  // Updates over which the rate first grows linearly: update t (from 0) gets lr (t + 1) / warmup.
  std::int64_t warmup = 0;
  double min_lr = 0.0;             // cosine
  double gamma = 0.1;              // step
  std::int64_t step_every = 1000;  // step
};

std::string_view name(ScheduleSettings::Kind kind);
// Reads constant, cosine, step; throws UsageError naming the text.
ScheduleSettings::Kind parse_schedule(std::string_view text);

class Schedule {
 public:
  // total: updates of the whole run (cosine ends there). Throws UsageError naming the setting.
  Schedule(const ScheduleSettings& settings, std::int64_t total);
  // Rate of the update that follows `updates` real ones.
  double lr(std::int64_t updates) const { return learning_rate(rate_, updates); }
  // The same as data, for a device that counts its own updates.
  const LearningRate& rate() const { return rate_; }

 private:
  LearningRate rate_;
};

}  // namespace roundoff
