// The study `sanity`, on fewer seeds.
#include <doctest/doctest.h>

#include "study/faulty_loops.h"
#include "study/list.h"
#include "tests/study/study_run.h"

using namespace roundoff;

TEST_CASE("sanity: its claims hold, and faults are where they are looked for") {
  const study::Result result = test::run_quick(
      [](const study::Options&) { return study::run_sanity({.quick = true, .seeds = {4}}); });
  REQUIRE(result.tables.size() == 4);
  const Table& found = result.tables[1];
  const auto verdict = [&](study::Fault fault, std::size_t check) {
    return std::get<std::string>(found.rows().at(static_cast<std::size_t>(fault)).at(check + 1));
  };
  // Old gradients are there only from the second window on.
  for (const std::size_t check : {0U, 1U, 2U})
    CHECK(verdict(study::Fault::keeps_gradients, check) == "missed");
  CHECK(verdict(study::Fault::keeps_gradients, 3) == "found");
  CHECK(verdict(study::Fault::none, 3) == "passes");
  CHECK(verdict(study::Fault::averages_means, 0) == "missed");
  CHECK(verdict(study::Fault::averages_means, 2) == "found");
  // What was measured and what was computed stand in tables of their own.
  CHECK(result.tables[2].rows().size() == found.rows().size());
  CHECK(result.tables[3].columns()[1].provenance == Provenance::modelled);
}

TEST_CASE("a study stops where it is asked to") {
  study::Options options{.quick = true};
  options.stop = [] { return true; };
  CHECK_THROWS_AS(study::run_sanity(options), study::Interrupted);
}
