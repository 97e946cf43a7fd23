// The reference path, timed.
#include <algorithm>

#include "bench/measure.h"
#include "bench/operands.h"
#include "bench/run.h"
#include "bench/verify.h"

namespace roundoff::bench {

namespace {

Verdict verify(const Problem& problem, const RunSettings& settings) {
  const Problem small = is_small(problem) ? problem : reduced(problem);
  const Operands operands = make_operands(small, settings.seed);
  Context context;
  PassRun run(context, small, operands);
  run();
  Verdict v = verify_all(small, operands, run.results());
  if (!is_small(problem)) v.text = concat(small.text(), ": ", v.text);
  return v;
}

}  // namespace

Report run_on_cpu(const std::vector<Problem>& problems, const RunSettings& settings) {
  constexpr auto kMeasured = Provenance::measured;
  Report report;
  for (const Problem& problem : problems) {
    settings.tell(problem, ProductKernel::automatic);
    Row row = begin_row(problem, ProductKernel::automatic);
    row.kernel = "reference";
    const Verdict verdict = verify(problem, settings);
    row.verified = verdict.text;
    row.broken = !verdict.holds;
    if (!row.broken) {
      const Operands operands = make_operands(problem, settings.seed);
      Context context;
      PassRun run(context, problem, operands);
      const Contender contender{problem.text(), [&] { run(); }};
      // Long ones have fewer turns.
      constexpr double kTurn = 0.02, kSeconds = 1.5;
      const double once = one_turn(contender.run, 1e-6);
      const int rounds = static_cast<int>(std::clamp(kSeconds / std::max(once, kTurn), 3.0, 15.0));
      const Spread s =
          measure({&contender, 1}, {.rounds = rounds, .turn_seconds = kTurn})[0].seconds();
      row.add("us", kMeasured, s.median * 1e6, "us");
      row.add("us_low", kMeasured, s.low * 1e6, "us");
      row.add("us_high", kMeasured, s.high * 1e6, "us");
      if (row.flops > 0) row.add("GFLOP/s", kMeasured, row.flops / s.median * 1e-9);
      row.add("GB/s", kMeasured, row.min_bytes / s.median * 1e-9);
    }
    report.rows.push_back(std::move(row));
  }
  report.notes.emplace_back(
      "measured: processor time of the reference path on one thread, median of the turns and "
      "quartiles; GB/s are of the least traffic");
  return report;
}

}  // namespace roundoff::bench
