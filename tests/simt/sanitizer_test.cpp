// What the sanitizer takes for an order and what not, and what its reports say.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "tests/simt/access_patterns.h"
#include "tests/simt/memory_patterns.h"
#include "tests/simt/seeded_bugs.h"
#include "tests/simt/sim_device.h"

using namespace roundoff;
using simt::Config;
using simt_test::contains;
using simt_test::SimDevice;

namespace {

Config watched(std::uint64_t k = 0) {
  Config config = simt::with_schedule({}, k);
  config.sanitize = true;
  return config;
}

template <class F>
std::string fault(F&& run) {
  try {
    run();
  } catch (const simt::KernelFault& e) {
    return e.what();
  }
  return "";
}

std::string run_pattern(SimDevice& d, Pattern pattern, unsigned blocks) {
  const std::uint32_t* x = d.upload(std::vector<std::uint32_t>(std::size_t{blocks} * 64, 1));
  auto* scratch = static_cast<unsigned char*>(d.emulator.allocate(4096));
  unsigned* count = d.upload(std::vector<unsigned>(2));
  auto* y = static_cast<std::uint32_t*>(d.emulator.allocate(std::size_t{blocks} * 64 * 4));
  return fault([&] { launch_pattern(d.checked(), pattern, blocks, x, scratch, count, y); });
}

}  // namespace

TEST_CASE("what only looks like a race is silent under every schedule") {
  for (int p = 0; p < static_cast<int>(Pattern::reads_unwritten); ++p) {
    for (std::uint64_t k = 0; k < simt_test::kSchedules; ++k) {
      CAPTURE(p);
      CAPTURE(k);
      SimDevice d(watched(k));
      CHECK(run_pattern(d, static_cast<Pattern>(p), 2) == "");
    }
  }
}

TEST_CASE("what is wrong with memory is found under every schedule") {
  struct Case {
    Pattern pattern;
    const char* cause;
  };
  const Case all[] = {
      {Pattern::reads_unwritten, "uninitialised: read of 4 bytes at offset"},
      {Pattern::reads_unwritten_tail, "where nobody has written offset"},
      {Pattern::overlapping_structure, "race: write of"},
      {Pattern::half_of_a_word, "race: write of"},
      {Pattern::before_allocation, "out of bounds: read of 4 bytes"},
      {Pattern::far_beyond, "out of bounds: read of 4 bytes"},
      {Pattern::add_without_release, "race: read of 4 bytes"},
      {Pattern::misaligned_plain, "misaligned address: read of 4 bytes at offset"},
      {Pattern::write_after_all_read, "race: "},
  };
  for (const Case& c : all) {
    for (std::uint64_t k = 0; k < simt_test::kSchedules; ++k) {
      CAPTURE(static_cast<int>(c.pattern));
      CAPTURE(k);
      SimDevice d(watched(k));
      const std::string text = run_pattern(d, c.pattern, 2);
      CHECK_MESSAGE(contains(text, c.cause), text);
    }
  }
}

TEST_CASE("memory of the host is not the device's") {
  SimDevice d(watched());
  std::vector<std::uint32_t> host(64, 1);
  std::uint32_t* y = d.upload(host);
  unsigned* count = d.upload(std::vector<unsigned>(2));
  const std::string text = fault([&] {
    launch_pattern(d.checked(), Pattern::host_memory, 1, host.data(), nullptr, count, y);
  });
  CHECK_MESSAGE(contains(text, "out of bounds: read of 4 bytes at"), text);
  CHECK_MESSAGE(contains(text, "which is memory of the host"), text);
}

TEST_CASE("memory that was freed, and memory of an earlier launch") {
  SimDevice d(watched());
  const std::vector<float> values(100, 1.0F);
  const float* x = d.upload(values);
  float* y = d.upload(values);
  auto* z = static_cast<float*>(d.emulator.allocate(400));
  // What one launch wrote the next may read, wherever its threads are.
  launch_scale(d.checked(), Bug::none, 100, 2.0F, x, y);
  CHECK(fault([&] { launch_scale(d.checked(), Bug::none, 100, 2.0F, y, z); }) == "");
  CHECK(fault([&] { launch_scale(d.checked(), Bug::none, 100, 2.0F, z, y); }) == "");
  d.emulator.free(z);
  const std::string text = fault([&] { launch_scale(d.checked(), Bug::none, 100, 2.0F, z, y); });
  CHECK_MESSAGE(contains(text, "use after free: read of 4 bytes at offset 0 of allocation 3"),
                text);
  // The next launch is not affected.
  CHECK(fault([&] { launch_scale(d.checked(), Bug::none, 100, 2.0F, x, y); }) == "");
}

