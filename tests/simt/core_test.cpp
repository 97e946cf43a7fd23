#include "tests/simt/core.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/stream.h"

using namespace roundoff;
using simt::Config;
using simt::Emulator;
using simt::KernelFault;
using simt::SimStream;

namespace {

constexpr std::uint64_t kSchedules = 16;

template <class T>
T* upload(Emulator& device, const std::vector<T>& values) {
  void* p = device.allocate(values.size() * sizeof(T));
  device.copy_in(p, values.data(), values.size() * sizeof(T));
  return static_cast<T*>(p);
}
template <class T>
std::vector<T> download(Emulator& device, const T* p, std::size_t n) {
  std::vector<T> values(n);
  device.copy_out(values.data(), p, n * sizeof(T));
  return values;
}

struct Fixture {
  Emulator device;
  SimStream stream{device};
  explicit Fixture(const Config& config = {}) : device(config) {}
  Sim sim() { return {{&stream}, nullptr}; }
};

std::string fault_of(Fixture& f, Misuse misuse) {
  int* out = upload(f.device, std::vector<int>(128));
  try {
    launch_misuse(f.sim(), misuse, out);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a grid covers its elements, under every schedule and number of workers") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    for (const unsigned workers : {1U, 3U}) {
      Config config = simt::with_schedule({}, k);
      config.workers = workers;
      Fixture f(config);
      for (const unsigned n : {1U, 127U, 128U, 129U, 1000U}) {
        std::vector<float> x(n);
        std::iota(x.begin(), x.end(), 0.0F);
        float* px = upload(f.device, x);
        float* py = upload(f.device, std::vector<float>(n, 1.0F));
        launch_axpy(f.sim(), n, 2.0F, px, py);
        const std::vector<float> y = download(f.device, py, n);
        bool right = true;
        for (unsigned i = 0; i < n; ++i) right = right && y[i] == 2.0F * x[i] + 1.0F;
        CHECK(right);
      }
    }
  }
}

TEST_CASE("shared memory, barriers and shuffles, under every schedule") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    CAPTURE(k);
    Fixture f(simt::with_schedule({}, k));
    std::vector<int> x(3 * 256);
    std::iota(x.begin(), x.end(), 5);
    int* px = upload(f.device, x);
    int* py = upload(f.device, std::vector<int>(x.size()));
    launch_reverse(f.sim(), 6, px, py);
    const std::vector<int> y = download(f.device, py, x.size());
    bool right = true;
    for (std::size_t i = 0; i < x.size(); ++i)
      right = right && y[i] == x[i / 128 * 128 + 127 - i % 128];
    CHECK(right);

    launch_block_sum(f.sim(), 3, 256, px, py);
    const std::vector<int> sums = download(f.device, py, 3);
    for (std::size_t b = 0; b < 3; ++b)
      CHECK(sums[b] == std::accumulate(x.begin() + static_cast<std::ptrdiff_t>(256 * b),
                                       x.begin() + static_cast<std::ptrdiff_t>(256 * (b + 1)), 0));
  }
}

TEST_CASE("a shuffle reads the lane that its definition says") {
  Fixture f;
  unsigned* out = upload(f.device, std::vector<unsigned>(128));
  for (const int width : {32, 16, 8, 4, 2, 1}) {
    for (const int amount : {0, 1, 2, 3, 5, 15, 16, 31}) {
      launch_shuffles(f.sim(), width, amount, out);
      const std::vector<unsigned> got = download(f.device, out, 128);
      for (int lane = 0; lane < 32; ++lane) {
        CAPTURE(width);
        CAPTURE(amount);
        CAPTURE(lane);
        const int first = lane / width * width;
        const int past = first + width;
        const auto at = [&](int mode) {
          return static_cast<int>(got[static_cast<std::size_t>(4 * lane + mode)]);
        };
        CHECK(at(0) == first + amount % width);
        CHECK(at(1) == (lane - amount < first ? lane : lane - amount));
        CHECK(at(2) == (lane + amount >= past ? lane : lane + amount));
        CHECK(at(3) == ((lane ^ amount) >= past ? lane : (lane ^ amount)));
      }
    }
  }
}

