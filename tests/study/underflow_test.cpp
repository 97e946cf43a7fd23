// The study of underflow: its claims, and what single cells must hold.
#include "study/list.h"
#include "study_run.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_SUITE("full") {
  TEST_CASE("study underflow: its claims hold") {
    const study::Result result = run_quick(study::run_underflow);
    REQUIRE(result.tables.size() == 3);
    const Table& table = result.tables[2];
    // Two seeds, early and late, five runs each.
    REQUIRE(table.rows().size() == 20);
    for (std::size_t first = 0; first < 20; first += 5) {
      // What the fp64 gradient says is flushed is what the fp16 run holds as zeros, but for kinks
      // and for what underflow upstream took away.
      CHECK(number_at(table, first, "outputs, more zeros") ==
            doctest::Approx(number_at(table, first, "outputs flushed")).epsilon(0.05).scale(0.02));
      // Powers of two move exponents alone: nothing more is lost between 2^7 and 2^16 than
      // underflow explains.
      CHECK(number_at(table, first + 2, "relative error") <=
            1.01 * number_at(table, first + 1, "relative error"));
      // bf16 has fp32's exponents.
      CHECK(number_at(table, first + 4, "outputs flushed") == 0);
      CHECK(number_at(table, first + 4, "weights flushed") == 0);
      // Late: many elements vanish, and the direction hardly moves.
      if (first % 10 == 0) continue;
      CHECK(number_at(table, first, "outputs flushed") > 0.1);
      CHECK(number_at(table, first, "cosine") > 0.99);
    }
  }
}
