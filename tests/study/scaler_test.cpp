// The study of loss scaling: its claims, and what single cells must hold.
#include "study/list.h"
#include "study_run.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_SUITE("full") {
  TEST_CASE("study scaler: its claims hold") {
    const study::Result result = run_quick(study::run_scaler);
    REQUIRE(result.tables.size() == 8);
    // The settings: a scale that fits skips nothing, one that does not steps never.
    const Table& settings = result.tables[1];
    const double windows = number_at(settings, 0, "windows");
    CHECK(number_at(settings, 6, "skipped") == 0);
    CHECK(number_at(settings, 8, "skipped") == windows);
    CHECK(number_at(settings, 0, "gradient elements flushed") == 0);
    // From 2^40 down to what fits, one window each: more than from 2^16 up.
    CHECK(number_at(settings, 1, "skipped") > number_at(settings, 0, "skipped"));
    // Back-off by 0.9 needs more windows for the way down than back-off by a half.
    CHECK(number_at(settings, 4, "skipped") > number_at(settings, 1, "skipped"));
    // Targets that no scale fits: 141 scales were tried for each.
    const Table& units = result.tables[3];
    for (std::size_t row = 0; row < 3; ++row) CHECK(number_at(units, row, "scales tried") == 141);
    CHECK(number_at(units, 0, "both") == 0);
  }
}
