// doctest's main, stricter: a run without a single test case fails, and a skip of any kind shows.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <iostream>

#include "tests/skip.h"

namespace {

constexpr int kFailed = 1;
constexpr int kSkipped = 77;

bool skipped = false;
unsigned cases_run = 0;

struct Listener : doctest::IReporter {
  explicit Listener(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override { ++cases_run; }
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData& test) override {
    if (test.m_skip) skip_test(test.m_name);
  }
};
DOCTEST_REGISTER_LISTENER("skips", 1, Listener);

}  // namespace

void skip_test(std::string_view reason) {
  skipped = true;
  std::cout << "skipped: " << reason << '\n';
}

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int status = context.run();
  if (context.shouldExit() || status != 0) return status;
  if (skipped) return kSkipped;
  if (cases_run == 0) {
    std::cerr << "no test case ran\n";
    return kFailed;
  }
  return 0;
}
