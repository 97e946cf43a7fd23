// The tables of `roundoff check`.
#pragma once

#include <map>
#include <string>

#include "bench/table.h"
#include "verify/chain.h"

namespace roundoff::cli {

// One row a case and dtype.
Table case_table(Device device);
void add_case(Table& table, const Case& c, DType dtype, const CheckReport& report);
void add_chain(Table& table, const Chain& chain, DType dtype, const CheckReport& report);
void add_case_notes(Table& table, Device device, std::int64_t schedules, bool sanitized);

struct LongRow {
  std::int64_t draws = 0, runs = 0, failures = 0;
  double ratio = 0, gradient_ratio = 0;
};
// One row an operation.
Table long_table(const std::map<std::string, LongRow>& rows, Device device);

// "0 failures in 1000 seeds: less than 0.3% at 95% (3 / n)"; with failures their share and its
// interval. One-sided for none (the rule of three), else Clopper and Pearson's two-sided interval.
std::string long_statement(std::int64_t failures, std::int64_t n, Device device);

}  // namespace roundoff::cli
