// The study of memory: its claims, and what single cells must hold.
#include "engine/context.h"
#include "study/list.h"
#include "study_run.h"

using namespace roundoff;
using namespace roundoff::test;

TEST_SUITE("full") {
  TEST_CASE("study memory: its claims hold, and what needs a GPU is said to be skipped") {
    const study::Result result = run_quick(study::run_memory);
    REQUIRE(result.tables.size() >= 3);
    const Table& peaks = result.tables[0];
    REQUIRE(peaks.rows().size() == 28);
    // Half the bytes for parameters that are 16 bit, once and a half for a copy beside masters.
    CHECK(number_at(peaks, 7, "parameters") == 1.5 * number_at(peaks, 0, "parameters"));
    CHECK(number_at(peaks, 21, "parameters") == 0.5 * number_at(peaks, 0, "parameters"));
    for (std::size_t row = 1; row < 28; ++row)
      if (row % 7 != 0)
        CHECK(number_at(peaks, row, "activations") > number_at(peaks, row - 1, "activations"));
    for (std::size_t row = 0; row < 28; ++row)
      CHECK(number_at(peaks, row, "together") >= number_at(peaks, row, "activations"));
    const bool gpu = device_refusal(Device::cuda).empty();
    CHECK(result.skipped.empty() == gpu);
    if (!gpu) CHECK(result.skipped[0].find("needs a GPU") != std::string::npos);
  }
}
