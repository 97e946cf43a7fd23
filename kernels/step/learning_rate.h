// Learning-rate schedules as pure functions of the number of real updates, for host and device: a
// skipped step does not move them on, and a device that counts its own updates needs nothing from
// the host. All in fp64; the same bits everywhere, so neither uses a library's cos or pow.
//
//   t < warmup   lr (t + 1) / warmup
//   constant     lr
//   cosine       min_lr + (lr - min_lr) (1 + cos(pi s)) / 2,  s = (t - warmup) / (total - warmup),
//                at most 1 (Loshchilov and Hutter 2017)
//   step         lr gamma^((t - warmup) / step_every), the quotient rounded down
#pragma once

#include <cstdint>

#include "kernels/base/target.h"

namespace roundoff {

enum class ScheduleKind : unsigned char { constant, cosine, step };

struct LearningRate {
  ScheduleKind kind = ScheduleKind::constant;
  double lr = 1e-3;
  std::int64_t warmup = 0;
  double min_lr = 0.0;
  double gamma = 0.1;
  std::int64_t step_every = 1000;
  std::int64_t total = 0;  // updates of the whole run
};

// base^n for n >= 0 by squaring: a relative error of at most n units in the last place.
ROUNDOFF_HD constexpr double integer_power(double base, std::int64_t n) {
  double power = 1.0;
  for (; n > 0; n /= 2) {
    if (n % 2 != 0) power *= base;
    base *= base;
  }
  return power;
}

// cos(pi t) for t in [0, 1], to a few units in the last place; exact at 0, 1/2 and 1.
ROUNDOFF_HD constexpr double cos_pi(double t) {
  // Series around 0, the middle and 1, each for |x| <= pi / 4: the first term left out is 1e-18.
  const double nearest = t <= 0.25 ? 0.0 : t < 0.75 ? 0.5 : 1.0;
  const double x = 3.14159265358979323846 * (t - nearest);
  const double y = x * x;
  const int first = nearest == 0.5 ? 1 : 0;
  double sum = 1.0;
  for (int k = 16 + first; k > first; k -= 2)
    sum = 1.0 - y / static_cast<double>(k * (k - 1)) * sum;
  return nearest == 0.5 ? -x * sum : nearest == 1.0 ? -sum : sum;
}

ROUNDOFF_HD constexpr double learning_rate(const LearningRate& r, std::int64_t updates) {
  if (updates < r.warmup)
    return r.lr * static_cast<double>(updates + 1) / static_cast<double>(r.warmup);
  const std::int64_t done = updates - r.warmup;
  if (r.kind == ScheduleKind::cosine) {
    const std::int64_t span = r.total - r.warmup > 1 ? r.total - r.warmup : 1;
    const double t = done < span ? static_cast<double>(done) / static_cast<double>(span) : 1.0;
    return r.min_lr + (r.lr - r.min_lr) * 0.5 * (1.0 + cos_pi(t));
  }
  if (r.kind == ScheduleKind::step) return r.lr * integer_power(r.gamma, done / r.step_every);
  return r.lr;
}

}  // namespace roundoff
