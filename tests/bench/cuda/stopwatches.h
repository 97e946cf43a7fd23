// Clocks for tests: the work runs, and the times are made up.
#pragma once

#include <map>
#include <vector>

#include "bench/cuda/timing.h"

namespace roundoff::bench {

// Each stream has a time of its own: `first` seconds for the one that was timed first, twice as
// many for the second, and so on.
class MadeUpClock final : public Stopwatch {
 public:
  explicit MadeUpClock(double first) : first_(first) {}
  double time(simt::Stream* stream, const std::function<void()>& queue,
              const std::function<void()>& meanwhile) override {
    queue();
    if (meanwhile) meanwhile();
    stream->synchronize();
    const auto [found, fresh] = number_.try_emplace(stream, number_.size() + 1);
    order.push_back(found->second);
    return first_ * static_cast<double>(found->second);
  }
  std::vector<std::size_t> order;  // which stream each turn was

 private:
  double first_;
  std::map<const simt::Stream*, std::size_t> number_;
};

}  // namespace roundoff::bench
