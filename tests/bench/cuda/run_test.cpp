// The whole benchmark of a GPU, on the emulator: stand-ins for the vendor's libraries, and a clock
// that makes its times up. No figure of it is called measured.
#include "bench/cuda/run.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/simt/runtime_sim.h"
#include "tests/bench/cuda/stopwatches.h"

namespace roundoff::bench {
namespace {

constexpr auto kMadeUp = Provenance::modelled;

struct Setup {
  Bench bench;
  std::shared_ptr<MadeUpClock> clock;
};

Setup setup(double seconds, std::vector<std::string> cublas = {"libfake_cublas.so"}) {
  Setup s;
  s.clock = std::make_shared<MadeUpClock>(seconds);
  s.bench.runtime = simt::open_sim({});
  s.bench.stopwatch = s.clock;
  s.bench.times = kMadeUp;
  // Slow enough for made-up times to stay below its peak.
  s.bench.gpu = {.capability = 90,
                 .multiprocessors = 132,
                 .l2_bytes = 1 << 14,
                 .clock = 1e9,
                 .memory_bandwidth = 1e12,
                 .free_memory = 1e9,
                 .bus_id = "0000:01:00.0"};
  s.bench.vendor = {
      .folders = {FAKE_FOLDER}, .cublas = std::move(cublas), .cudnn = {"libfake_cudnn.so"}};
  s.bench.nvml = {"libfake_nvml.so"};
  s.bench.timing = {.least_rounds = 3, .most_rounds = 3, .seconds = 1, .warm_ups = 1};
  s.bench.copy_bytes = 0;
  return s;
}

RunSettings beside_vendor() {
  RunSettings settings;
  settings.baseline = true;
  return settings;
}

std::vector<Problem> problems(const std::string& operation, const std::string& size,
                              BenchPass pass = BenchPass::forward, std::optional<DType> out = {}) {
  ProblemRequest request;
  request.operations = {operation};
  request.sizes = {};
  (operation == "conv2d" ? request.convolutions : request.sizes) = {size};
  request.dtypes = {DType::bf16};
  request.pass = pass;
  request.out_dtype = out;
  return make_problems(request);
}

TEST_CASE("ours and the vendor's are verified, take turns and are compared") {
  for (const BenchPass pass : {BenchPass::forward, BenchPass::dgrad, BenchPass::wgrad})
    for (const char* operation : {"matmul", "conv2d"}) {
      CAPTURE(operation);
      CAPTURE(name(pass));
      Setup s = setup(1e-3);
      const bool conv = std::string(operation) == "conv2d";
      const Report report =
          run_on(s.bench, problems(operation, conv ? "2,6,6,8,8,3,3,1,1" : "24x16x32", pass),
                 beside_vendor());
      REQUIRE(report.rows.size() == 2);
      const Row &ours = report.rows[0], &vendor = report.rows[1];
      CHECK(vendor.kernel == (conv ? "cuDNN 9.19.0" : "cuBLASLt 13.2.3"));
      CHECK(ours.refusal.empty());
      CHECK(vendor.refusal.empty());
      CHECK_FALSE(ours.broken);
      CHECK_FALSE(vendor.broken);
      CHECK(ours.verified.find("within bounds; whole numbers: every element equals cu") !=
            std::string::npos);
      // The vendor's was timed first: a replay of both sets took 1 ms, ours 2 ms.
      const double sets = 1e-3 / (1e-6 * vendor.number("us", kMadeUp));
      CHECK(sets >= 2);
      CHECK(ours.number("us", kMadeUp) == doctest::Approx(2e3 / sets));
      CHECK(ours.number("vs_vendor", kMadeUp) == doctest::Approx(0.5));
      CHECK(vendor.find("vs_vendor", kMadeUp) == nullptr);
      CHECK(ours.number("TFLOP/s", kMadeUp) ==
            doctest::Approx(ours.flops / ours.number("us", kMadeUp) * 1e-6));
      CHECK(ours.number("W", kMadeUp) == doctest::Approx(698.5));
      CHECK(ours.find("C", kMadeUp) == nullptr);
      for (const Row& row : report.rows)
        for (const Metric& m : row.metrics) CHECK(m.provenance != Provenance::measured);
    }
}

TEST_CASE("a rate above the peak is refused, and the run goes on") {
  Setup s = setup(1e-12);
  const Report report = run_on(s.bench, problems("matmul", "24x16x32"), {});
  REQUIRE(report.rows.size() == 1);
  CHECK(report.rows[0].broken);
  CHECK(report.rows[0].verified.find("above the device's peak") != std::string::npos);
  CHECK(report.rows[0].find("us", kMadeUp) == nullptr);
}

TEST_CASE("a library that is absent is a row, and ours is timed") {
  Setup s = setup(1e-3, {"libroundoff_absent.so"});
  const Report report = run_on(s.bench, problems("matmul", "24x16x32"), beside_vendor());
  REQUIRE(report.rows.size() == 2);
  CHECK(report.rows[1].kernel == "cuBLASLt");
  CHECK(report.rows[1].refusal == "not found: libroundoff_absent.so");
  CHECK(report.rows[0].find("us", kMadeUp) != nullptr);
  CHECK(report.rows[0].find("vs_vendor", kMadeUp) == nullptr);
}

TEST_CASE("a vendor's result outside its bound is no baseline") {
  Setup s = setup(1e-3, {"libfake_cublas_wrong.so"});
  const Report report = run_on(s.bench, problems("matmul", "24x16x32"), beside_vendor());
  REQUIRE(report.rows.size() == 2);
  CHECK(report.rows[1].broken);
  CHECK(report.rows[1].find("us", kMadeUp) == nullptr);
  CHECK_FALSE(report.rows[0].broken);
  CHECK(report.rows[0].find("vs_vendor", kMadeUp) == nullptr);
}

TEST_CASE("ours is not timed where whole numbers give other bits than the vendor's") {
  Setup s = setup(1e-3, {"libfake_cublas_whole.so"});
  const Report report = run_on(s.bench, problems("matmul", "24x16x32"), beside_vendor());
  REQUIRE(report.rows.size() == 2);
  CHECK_FALSE(report.rows[1].broken);  // random operands do not show it
  CHECK(report.rows[0].broken);
  CHECK(report.rows[0].verified.find("other bits than cuBLASLt") != std::string::npos);
  CHECK(report.rows[0].find("us", kMadeUp) == nullptr);
}

TEST_CASE("what the vendor does not take says so") {
  Setup s = setup(1e-3);
  const Report report = run_on(s.bench, problems("matmul", "24x13x32"), beside_vendor());
  REQUIRE(report.rows.size() == 2);
  CHECK(report.rows[1].refusal.find("FAKE_NOT_SUPPORTED") != std::string::npos);
  CHECK(report.rows[0].find("us", kMadeUp) != nullptr);
}

TEST_CASE("other operations have no baseline, and problems that are not small are sampled") {
  Setup s = setup(1e-2);
  const Report softmax = run_on(s.bench, problems("softmax", "33x65"), beside_vendor());
  REQUIRE(softmax.rows.size() == 1);
  CHECK_FALSE(softmax.rows[0].broken);
  CHECK(softmax.rows[0].find("GB/s", kMadeUp) != nullptr);
  const Report large = run_on(s.bench, problems("matmul", "1100x8x1200"), {});
  REQUIRE(large.rows.size() == 1);
  CHECK(large.rows[0].verified.find("of 8800 elements within bounds") != std::string::npos);
}

TEST_CASE("times of the emulator are never called measured") {
  Setup s = setup(1e-3);
  s.bench.times = Provenance::measured;
  CHECK_THROWS_WITH_AS(run_on(s.bench, {}, {}), doctest::Contains("emulator"), Error);
  CHECK_THROWS_AS(run_steps_on(s.bench, {}, {}), Error);
}

TEST_CASE("whole numbers stay exact") {
  for (const char* size : {"24x16x32", "8x8x70000"}) {
    const std::vector<Problem> p = problems("matmul", size);
    const Operands o = whole_operands(p[0], 3);
    double largest = 0;
    bool whole = true;
    for (const double v : o.inputs.at("a").to_vector()) {
      whole = whole && v != 0 && v == std::trunc(v);
      largest = std::max(largest, std::abs(v));
    }
    CHECK(whole);
    CHECK(largest == 2);
  }
}

TEST_CASE("a whole step as one graph, with the vendor's products in place of ours") {
  Setup s = setup(1e-3);
  const Report report = run_steps_on(s.bench, {{"tiny-mlp", Precision::bf16}}, beside_vendor());
  REQUIRE(report.rows.size() == 2);
  const Row &ours = report.rows[0], &vendor = report.rows[1];
  CHECK(ours.kernel == "all ours");
  CHECK(vendor.kernel == "vendor's products: cuBLASLt 13.2.3, cuDNN 9.19.0");
  CHECK_FALSE(ours.broken);
  CHECK_FALSE(vendor.broken);
  CHECK(ours.verified.find("agree with fp32") != std::string::npos);
  CHECK(vendor.refusal.empty());
  CHECK(vendor.sample.empty());  // the library took every product
  CHECK(ours.number("us", kMadeUp) == doctest::Approx(1e3));
  CHECK(ours.number("vs_vendor", kMadeUp) == doctest::Approx(2));
  CHECK(ours.number("kernels", Provenance::counted) > 5);
}

}  // namespace
}  // namespace roundoff::bench