TEST_CASE("votes, matches and reductions, in full and partial warps") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    Fixture f(simt::with_schedule({}, k));
    for (const unsigned lanes : {32U, 31U, 7U, 1U}) {
      CAPTURE(lanes);
      unsigned* out = upload(f.device, std::vector<unsigned>(320));
      launch_votes(f.sim(), lanes, out);
      const std::vector<unsigned> got = download(f.device, out, 320);
      const unsigned all = lanes == 32 ? ~0U : (1U << lanes) - 1;
      unsigned odd = 0, sum = 0, conjunction = ~0U, disjunction = 0, exclusive = 0;
      for (unsigned l = 0; l < lanes; ++l) {
        if (l % 2 != 0) odd |= 1U << l;
        sum += l;
        conjunction &= l | 64U;
        disjunction |= l;
        exclusive ^= l + 1;
      }
      for (unsigned l = 0; l < lanes; ++l) {
        const unsigned* mine = got.data() + 10 * l;
        unsigned same = 0;
        for (unsigned o = 0; o < lanes; ++o)
          if (o % 5 == l % 5) same |= 1U << o;
        CHECK(mine[0] == odd);
        CHECK(mine[1] == same);
        CHECK(mine[2] == all);
        CHECK(mine[3] == (lanes == 1 ? all : 0U));
        CHECK(mine[4] == sum);
        CHECK(static_cast<int>(mine[5]) == -3);
        CHECK(static_cast<int>(mine[6]) == 0);
        CHECK(mine[7] == conjunction);
        CHECK(mine[8] == disjunction);
        CHECK(mine[9] == exclusive);
      }
    }
  }
}

TEST_CASE("named barriers, early exits and reductions at barriers, under every schedule") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    CAPTURE(k);
    Fixture f(simt::with_schedule({}, k));
    int* out = upload(f.device, std::vector<int>(256));
    launch_named_barrier(f.sim(), out);
    std::vector<int> got = download(f.device, out, 32);
    for (int i = 0; i < 32; ++i) CHECK(got[static_cast<std::size_t>(i)] == 2 * i + 232);

    for (const unsigned leave : {0U, 1U, 31U, 32U, 33U, 95U}) {
      launch_early_exit(f.sim(), 96, leave, out);
      CHECK(download(f.device, out, 1)[0] == static_cast<int>(96 - leave));
    }
    launch_barrier_reduce(f.sim(), 70, out);
    got = download(f.device, out, 70);
    for (int i = 0; i < 70; ++i) CHECK(got[static_cast<std::size_t>(i)] == 1 + 4 + 16 * 24);
  }
}

TEST_CASE("atomics, and the last block that folds what the others left") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    for (const unsigned workers : {1U, 4U}) {
      Config config = simt::with_schedule({}, k);
      config.workers = workers;
      Fixture f(config);
      int* part = upload(f.device, std::vector<int>(20));
      unsigned* counts = upload(f.device, std::vector<unsigned>(5));
      int* out = upload(f.device, std::vector<int>(1));
      launch_last_block(f.sim(), 20, part, counts, out);
      const std::vector<unsigned> c = download(f.device, counts, 5);
      CHECK(c[0] == 20 * 64);
      CHECK(c[1] == 20 * 64 - 1);
      CHECK(c[3] == 1);
      CHECK(download(f.device, out, 1)[0] == 19 * 20 * 39 / 6);
    }
  }
}

TEST_CASE("clusters: blocks keep their places in the grid; sm_80 refuses them") {
  Fixture f;
  unsigned* out = upload(f.device, std::vector<unsigned>(16));
  for (const unsigned cluster : {1U, 2U, 4U, 8U, 16U}) {
    launch_cluster_places(f.sim(), 16, cluster, out);
    const std::vector<unsigned> got = download(f.device, out, 16);
    for (unsigned b = 0; b < 16; ++b) CHECK(got[b] == b * 100 + 16 + cluster);
  }
  CHECK_THROWS_WITH_AS(launch_cluster_places(f.sim(), 16, 3, out),
                       doctest::Contains("do not divide the grid"), Error);
  f.device.config.architecture = simt::SimArchitecture::sm_80;
  CHECK_THROWS_WITH_AS(launch_cluster_places(f.sim(), 16, 2, out),
                       doctest::Contains("its body would be empty here"), Error);
}

TEST_CASE("misuse of collectives is diagnosed, by kernel, block, thread and cause") {
  struct Expected {
    Misuse misuse;
    const char* text;
  };
  const Expected all[] = {
      {Misuse::mask_without_self, "does not name the lane itself"},
      {Misuse::mask_of_exited, "have exited"},
      {Misuse::mask_beyond_warp, "lanes that this warp does not have"},
      {Misuse::divergent_collectives, "different collectives"},
      {Misuse::shuffle_outside_mask, "which the mask 0xffff does not name"},
      {Misuse::barrier_divergent_in_warp, "by all lanes of a warp together"},
      {Misuse::barrier_missing_thread, "deadlock"},
      {Misuse::barrier_id, "barrier 16 does not exist"},
      {Misuse::barrier_count, "a multiple of 32 expected"},
      {Misuse::shared_too_large, "large: 245760 bytes of shared memory"},
      {Misuse::shuffle_width, "the width 12 is not a power of two"},
      {Misuse::misaligned_atomic, "misaligned address"},
      {Misuse::exit_before_collective, "exit"},
      {Misuse::throws, "thrown in a kernel"},
  };
  for (const Expected& e : all) {
    for (std::uint64_t k = 0; k < kSchedules; ++k) {
      CAPTURE(k);
      Fixture f(simt::with_schedule({}, k));
      const std::string text = fault_of(f, e.misuse);
      CHECK_MESSAGE(text.find(e.text) != std::string::npos, text);
      CHECK(text.find("[misuse]") == 0);
      if (e.misuse != Misuse::throws) {
        CHECK_MESSAGE(text.find("block (") != std::string::npos, text);
        CHECK_MESSAGE(text.find("thread") != std::string::npos, text);
      }
      // The next launch is not affected.
      int* x = upload(f.device, std::vector<int>(128, 3));
      int* y = upload(f.device, std::vector<int>(128));
      launch_reverse(f.sim(), 1, x, y);
      CHECK(download(f.device, y, 128) == std::vector<int>(128, 3));
    }
  }
}

