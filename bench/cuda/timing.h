// Times on a device: contenders take turns in one process, each turn one replay between two events;
// what is reported is the median over the rounds with its quartiles (bench/measure.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "kernels/simt/runtime.h"

namespace roundoff::bench {

class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  // Seconds that the work takes which `queue` queues on the stream; waits for it. `meanwhile` is
  // called when all is queued, while it runs. A clock that is no device's may do without a stream.
  virtual double time(simt::Stream* stream, const std::function<void()>& queue,
                      const std::function<void()>& meanwhile) = 0;
};

// By the device's events. Throws for the emulator, whose time is the host's.
class EventStopwatch final : public Stopwatch {
 public:
  explicit EventStopwatch(const std::shared_ptr<simt::Runtime>& runtime);
  double time(simt::Stream* stream, const std::function<void()>& queue,
              const std::function<void()>& meanwhile) override;

 private:
  simt::Event begin_, end_;
};

struct Replay {
  simt::Stream* stream = nullptr;
  std::function<void()> prepare{};  // queued before the clock starts; may be empty
  std::function<void()> queue{};    // one replay
  int passes = 1;                   // of the problem in it
};

struct TimingSettings {
  int least_rounds = 7;
  int most_rounds = 51;
  double seconds = 0.5;  // that all rounds of all contenders may take together, about
  int warm_ups = 2;      // of each before the first round
};

// What is seen while contender `i` runs, once in a while.
using Watcher = std::function<void(std::size_t)>;

// Seconds a pass, of every round; which contender begins moves on by one each round.
std::vector<Timing> take_turns(std::span<const Replay> contenders, Stopwatch& stopwatch,
                               const TimingSettings& settings, const Watcher& watcher = {});

// How a problem's arrays rotate: so many sets of them that a pass finds nothing of its operands in
// the L2 cache, whose size three sets exceed together.
struct Rotation {
  int sets = 1;
  // Where they would be too many, the cache is overwritten before each replay instead.
  bool flushes = false;
};
// bytes: of one set; `memory`: that all sets may take together.
Rotation rotation(double bytes, double l2_bytes, double memory, int most_sets = 64);

}  // namespace roundoff::bench
