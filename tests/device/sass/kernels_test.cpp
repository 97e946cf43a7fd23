// The kernels of this build, as nvcc compiled them, against the table of expectations.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/device/sass/expectations.h"

using namespace roundoff;
using evidence::KernelCode;

namespace {

const std::vector<KernelCode>& kernels() {
  static const std::vector<KernelCode> all =
      evidence::read_kernels(std::filesystem::path(ROUNDOFF_KERNEL_LIBRARY));
  return all;
}

std::string title(const KernelCode& code) {
  return "sm_" + std::to_string(code.architecture) + (code.specific ? "a " : " ") + code.name;
}

}  // namespace

TEST_CASE("the library has code for sm_80 and sm_90a, of the same kernels") {
  std::map<int, std::vector<std::string>> symbols;
  for (const KernelCode& code : kernels()) {
    CHECK(code.specific == (code.architecture == 90));
    symbols[code.architecture].push_back(code.symbol);
  }
  REQUIRE(symbols.size() == 2);
  for (auto& [architecture, names] : symbols) std::sort(names.begin(), names.end());
  CHECK(symbols[80].size() > 100);
  CHECK(symbols[80] == symbols[90]);
}

TEST_CASE("no kernel spills, has a stack frame or a block that does not fit") {
  for (const KernelCode& code : kernels())
    for (const std::string& failure : testing::failures_of_any(code))
      FAIL_CHECK(title(code) << ": " << failure);
}

TEST_CASE("kernels have the instructions and registers that their design asks for") {
  for (const testing::Expectation& expected : testing::expectations()) {
    std::size_t covered = 0;
    for (const KernelCode& code : kernels()) {
      if (!expected.covers(code)) continue;
      ++covered;
      for (const std::string& failure : testing::failures(expected, code))
        FAIL_CHECK(title(code) << ": " << failure);
    }
    // A row of the table that no kernel answers to has lost its kernel.
    CAPTURE(expected.kernel);
    CHECK((covered > 0 || expected.may_be_absent));
  }
}

TEST_CASE("tensor cores are used by no kernel that the table does not know") {
  for (const KernelCode& code : kernels()) {
    if (code.census.of(evidence::Sass::hmma).total == 0 &&
        code.census.of(evidence::Sass::hgmma).total == 0)
      continue;
    const auto known = testing::expectations();
    const bool covered = std::any_of(known.begin(), known.end(), [&](const auto& expected) {
      return expected.covers(code) && (testing::has(expected.needs, testing::Needs::mma) ||
                                       testing::has(expected.needs, testing::Needs::wgmma));
    });
    if (!covered) FAIL_CHECK(title(code) << ": multiplies by tensor cores and is in no row");
  }
}
