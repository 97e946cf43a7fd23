#include "engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

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
    : settings_(settings), total_(total) {
  const ScheduleSettings& s = settings;
  require(std::isfinite(s.lr) && s.lr >= 0, "lr is ", s.lr, "; a finite number >= 0 expected");
  require(std::isfinite(s.min_lr) && s.min_lr >= 0 && (s.min_lr <= s.lr || s.min_lr == 0),
          "min_lr is ", s.min_lr, "; between 0 and lr expected");
  require(std::isfinite(s.gamma) && s.gamma > 0, "gamma is ", s.gamma, "; a number > 0 expected");
  require(s.warmup >= 0, "warmup is ", s.warmup, "; at least 0 expected");
  require(s.step_every >= 1, "step_every is ", s.step_every, "; at least 1 expected");
  require(total >= 0, "the run has ", total, " updates; at least 0 expected");
}

double Schedule::lr(std::int64_t updates) const {
  const ScheduleSettings& s = settings_;
  if (updates < s.warmup)
    return s.lr * static_cast<double>(updates + 1) / static_cast<double>(s.warmup);
  switch (s.kind) {
    case ScheduleSettings::Kind::constant:
      return s.lr;
    case ScheduleSettings::Kind::cosine: {
      const auto span = static_cast<double>(std::max<std::int64_t>(total_ - s.warmup, 1));
      const double t = std::min(static_cast<double>(updates - s.warmup) / span, 1.0);
      return s.min_lr + (s.lr - s.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * t));
    }
    case ScheduleSettings::Kind::step:
      return s.lr * std::pow(s.gamma, static_cast<double>((updates - s.warmup) / s.step_every));
  }
  return s.lr;
}

}  // namespace roundoff
