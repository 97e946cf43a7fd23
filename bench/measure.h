// Times of things that are compared: they take turns, so that a change of the machine's load or
// clock meets all of them, and what is reported is the median over the turns with its quartiles.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace roundoff::bench {

struct Contender {
  std::string name;
  std::function<void()> run;
};

struct MeasureSettings {
  int rounds = 15;             // turns of each contender, at least 1
  double turn_seconds = 0.02;  // a turn repeats its contender for about this long
};

// The median of some values and the quartiles beside it.
struct Spread {
  double median = 0;
  double low = 0;
  double high = 0;
};
// Throws for no values.
Spread spread(std::vector<double> values);

struct Timing {
  std::vector<double> rounds;  // seconds a run, of each turn
  Spread seconds() const { return spread(rounds); }
};

// Runs every contender once, to settle caches and workspaces and to see how many runs fill a turn,
// then round after round; which one begins moves on by one each round. One timing a contender.
std::vector<Timing> measure(std::span<const Contender> contenders, const MeasureSettings& settings);

// Seconds a run over one turn of about `seconds`.
double one_turn(const std::function<void()>& run, double seconds);

// How many times as long `a` takes as `b`: quotients of the same round.
Spread ratio(const Timing& a, const Timing& b);

}  // namespace roundoff::bench
