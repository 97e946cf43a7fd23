#include "cli/check_report.h"

#include <cmath>

namespace roundoff::cli {

namespace {

std::string device_name(Device device) {
  constexpr const char* kNames[] = {"cpu", "sim", "cuda"};
  return kNames[static_cast<int>(device)];
}

// The sum of the first k + 1 terms of the binomial distribution B(n, p).
double binomial_cdf(std::int64_t k, std::int64_t n, double p) {
  if (p <= 0) return 1;
  if (p >= 1) return k >= n ? 1 : 0;
  double sum = 0;
  const auto size = static_cast<double>(n);
  for (std::int64_t i = 0; i <= k; ++i) {
    const auto x = static_cast<double>(i);
    sum += std::exp(std::lgamma(size + 1) - std::lgamma(x + 1) - std::lgamma(size - x + 1) +
                    x * std::log(p) + (size - x) * std::log1p(-p));
  }
  return sum;
}

// The p at which f, falling in p, passes `level`.
template <class F>
double solve(F f, double level) {
  double low = 0, high = 1;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (f(middle) > level ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::string percent(double share) {
  std::ostringstream out;
  out.precision(share < 0.1 ? 2 : 3);
  out << 100 * share << '%';
  return std::move(out).str();
}

}  // namespace

Table case_table(Device device) {
  constexpr auto kMeasured = Provenance::measured;
  return Table("check on " + device_name(device), {{"operation"},
                                                   {"dtype"},
                                                   {"case"},
                                                   {"gradient"},
                                                   {"error/bound", kMeasured, 2},
                                                   {"gradient_error/bound", kMeasured, 2},
                                                   {"rung"},
                                                   {"schedules", Provenance::counted},
                                                   {"verdict"}});
}

void add_case(Table& table, const Case& c, DType dtype, const CheckReport& r) {
  table.add_row({c.operation, std::string(name(dtype)), c.text(),
                 r.gradients.empty() ? Cell() : Cell(r.gradients), r.ratio,
                 r.gradients.empty() ? Cell() : Cell(r.gradient_ratio), r.rung_text(), r.schedules,
                 std::string(r.holds() ? "holds" : "BROKEN")});
}

void add_chain(Table& table, const Chain& chain, DType dtype, const CheckReport& r) {
  std::string steps;
  for (const ChainStep& step : chain.steps)
    steps += concat(steps.empty() ? "" : ", ", step.operation);
  table.add_row({chain.name, std::string(name(dtype)), steps, std::string("every node's"), r.ratio,
                 r.gradient_ratio, r.rung_text(), r.schedules,
                 std::string(r.holds() ? "holds" : "BROKEN")});
}

void add_case_notes(Table& table, Device device, std::int64_t schedules, bool sanitized) {
  table.add_note(
      "error/bound: the largest error over its computed bound, over random and adversarial "
      "operands; "
      "at most 1 where every element holds");
  table.add_note(
      "rung: what was climbed; 1 whole numbers bit-equal, 2 hard bound, 3 running bound, "
      "4 bit-equal to a model on the host");
  if (device != Device::sim) return;
  table.add_note(concat(sanitized ? "no fault diagnosed" : "the same bits", " under ", schedules,
                        schedules == 1 ? " schedule" : " schedules",
                        " of the emulator, where holds"));
}

Table long_table(const std::map<std::string, LongRow>& rows, Device device) {
  constexpr auto kCounted = Provenance::counted;
  constexpr auto kMeasured = Provenance::measured;
  Table table("check on " + device_name(device) + ", drawn at random",
              {{"operation"},
               {"seeds", kCounted},
               {"runs", kCounted},
               {"error/bound", kMeasured, 2},
               {"gradient_error/bound", kMeasured, 2},
               {"failures", kCounted}});
  for (const auto& [operation, row] : rows)
    table.add_row({operation, row.draws, row.runs, row.ratio, row.gradient_ratio, row.failures});
  return table;
}

std::string long_statement(std::int64_t failures, std::int64_t n, Device device) {
  const std::string on = concat(failures, failures == 1 ? " failure in " : " failures in ", n,
                                n == 1 ? " seed on " : " seeds on ", device_name(device));
  if (failures == 0)
    return concat(on, ": less than ", percent(std::min(1.0, 3 / static_cast<double>(n))),
                  " at 95% (3 / n)");
  const double low = 1 - solve([&](double q) { return binomial_cdf(n - failures, n, q); }, 0.025);
  const double high =
      failures == n ? 1.0 : solve([&](double p) { return binomial_cdf(failures, n, p); }, 0.025);
  return concat(on, ": ", percent(static_cast<double>(failures) / static_cast<double>(n)),
                ", 95% interval ", percent(low), " to ", percent(high));
}

}  // namespace roundoff::cli
