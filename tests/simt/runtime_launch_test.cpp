// The runtime with kernels in its queues.
#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "kernels/simt/runtime.h"
#include "kernels/simt/runtime_sim.h"
#include "tests/simt/core.h"

using namespace roundoff;
using namespace roundoff::simt;

namespace {

constexpr unsigned kThreads = 128;

// y starts as zeros, and every launch adds x to it.
struct Sums {
  explicit Sums(const std::shared_ptr<Runtime>& runtime)
      : stream(runtime),
        x(runtime, kThreads * sizeof(float)),
        y(runtime, kThreads * sizeof(float)),
        host(runtime, kThreads * sizeof(float)) {
    const std::vector<float> ones(kThreads, 1.0F);
    stream.upload(x.data(), ones.data(), x.bytes());
    stream.fill(y.data(), 0, y.bytes());
    std::memset(host.data(), 0, host.bytes());
  }
  void add(Stream& s, float factor = 1) {
    launch_axpy(Sim{s.ref()}, kThreads, factor, x.as<float>(), y.as<float>());
  }
  void read(Stream& s) { s.copy_to_host(host.data(), y.data(), host.bytes()); }
  std::set<float> seen() const {
    const auto* first = host.as<float>();
    return {first, first + kThreads};
  }
  Stream stream;
  DeviceBuffer x, y;
  PinnedBuffer host;
};

std::shared_ptr<Runtime> deferred(std::uint64_t seed = 1) {
  return open_sim({.order = QueueOrder::deferred, .order_seed = seed});
}

}  // namespace

TEST_CASE("launches run in the order of their stream, and are counted") {
  for (const bool late : {false, true}) {
    const auto runtime = late ? deferred() : open(Device::sim);
    Sums s(runtime);
    const RuntimeCounters before = runtime->counters();
    for (int i = 0; i < 5; ++i) s.add(s.stream);
    s.read(s.stream);
    CHECK(s.seen() == (late ? std::set<float>{0} : std::set<float>{5}));
    CHECK((runtime->counters() - before).launches == 5);
    CHECK((runtime->counters() - before).synchronisations == 0);
    s.stream.synchronize();
    CHECK(s.seen() == std::set<float>{5});
    CHECK(emulator(*runtime).counters().launches == 5);
  }
}

TEST_CASE("a kernel on another stream sees old data unless it waits for an event") {
  std::set<float> without, with;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    for (const bool ordered : {false, true}) {
      const auto runtime = deferred(seed);
      Sums s(runtime);
      Stream reader(runtime);
      Event added(runtime);
      s.add(s.stream, 3);
      added.record(s.stream);
      if (ordered) reader.wait(added);
      s.add(reader);
      s.read(reader);
      reader.synchronize();
      (ordered ? with : without).insert(*s.seen().begin());
    }
  }
  CHECK(with == std::set<float>{4});
  CHECK(without.count(4) == 1);
  CHECK(without.size() >= 2);
}

TEST_CASE("a fault in a queued launch is thrown by the wait, and later work still runs") {
  const auto runtime = deferred();
  Sums s(runtime);
  s.add(s.stream);
  launch_misuse(Sim{s.stream.ref()}, Misuse::barrier_missing_thread, s.y.as<int>());
  s.add(s.stream);
  s.read(s.stream);
  CHECK_THROWS_WITH_AS(s.stream.synchronize(), doctest::Contains("deadlock"), KernelFault);
  CHECK(s.seen() == std::set<float>{2});
  CHECK_NOTHROW(s.stream.synchronize());

  Sums now(open(Device::sim));
  CHECK_THROWS_AS(launch_misuse(Sim{now.stream.ref()}, Misuse::throws, now.y.as<int>()), Error);
  now.add(now.stream);
  now.read(now.stream);
  now.stream.synchronize();
  CHECK(now.seen() == std::set<float>{1});
}

TEST_CASE("graphs hold kernels with the arguments of their capture") {
  for (const bool late : {false, true}) {
    const auto runtime = late ? deferred() : open(Device::sim);
    Sums s(runtime);
    s.stream.begin_capture();
    s.stream.fill(s.y.data(), 0, s.y.bytes());
    float factor = 2;
    s.add(s.stream, factor);
    factor = 5;
    s.add(s.stream, factor);
    s.read(s.stream);
    Graph graph = s.stream.end_capture();
    factor = 100;
    CHECK(graph.kernels() == 2);
    CHECK(runtime->counters().launches == 0);
    for (int i = 1; i <= 3; ++i) {
      graph.launch(s.stream);
      CHECK(runtime->counters().launches == 2 * i);
    }
    s.add(s.stream);
    s.read(s.stream);
    s.stream.synchronize();
    CHECK(s.seen() == std::set<float>{8});
    CHECK(emulator(*runtime).counters().launches == 7);
  }
}

TEST_CASE("results depend neither on the schedule of threads nor on that of queues") {
  for (std::uint64_t k = 0; k < 16; ++k) {
    const auto runtime = open_sim(
        {.emulator = with_schedule({}, k), .order = QueueOrder::deferred, .order_seed = k});
    Sums s(runtime);
    for (int i = 0; i < 3; ++i) s.add(s.stream);
    s.read(s.stream);
    s.stream.synchronize();
    CHECK(s.seen() == std::set<float>{3});
  }
}
