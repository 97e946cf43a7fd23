// What a benchmark says: a row is one kernel (or a vendor's library) on one problem, its figures
// each with where they come from. `roundoff bench` makes tables, JSON and the roofline of rows,
// whichever device they are from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bench/provenance.h"

namespace roundoff::bench {

using MetricValue = std::variant<std::string, double, std::int64_t>;

struct Metric {
  std::string name;  // the column, as scripts read it: "global_load_sectors", "TFLOP/s"
  Provenance provenance = Provenance::none;  // none for text alone
  MetricValue value;
  std::string unit{};
  int digits = 4;       // significant digits in text
  bool detail = false;  // in JSON and CSV alone
  std::string part{};   // figures of one part stand in a table of their own: "code"
};

struct Row {
  std::string operation;  // "matmul"
  std::string pass;       // "forward", "dgrad", ...
  std::string problem;    // "4096x4096x4096 nn", as Problem::text has it
  std::string dtype;
  std::string out_dtype;
  std::string kernel;  // a rung's name, or "cuBLASLt"; what ran where `automatic` was asked for
  // Why this kernel does not take the problem; such a row has no figures.
  std::string refusal;
  // What was compared with the oracle before anything was counted or timed.
  std::string verified;
  // It was, and is wrong: nothing else is reported of it.
  bool broken = false;
  // What ran where not everything did: "2 of 2048 clusters, counters scaled".
  std::string sample;

  // A column exists in the table where a row has the metric; its place is that of the first row
  // that has it.
  std::vector<Metric> metrics;

  // The problem's arithmetic, and its least traffic with device memory: modelled. 0: not known.
  double flops = 0;
  double min_bytes = 0;

  void add(std::string name, Provenance provenance, MetricValue value, std::string unit = {},
           int digits = 4) {
    metrics.push_back({std::move(name), provenance, std::move(value), std::move(unit), digits});
  }
  void add_detail(std::string name, Provenance provenance, MetricValue value,
                  std::string unit = {}) {
    metrics.push_back({std::move(name), provenance, std::move(value), std::move(unit), 6, true});
  }
  // Null where there is none of this name and provenance.
  const Metric* find(std::string_view name, Provenance provenance) const;
  // The value as a number; `otherwise` where there is none.
  double number(std::string_view name, Provenance provenance, double otherwise = 0) const;
};

struct Report {
  std::vector<Row> rows;
  // What holds for all of them: lines under the table.
  std::vector<std::string> notes;
};

// Throws Error, naming row and figure, where a row says a rate above what its device can do: such a
// measurement is wrong. 0: that peak is not known.
void refuse_above_peak(const Row& row, double flops_per_second, double peak_flops,
                       double bytes_per_second, double peak_bytes);

}  // namespace roundoff::bench