TEST_CASE("copies, fills and kernels that nobody watched count as writing") {
  SimDevice d(watched());
  const std::vector<float> values(100, 1.0F);
  const float* x = d.upload(values);
  float* y = d.upload(values);
  const auto reserve = [&] { return static_cast<float*>(d.emulator.allocate(400)); };
  const auto read = [&](const float* p) {
    return fault([&] { launch_scale(d.checked(), Bug::none, 100, 2.0F, p, y); });
  };
  float* a = reserve();
  CHECK(contains(read(a), "uninitialised: read of 4 bytes"));
  d.emulator.copy_in(a, values.data(), 200);
  CHECK(contains(read(a), "at offset 200 of allocation 3"));
  d.emulator.fill(a + 50, 0, 200);
  CHECK(read(a) == "");
  float* b = reserve();
  d.emulator.copy_within(b, a, 400);
  CHECK(read(b) == "");
  float* c = reserve();
  launch_scale(d.sim(), Bug::none, 100, 2.0F, x, c);
  CHECK(read(c) == "");
}

TEST_CASE("a watch that begins late takes what is there for written") {
  SimDevice d;
  auto* x = static_cast<float*>(d.emulator.allocate(400));
  float* y = d.upload(std::vector<float>(100));
  d.emulator.config.sanitize = true;
  CHECK(fault([&] { launch_scale(d.checked(), Bug::none, 100, 2.0F, x, y); }) == "");
  auto* z = static_cast<float*>(d.emulator.allocate(400));
  CHECK(contains(fault([&] { launch_scale(d.checked(), Bug::none, 100, 2.0F, z, y); }),
                 "uninitialised"));
}

TEST_CASE("a report names kernel, place, both parties, lines and the schedule, which replays it") {
  const auto run = [](const Config& config) {
    SimDevice d(config);
    const std::vector<float> values(64 * 64, 1.0F);
    const float* x = d.upload(values);
    float* y = d.upload(values);
    return fault(
        [&] { launch_tiled_gemm(d.checked(), Bug::gemm_no_barrier_after, 48, 48, 48, x, x, y); });
  };
  for (std::uint64_t k = 0; k < simt_test::kSchedules; ++k) {
    CAPTURE(k);
    const std::string text = run(watched(k));
    CHECK_MESSAGE(contains(text, "[tiled_gemm] race: "), text);
    CHECK_MESSAGE(contains(text, "at shared+0x"), text);
    CHECK_MESSAGE((contains(text, "(tile_a+0x") || contains(text, "(tile_b+0x")), text);
    CHECK_MESSAGE(contains(text, ", at block ("), text);
    CHECK_MESSAGE(contains(text, " lane "), text);
    CHECK_MESSAGE(contains(text, simt::schedule_text(watched(k))), text);
#if defined(ROUNDOFF_LIBDW)
    const std::size_t first = text.find("seeded_bugs_tiles.cu:");
    CHECK(first != std::string::npos);
    CHECK_MESSAGE(text.find("seeded_bugs_tiles.cu:", first + 1) != std::string::npos, text);
#endif
    CHECK(run(watched(k)) == text);
  }
}

TEST_CASE("the same seed gives the same output and counters, watched or not") {
  for (std::uint64_t k = 0; k < simt_test::kSchedules; k += 5) {
    CAPTURE(k);
    const auto run = [&](bool sanitize, bool profile) {
      Config config = simt::with_schedule({}, k);
      config.sanitize = sanitize;
      config.profile = profile;
      SimDevice d(config);
      std::vector<float> values(64 * 64);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13);
      const float* x = d.upload(values);
      float* y = d.upload(values);
      launch_tiled_gemm(d.checked(), Bug::none, 50, 40, 30, x, x, y);
      return std::pair(d.download(y, 2000), d.emulator.counters().switches);
    };
    const auto plain = run(false, false);
    CHECK(run(true, false) == plain);
    CHECK(run(true, true) == plain);
  }
}

TEST_CASE("elements by the hundred thousand, and long lives of a device") {
  SimDevice d(watched());
  const std::vector<float> values(100000, 1.0F);
  const float* x = d.upload(values);
  float* y = d.upload(values);
  for (int i = 0; i < 3; ++i) launch_plus_one(d.checked(), 100000, x, y);
  CHECK(d.download(y, 100000) == std::vector<float>(100000, 2.0F));
}