TEST_CASE("a deadlock names who waits where") {
  Fixture f;
  const std::string text = fault_of(f, Misuse::barrier_missing_thread);
  CHECK_MESSAGE(text.find("threads 0-32 wait in __syncthreads") != std::string::npos, text);
  CHECK_MESSAGE(text.find("threads 33 wait in barrier 0x1 (") != std::string::npos, text);
  CHECK_MESSAGE(text.find("core.cu:") != std::string::npos, text);
}

TEST_CASE("the same seed gives the same order and counters; other seeds give other orders") {
  const auto run = [](std::uint64_t seed) {
    Config config;
    config.schedule = simt::Schedule::random;
    config.shuffle_blocks = true;
    config.seed = seed;
    Fixture f(config);
    int* x = upload(f.device, std::vector<int>(1024, 3));
    int* y = upload(f.device, std::vector<int>(20));
    unsigned* counts = upload(f.device, std::vector<unsigned>(5));
    launch_block_sum(f.sim(), 4, 256, x, y);
    CHECK(f.device.counters().shuffles == 4 * (8 * 5 + 5));
    CHECK(f.device.counters().barriers == 4);
    CHECK(f.device.counters().threads == 1024);
    launch_last_block(f.sim(), 20, y, counts, x);
    // The winner of the compare-and-swap is the thread that came first.
    return std::pair(f.device.counters().switches, download(f.device, counts, 5)[2]);
  };
  CHECK(run(7) == run(7));
  CHECK(run(7) != run(8));
}

TEST_CASE("launches that no device would take") {
  Fixture f;
  float* p = upload(f.device, std::vector<float>(1));
  CHECK_THROWS_WITH_AS(launch_axpy(f.sim(), 0, 1.0F, p, p), doctest::Contains("grid 0x1x1"), Error);
  int* q = upload(f.device, std::vector<int>(1));
  CHECK_THROWS_WITH_AS(launch_early_exit(f.sim(), 1025, 0, q),
                       doctest::Contains("1 to 1024 threads"), Error);
  CHECK_THROWS_WITH_AS(launch_axpy(Sim{}, 1, 1.0F, p, p), doctest::Contains("needs a stream"),
                       Error);
}

TEST_CASE("device memory stands apart") {
  Fixture f;
  int* p = upload(f.device, std::vector<int>{1, 2, 3});
  int* q = upload(f.device, std::vector<int>{4});
  CHECK(f.device.owns(p));
  CHECK(!f.device.owns(&f));
  CHECK(reinterpret_cast<std::uintptr_t>(p) % 256 == 0);
  CHECK(f.device.allocated_bytes() == 16);
  int host[4];
  CHECK_THROWS_WITH_AS(f.device.copy_out(host, p, 16), doctest::Contains("of an allocation of 12"),
                       Error);
  CHECK_THROWS_WITH_AS(f.device.copy_out(host, host, 4),
                       doctest::Contains("is not memory of this simulated device"), Error);
  f.device.copy_within(p, q, 4);
  CHECK(download(f.device, p, 3) == std::vector<int>{4, 2, 3});
  f.device.free(p);
  CHECK_THROWS_WITH_AS(f.device.copy_out(host, p, 4), doctest::Contains("was freed"), Error);
  CHECK_THROWS_WITH_AS(f.device.free(p), doctest::Contains("not the start of an allocation"),
                       Error);
  CHECK(f.device.allocated_bytes() == 4);
  f.device.free(nullptr);
}

TEST_CASE("the host cannot read device memory, between launches and after them") {
  Fixture f;
  int* x = upload(f.device, std::vector<int>(128, 3));
  int* y = upload(f.device, std::vector<int>(128));
  launch_reverse(f.sim(), 1, x, y);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    const volatile int read = *static_cast<const volatile int*>(x);
    _exit(read == 3 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  // A sanitizer's own handler exits with a status instead.
  CHECK((WIFSIGNALED(status) || WEXITSTATUS(status) > 1));
}
