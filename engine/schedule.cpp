#include "engine/schedule.h"

#include <cmath>

#include "kernels/base/check.h"

namespace roundoff {

namespace {

void require(bool holds, const auto&... what) {
  if (!holds) throw UsageError(concat("[schedule] ", what...));
}

}  // namespace

std::string_view name(ScheduleSettings::Kind kind) {
  switch (kind) {
    case ScheduleSettings::Kind::constant:
      return "constant";
    case ScheduleSettings::Kind::cosine:
      return "cosine";
    case ScheduleSettings::Kind::step:
      return "step";
  }
  return "?";
}

ScheduleSettings::Kind parse_schedule(std::string_view text) {
  using Kind = ScheduleSettings::Kind;
  for (const Kind kind : {Kind::constant, Kind::cosine, Kind::step})
    if (name(kind) == text) return kind;
  throw UsageError(
      concat("[schedule] unknown schedule '", text, "'; constant, cosine or step expected"));
}

Schedule::Schedule(const ScheduleSettings& settings, std::int64_t total)
    : rate_{.kind = settings.kind,
            .lr = settings.lr,
            .warmup = settings.warmup,
            .min_lr = settings.min_lr,
            .gamma = settings.gamma,
            .step_every = settings.step_every,
            .total = total} {
  const ScheduleSettings& s = settings;
  require(std::isfinite(s.lr) && s.lr >= 0, "lr is ", s.lr, "; a finite number >= 0 expected");
  require(std::isfinite(s.min_lr) && s.min_lr >= 0 && (s.min_lr <= s.lr || s.min_lr == 0),
          "min_lr is ", s.min_lr, "; between 0 and lr expected");
  require(std::isfinite(s.gamma) && s.gamma > 0, "gamma is ", s.gamma, "; a number > 0 expected");
  require(s.warmup >= 0, "warmup is ", s.warmup, "; at least 0 expected");
  require(s.step_every >= 1, "step_every is ", s.step_every, "; at least 1 expected");
  require(total >= 0, "the run has ", total, " updates; at least 0 expected");
}

}  // namespace roundoff
