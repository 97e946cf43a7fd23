// Blocks spread over threads: the same bits and counters as on one, and no race in the emulator
// itself (this test runs under ThreadSanitizer).
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "tests/simt/access_patterns.h"
#include "tests/simt/seeded_bugs.h"
#include "tests/simt/sim_device.h"

using namespace roundoff;
using simt_test::SimDevice;

namespace {

struct Result {
  std::vector<float> values;
  std::vector<unsigned> bins;
  simt::Counters counters;
};

bool same(const Result& a, const Result& b) {
  return a.values == b.values && a.bins == b.bins &&
         std::memcmp(&a.counters, &b.counters, sizeof(a.counters)) == 0;
}

Result run(std::uint64_t k, unsigned workers) {
  simt::Config config = simt::with_schedule({}, k);
  config.workers = workers;
  SimDevice d(config);
  constexpr unsigned kRows = 30;
  constexpr unsigned kColumns = 70;
  std::vector<float> x(std::size_t{kRows} * kColumns);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 31) / 8;
  const float* px = d.upload(x);
  float* y = d.upload(x);
  Result result;
  const auto keep = [&] {
    const std::vector<float> got = d.download(y, x.size());
    result.values.insert(result.values.end(), got.begin(), got.end());
  };
  launch_plus_one(d.sim(), static_cast<unsigned>(x.size()), px, y);
  keep();
  launch_softmax_rows(d.sim(), Bug::none, kRows, kColumns, px, y);
  keep();
  launch_transpose(d.sim(), Bug::none, kRows, kColumns, px, y);
  keep();
  launch_tiled_gemm(d.sim(), Bug::none, kRows, kRows, kColumns, px, px, y);
  keep();
  launch_copy_pipeline(d.sim(), Bug::none, 2, 2, px, y);
  keep();
  std::vector<unsigned> keys(600);
  for (unsigned i = 0; i < keys.size(); ++i) keys[i] = i * i % 16;
  unsigned* partial = d.upload(std::vector<unsigned>(9 * 16));
  unsigned* count = d.upload(std::vector<unsigned>(1));
  unsigned* bins = d.upload(std::vector<unsigned>(16));
  launch_histogram(d.sim(), Bug::none, 9, 600, d.upload(keys), partial, count, bins);
  result.bins = d.download(bins, 16);
  result.counters = d.emulator.counters();
  // Which block is the last, and so has another order of its threads, is not decided by the seed.
  result.counters.switches = 0;
  return result;
}

}  // namespace

TEST_CASE("one and several workers give the same bits and counters") {
  for (std::uint64_t k = 0; k < simt_test::kSchedules; k += 3) {
    CAPTURE(k);
    const Result one = run(k, 1);
    for (const unsigned workers : {2U, 5U}) CHECK(same(run(k, workers), one));
  }
}

TEST_CASE("a fault on one of several workers ends the launch, and the next one is right") {
  simt::Config config;
  config.workers = 4;
  SimDevice d(config);
  const std::vector<float> x(100 * 50, 1.0F);
  const float* px = d.upload(x);
  float* y = d.upload(x);
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_WITH_AS(launch_softmax_rows(d.sim(), Bug::softmax_early_exit, 100, 50, px, y),
                         doctest::Contains("[softmax_rows]"), simt::KernelFault);
    launch_plus_one(d.sim(), 5000, px, y);
    CHECK(d.download(y, 5000) == std::vector<float>(5000, 2.0F));
  }
}
