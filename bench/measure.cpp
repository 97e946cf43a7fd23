#include "bench/measure.h"

#include <algorithm>
#include <cmath>
#include <ctime>

#include "kernels/base/check.h"

namespace roundoff::bench {

namespace {

// Processor time of the process, so that others on the machine count only by the caches and the
// clock that they share with it. All that is measured here runs on one thread.
double now() {
  timespec t{};
  ROUNDOFF_CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0, "bench", "no processor clock");
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_of(const std::function<void()>& run, std::int64_t times) {
  const double begin = now();
  for (std::int64_t i = 0; i < times; ++i) run();
  return now() - begin;
}

// Runs that take about `seconds`, found by doubling.
std::int64_t runs_for(const std::function<void()>& run, double seconds) {
  std::int64_t times = 1;
  for (;;) {
    const double taken = seconds_of(run, times);
    if (taken >= seconds / 4 || times >= (std::int64_t{1} << 30)) {
      const double wanted = seconds / std::max(taken, 1e-9) * static_cast<double>(times);
      return std::max<std::int64_t>(1, std::llround(wanted));
    }
    times *= 2;
  }
}

}  // namespace

Spread spread(std::vector<double> values) {
  ROUNDOFF_CHECK(!values.empty(), "bench", "no measurements");
  std::sort(values.begin(), values.end());
  // Linear between neighbours.
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto i = static_cast<std::size_t>(place);
    const double rest = place - static_cast<double>(i);
    return rest == 0 ? values[i] : values[i] + rest * (values[i + 1] - values[i]);
  };
  return {.median = at(0.5), .low = at(0.25), .high = at(0.75)};
}

std::vector<Timing> measure(std::span<const Contender> contenders,
                            const MeasureSettings& settings) {
  ROUNDOFF_CHECK(settings.rounds >= 1 && settings.turn_seconds > 0, "bench", settings.rounds,
                 " rounds of ", settings.turn_seconds, " s, at least one of some length expected");
  const std::size_t n = contenders.size();
  std::vector<std::int64_t> times;
  for (const Contender& c : contenders) {
    c.run();
    times.push_back(runs_for(c.run, settings.turn_seconds));
  }
  std::vector<Timing> timings(n);
  for (int round = 0; round < settings.rounds; ++round) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t k = (static_cast<std::size_t>(round) + i) % n;
      timings[k].rounds.push_back(seconds_of(contenders[k].run, times[k]) /
                                  static_cast<double>(times[k]));
    }
  }
  return timings;
}

double one_turn(const std::function<void()>& run, double seconds) {
  run();
  const std::int64_t times = runs_for(run, seconds);
  return seconds_of(run, times) / static_cast<double>(times);
}

Spread ratio(const Timing& a, const Timing& b) {
  ROUNDOFF_CHECK(a.rounds.size() == b.rounds.size(), "bench", "timings of ", a.rounds.size(),
                 " and ", b.rounds.size(), " rounds");
  std::vector<double> quotients;
  for (std::size_t i = 0; i < a.rounds.size(); ++i) quotients.push_back(a.rounds[i] / b.rounds[i]);
  return spread(std::move(quotients));
}

}  // namespace roundoff::bench
