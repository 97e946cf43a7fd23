// Tables of `roundoff bench`.
#pragma once

#include <string>
#include <vector>

#include "bench/result.h"
#include "bench/table.h"

namespace roundoff::cli {

// Everything, for JSON and CSV: a row a row, a column a metric. Throws Error where one name has two
// provenances: they never share a column.
Table bench_table(const std::string& title, const bench::Report& report);

// The same for people: a table for each operation and pass and each provenance, without the columns
// that say little, then what was verified, sampled and refused, in words.
std::vector<Table> bench_text(const std::string& title, const bench::Report& report);

}  // namespace roundoff::cli
