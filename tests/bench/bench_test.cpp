// What the benchmarks are made of. No test here depends on how long anything takes.
#include <doctest/doctest.h>

#include "bench/gemm.h"
#include "bench/measure.h"
#include "bench/training.h"
#include "kernels/base/check.h"

using namespace roundoff;
using namespace roundoff::bench;

TEST_CASE("median and quartiles, linear between neighbours") {
  const Spread odd = spread({5, 1, 3, 2, 4});
  CHECK(odd.low == 2);
  CHECK(odd.median == 3);
  CHECK(odd.high == 4);
  const Spread even = spread({4, 1, 2, 3});
  CHECK(even.low == 1.75);
  CHECK(even.median == 2.5);
  CHECK(even.high == 3.25);
  const Spread one = spread({7});
  CHECK(one.low == 7);
  CHECK(one.high == 7);
  CHECK_THROWS_AS(spread({}), Error);
}

TEST_CASE("a ratio is of turns of the same round") {
  const Timing slow{{2, 40, 6}}, fast{{1, 10, 2}};
  const Spread r = ratio(slow, fast);
  CHECK(r.median == 3);  // of 2, 4, 3; the quotient of the medians is 3, too, of the means 3.7
  CHECK(r.low == 2.5);
  CHECK(r.high == 3.5);
  CHECK_THROWS_AS(ratio(slow, Timing{{1, 2}}), Error);
}

TEST_CASE("every contender has a turn in every round") {
  int first = 0, second = 0;
  const Contender contenders[] = {{"first", [&] { ++first; }}, {"second", [&] { ++second; }}};
  const std::vector<Timing> timings = measure(contenders, {.rounds = 4, .turn_seconds = 1e-6});
  REQUIRE(timings.size() == 2);
  for (const Timing& t : timings) CHECK(t.rounds.size() == 4);
  CHECK(first >= 5);
  CHECK(second >= 5);
  CHECK_THROWS_AS(measure(contenders, {.rounds = 0}), Error);
}

TEST_CASE("everything that is measured runs") {
  for (const TrainingCase& c : training_cases()) {
    CAPTURE(c.name());
    TrainingStep step(c.model, c.precision);
    for (int i = 0; i < 2; ++i) CHECK_NOTHROW(step());
  }
  CHECK_THROWS_AS(TrainingStep("unknown", Precision::fp32), Error);
  for (const Contender& c : gemm_contenders(17)) CHECK_NOTHROW(c.run());
}
