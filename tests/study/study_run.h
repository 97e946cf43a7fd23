// A study as a test sees it: all of its claims hold, and its tables can be asked for a value.
#pragma once

#include <doctest/doctest.h>

#include <iostream>
#include <string_view>

#include "study/study.h"

namespace roundoff::test {

inline study::Result run_quick(study::Result (*run)(const study::Options&)) {
  study::Result result = run({.quick = true});
  for (const study::Claim& claim : result.claims) {
    INFO(claim.text << " [" << claim.seen << "]");
    CHECK(claim.holds);
    CHECK_FALSE(claim.seen.empty());
  }
  CHECK_FALSE(result.title.empty());
  CHECK_FALSE(result.question.empty());
  CHECK_FALSE(result.method.empty());
  CHECK_FALSE(result.tables.empty());
  CHECK_FALSE(result.figures.empty());
  CHECK_FALSE(result.claims.empty());
  CHECK_FALSE(result.shows.empty());
  CHECK_FALSE(result.does_not_show.empty());
  for (const study::Figure& figure : result.figures)
    for (const study::Series& series : figure.series) {
      INFO(figure.name << ", " << series.name);
      CHECK(series.x.size() == series.y.size());
      CHECK_FALSE(series.x.empty());
    }
  return result;
}

// The number in a table's row and the column of that name.
inline double number_at(const Table& table, std::size_t row, std::string_view column) {
  for (std::size_t c = 0; c < table.columns().size(); ++c) {
    if (table.columns()[c].name != column) continue;
    const Cell& cell = table.rows().at(row).at(c);
    if (const auto* whole = std::get_if<std::int64_t>(&cell)) return static_cast<double>(*whole);
    if (const auto* real = std::get_if<double>(&cell)) return *real;
    FAIL("no number in column " << column << ", row " << row);
  }
  FAIL("no column " << column);
  return 0;
}

}  // namespace roundoff::test
