#include "bench/cuda/timing.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"

namespace roundoff::bench {

EventStopwatch::EventStopwatch(const std::shared_ptr<simt::Runtime>& runtime)
    : begin_(runtime), end_(runtime) {
  ROUNDOFF_CHECK(runtime->device() == Device::cuda, "bench",
                 "the emulator's time is the host's and says nothing of a GPU: it is not measured");
}

double EventStopwatch::time(simt::Stream* stream, const std::function<void()>& queue,
                            const std::function<void()>& meanwhile) {
  begin_.record(*stream);
  queue();
  end_.record(*stream);
  if (meanwhile) meanwhile();
  end_.synchronize();
  return 1e-3 * end_.milliseconds_since(begin_);
}

std::vector<Timing> take_turns(std::span<const Replay> contenders, Stopwatch& stopwatch,
                               const TimingSettings& settings, const Watcher& watcher) {
  ROUNDOFF_CHECK(settings.least_rounds >= 1 && settings.most_rounds >= settings.least_rounds &&
                     settings.warm_ups >= 0,
                 "bench", settings.least_rounds, " to ", settings.most_rounds, " rounds after ",
                 settings.warm_ups, " warm-ups");
  const std::size_t n = contenders.size();
  std::vector<Timing> timings(n);
  if (n == 0) return timings;
  const auto turn = [&](std::size_t i, bool watched) {
    const Replay& c = contenders[i];
    if (c.prepare) c.prepare();
    const auto watch = [&] { watcher(i); };
    return stopwatch.time(c.stream, c.queue,
                          watched && watcher ? std::function<void()>(watch) : nullptr);
  };
  double once = 0;  // all of them
  for (int w = 0; w < settings.warm_ups; ++w) {
    once = 0;
    for (std::size_t i = 0; i < n; ++i) once += turn(i, false);
  }
  const double fitting = once > 0 ? settings.seconds / once : settings.most_rounds;
  const int rounds =
      static_cast<int>(std::clamp(fitting, static_cast<double>(settings.least_rounds),
                                  static_cast<double>(settings.most_rounds)));
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t k = (static_cast<std::size_t>(round) + i) % n;
      const double seconds = turn(k, round == rounds / 2);
      timings[k].rounds.push_back(seconds / contenders[k].passes);
    }
  return timings;
}

Rotation rotation(double bytes, double l2_bytes, double memory, int most_sets) {
  ROUNDOFF_CHECK(bytes >= 0 && most_sets >= 1, "bench", bytes, " bytes in at most ", most_sets,
                 " sets");
  const double wanted = bytes > 0 ? std::ceil(3 * l2_bytes / bytes) : most_sets;
  const double fitting = bytes > 0 ? std::floor(memory / bytes) : most_sets;
  Rotation r;
  r.sets = static_cast<int>(
      std::clamp(std::min(std::max(wanted, 2.0), fitting), 1.0, static_cast<double>(most_sets)));
  r.flushes = r.sets * bytes < 3 * l2_bytes;
  return r;
}

}  // namespace roundoff::bench
