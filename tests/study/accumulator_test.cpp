// The study of accumulators: its claims, and the chains that it is made of.
#include "kernels/base/format.h"
#include "study/chained_product.h"
#include "study/list.h"
#include "study_run.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_CASE("chained products: each accumulator against sums worked out by hand") {
  using study::chained_product;
  const auto product = [](Accumulator a, const std::vector<double>& x,
                          const std::vector<double>& y) {
    return chained_product(a, 1, 1, static_cast<std::int64_t>(x.size()), x, y)[0];
  };
  // 1 + 2^-24 ties to 1 in fp32, twice; one block of a tensor core adds before it cuts.
  const std::vector<double> x{1, 0x1p-12, 0x1p-12}, y{1, 0x1p-12, 0x1p-12};
  CHECK(product(Accumulator::fp32, x, y) == 1);
  CHECK(product(Accumulator::h100, x, y) == 1 + 0x1p-23);
  CHECK(product(Accumulator::a100, x, y) == 1 + 0x1p-23);
  CHECK(product(Accumulator::v100, x, y) == 1);  // its alignment keeps 23 bits: both are cut
  CHECK(product(Accumulator::fp16, x, y) == 1);
  // Rounding to nearest goes up where truncation does not: 1 + 1.5 * 2^-24.
  const std::vector<double> up{1, 0x1.8p-12}, by{1, 0x1p-12};
  CHECK(product(Accumulator::fp32, up, by) == 1 + 0x1p-23);
  CHECK(product(Accumulator::h100, up, by) == 1);
  // 2 x 2 results from the right rows and columns.
  CHECK(chained_product(Accumulator::fp16, 2, 2, 2, std::vector<double>{1, 2, 3, 4},
                        std::vector<double>{5, 6, 7, 8}) == std::vector<double>{19, 22, 43, 50});
  CHECK(chained_product(Accumulator::a100, 2, 2, 2, std::vector<double>{1, 2, 3, 4},
                        std::vector<double>{5, 6, 7, 8}) == std::vector<double>{19, 22, 43, 50});
  CHECK_THROWS_AS(product(Accumulator::fp64, x, y), Error);
}

TEST_SUITE("full") {
  TEST_CASE("study accumulator: its claims hold") {
    const study::Result result = run_quick(study::run_accumulator);
    REQUIRE(result.tables.size() == 2);
    // The fp16 accumulator ends at a length that the others pass.
    CHECK(result.figures.size() == 5);
    CHECK(result.figures[0].series.size() == 7);
  }
}
