// The paired comparison: its claims, and what single cells must hold.
#include "study/list.h"
#include "study_run.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_SUITE("full") {
  TEST_CASE("study amp: its claims hold, and a conclusion stands beside its margin") {
    const study::Result result = run_quick(study::run_amp);
    REQUIRE(result.tables.size() == 3);
    const Table& paired = result.tables[0];
    REQUIRE(paired.rows().size() == 6);
    for (const std::size_t row : {1U, 2U, 4U, 5U}) {
      // The difference of the means is the mean of the differences.
      const std::size_t baseline = row < 3 ? 0 : 3;
      const double difference = number_at(paired, row, "accuracy, mean over seeds") -
                                number_at(paired, baseline, "accuracy, mean over seeds");
      // Both are sums of thousandths and thirds in fp64.
      CHECK(number_at(paired, row, "minus fp32") == doctest::Approx(difference).epsilon(1e-9));
      CHECK(number_at(paired, row, "decided differently") <= number_at(paired, row, "of"));
      CHECK(number_at(paired, row, "of") == 3000);
    }
    const Table& runs = result.tables[1];
    REQUIRE(runs.rows().size() == 9);
    for (std::size_t row = 0; row < 6; ++row) CHECK(number_at(runs, row, "skipped windows") == 0);
    // fp32 and bf16 run without a scale; the first gradient of either 16-bit type is not fp32's.
    const Table& first = result.tables[2];
    for (const std::size_t row : {0U, 1U}) CHECK(number_at(first, row, "relative deviation") > 0);
    REQUIRE(result.shows.size() == 2);
    CHECK(result.shows[0].starts_with("bf16 minus fp32"));
    CHECK(result.shows[1].starts_with("fp16 minus fp32"));
  }
}
