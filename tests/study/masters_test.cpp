// The study of master weights: its claims, and what single cells must hold.
#include "study/list.h"
#include "study_run.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_SUITE("full") {
  TEST_CASE("study masters: its claims hold") {
    const study::Result result = run_quick(study::run_masters);
    REQUIRE(result.tables.size() >= 3);
    // One weight of 1: fp32 moves at every update, 16 bit to nearest never.
    const Table& one = result.tables[0];
    CHECK(number_at(one, 0, "updates that moved it") == 4096);
    CHECK(number_at(one, 1, "updates that moved it") == 0);
    CHECK(number_at(one, 2, "updates that moved it") == 0);
    CHECK(number_at(one, 3, "updates that moved it") > 0);
    // Pure bf16 swallows, and loses distance by it; its weights never move further than asked for.
    const Table& arms = result.tables[1];
    CHECK(number_at(arms, 3, "swallowed") > 0);
    CHECK(number_at(arms, 3, "distance lost") > number_at(arms, 4, "distance lost"));
    CHECK(number_at(arms, 4, "distance lost") > 0);
    for (std::size_t row = 0; row < 7; ++row) {
      CHECK(number_at(arms, row, "element updates") > 0);
      CHECK(number_at(arms, row, "swallowed") <= number_at(arms, row, "element updates"));
    }
    CHECK(result.seeds == std::vector<std::uint64_t>{1, 2, 3});
  }
}
