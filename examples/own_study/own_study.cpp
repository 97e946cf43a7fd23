// A study of one's own: where does a running sum of ones stop growing, format by format?
#include <iostream>

#include "kernels/base/bfloat16.h"
#include "kernels/base/half.h"
#include "study/report.h"

namespace {

using namespace roundoff;

// Adds 1 to a sum held in T, n times; what the sum is after each power of two of additions.
template <class T>
study::Series running_sum(const char* name, int doublings) {
  study::Series series{name};
  series.style = study::Series::Style::line_and_dots;
  T sum(0.0F);
  for (std::int64_t n = 1; n <= std::int64_t{1} << doublings; ++n) {
    sum = T(static_cast<float>(sum) + 1.0F);
    if ((n & (n - 1)) != 0) continue;
    series.x.push_back(static_cast<double>(n));
    series.y.push_back(static_cast<float>(sum));
  }
  return series;
}

study::Result run_own(const study::Options& options) {
  study::begin(options, "adding ones");
  const int doublings = options.quick ? 14 : 20;
  study::Figure figure{"running-sum", "A running sum of ones, rounded after every addition.",
                       "additions", "sum"};
  figure.log_x = figure.log_y = true;
  figure.series = {running_sum<float>("fp32", doublings), running_sum<Half>("fp16", doublings),
                   running_sum<BFloat16>("bf16", doublings)};
  Table table("Where the sum stops", {{"format"}, {"last sum", Provenance::measured, 0}});
  for (const study::Series& s : figure.series) table.add_row({s.name, s.y.back()});
  const double fp16 = figure.series[1].y.back();
  const double bf16 = figure.series[2].y.back();
  return {.title = "Sums that stop",
          .question = "Where does a running sum of ones stop growing?",
          .method = {"One is added to a sum that is rounded to the format after each addition."},
          .tables = {table},
          .figures = {figure},
          .claims = {{"The sum stops at 2^p: 2048 in fp16, 256 in bf16.",
                      concat("fp16: ", fp16, ", bf16: ", bf16), fp16 == 2048 && bf16 == 256}},
          .shows = {"An accumulator needs more digits than what it adds."},
          .does_not_show = {"What another order of summation would do."}};
}

}  // namespace

int main(int argc, char** argv) {
  const study::Result result = run_own({.quick = true});
  const study::Listing listing =
      study::write_report(argc > 1 ? argv[1] : "own-report", "own", result,
                          {.program = "own_study", .command = argv[0]});
  std::cout << listing.held << " of " << listing.claims << " claims hold\n";
  return listing.held == listing.claims ? 0 : 1;
}
