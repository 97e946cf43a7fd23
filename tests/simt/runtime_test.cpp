#include "kernels/simt/runtime.h"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "kernels/simt/cuda_support.h"
#include "kernels/simt/runtime_sim.h"

using namespace roundoff;
using namespace roundoff::simt;

namespace {

std::shared_ptr<Runtime> deferred(std::uint64_t seed = 1) {
  return open_sim({.order = QueueOrder::deferred, .order_seed = seed});
}

// What behaves the same on all of them is tried on all that are here.
std::vector<std::shared_ptr<Runtime>> all_runtimes() {
  std::vector<std::shared_ptr<Runtime>> all{open(Device::sim), deferred()};
  if (refusal(Device::cuda).empty()) all.push_back(open(Device::cuda));
  return all;
}

struct Numbers {
  Numbers(const std::shared_ptr<Runtime>& runtime, std::vector<int> values)
      : host(runtime, values.size() * sizeof(int)), device(runtime, host.bytes()) {
    std::memcpy(host.data(), values.data(), host.bytes());
  }
  std::vector<int> seen() const {
    return {host.as<int>(), host.as<int>() + host.bytes() / sizeof(int)};
  }
  void up(Stream& s) { s.copy_to_device(device.data(), host.data(), host.bytes()); }
  void down(Stream& s) { s.copy_to_host(host.data(), device.data(), host.bytes()); }
  void forget() { std::memset(host.data(), 0, host.bytes()); }
  PinnedBuffer host;
  DeviceBuffer device;
};

}  // namespace

TEST_CASE("runtime: bytes go to the device, around in it, and come back") {
  for (const auto& runtime : all_runtimes()) {
    Stream s(runtime);
    Numbers a(runtime, {1, 2, 3, 4, 5});
    Numbers b(runtime, {0, 0, 0, 0, 0});
    a.up(s);
    s.fill(b.device.data(), 0xFF, b.device.bytes());
    s.copy_within(b.device.as<int>() + 1, a.device.data(), 3 * sizeof(int));
    b.down(s);
    s.synchronize();
    CHECK(b.seen() == std::vector<int>{-1, 1, 2, 3, -1});

    // Plain host memory goes through the calls that wait.
    std::vector<int> plain{7, 8, 9};
    s.upload(a.device.data(), plain.data(), 3 * sizeof(int));
    std::vector<int> back(5);
    s.download(back.data(), a.device.data(), 5 * sizeof(int));
    CHECK(back == std::vector<int>{7, 8, 9, 4, 5});
  }
}

TEST_CASE("runtime: zero bytes are allocated, copied and freed") {
  const auto runtime = open(Device::sim);
  Stream s(runtime);
  const DeviceBuffer none(runtime, 0);
  const DeviceBuffer another(runtime, 0);
  CHECK(none.data() != another.data());
  const PinnedBuffer pinned(runtime, 0);
  s.copy_to_device(none.data(), pinned.data(), 0);
  s.fill(none.data(), 1, 0);
  s.download(nullptr, none.data(), 0);
  CHECK(runtime->counters().copies == 0);
  CHECK(runtime->counters().fills == 0);
}

TEST_CASE("runtime: addresses are aligned to 256 bytes, and memory is given back") {
  const auto runtime = open(Device::sim);
  {
    std::vector<DeviceBuffer> buffers;
    std::set<void*> addresses;
    for (const std::size_t bytes : {1U, 255U, 256U, 257U, 100000U}) {
      buffers.emplace_back(runtime, bytes);
      CHECK(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % 256 == 0);
      addresses.insert(buffers.back().data());
    }
    CHECK(addresses.size() == 5);
    CHECK(runtime->allocated_bytes() == 100769);
    DeviceBuffer moved = std::move(buffers.back());
    moved = std::move(buffers.front());  // frees what it held
    CHECK(runtime->allocated_bytes() == 769);
  }
  CHECK(runtime->allocated_bytes() == 0);
  CHECK(emulator(*runtime).allocated_bytes() == 0);
}

TEST_CASE("runtime: every wait, allocation, copy and fill is counted") {
  const auto runtime = open(Device::sim);
  Stream s(runtime);
  const RuntimeCounters start = runtime->counters();
  {
    Numbers a(runtime, {1, 2, 3});
    const RuntimeCounters before = runtime->counters();
    CHECK((before - start) == RuntimeCounters{.allocations = 2});
    Event event(runtime);
    a.up(s);
    s.copy_within(a.device.as<int>(), a.device.as<int>() + 1, sizeof(int));
    s.fill(a.device.data(), 0, 1);
    s.call([] {});
    event.record(s);
    s.wait(event);
    CHECK(event.query());
    CHECK(
        (runtime->counters() - before) ==
        RuntimeCounters{.queries = 1, .copies = 2, .copied_bytes = 16, .fills = 1, .callbacks = 1});
    a.down(s);
    s.synchronize();
    event.synchronize();
    runtime->synchronize();
    int one = 0;
    s.download(&one, a.device.data(), sizeof(one));
    CHECK((runtime->counters() - before).synchronisations == 4);
  }
  // Giving memory back to the device waits for the device.
  const RuntimeCounters all = runtime->counters() - start;
  CHECK(all.releases == 2);
  CHECK(all.synchronisations == 6);
}

TEST_CASE("runtime: a missing wait shows under the deferred order, and only there") {
  for (const bool late : {false, true}) {
    CAPTURE(late);
    const auto runtime = late ? deferred() : open(Device::sim);
    Stream s(runtime);
    Numbers a(runtime, {1, 2, 3});
    a.up(s);
    s.synchronize();
    a.forget();
    a.down(s);
    CHECK(a.seen() == (late ? std::vector<int>{0, 0, 0} : std::vector<int>{1, 2, 3}));
    s.synchronize();
    CHECK(a.seen() == std::vector<int>{1, 2, 3});

    // The source of a copy belongs to the device until the copy is done.
    a.up(s);
    a.host.as<int>()[0] = 99;
    a.down(s);
    s.synchronize();
    CHECK(a.seen()[0] == (late ? 99 : 1));
  }
}

TEST_CASE("runtime: one stream keeps its order under every seed") {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const auto runtime = deferred(seed);
    Stream a(runtime), b(runtime);
    std::string of_a, of_b, all;
    for (char c = 'a'; c < 'k'; ++c) {
      a.call([&, c] { (of_a += c), (all += c); });
      b.call([&, c] { (of_b += c), (all += static_cast<char>(c - 'a' + 'A')); });
    }
    CHECK(all.empty());
    a.synchronize();
    CHECK(of_a == "abcdefghij");
    runtime->synchronize();
    CHECK(of_b == "abcdefghij");
    CHECK(all.size() == 20);
  }
}

TEST_CASE("runtime: streams overtake each other unless an event orders them") {
  std::set<int> without, with;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    for (const bool ordered : {false, true}) {
      const auto runtime = deferred(seed);
      Stream producer(runtime), consumer(runtime);
      Numbers value(runtime, {5});
      Numbers out(runtime, {0});
      producer.fill(value.device.data(), 0, sizeof(int));
      value.up(producer);
      Event ready(runtime);
      ready.record(producer);
      if (ordered) consumer.wait(ready);
      consumer.copy_within(out.device.data(), value.device.data(), sizeof(int));
      out.down(consumer);
      consumer.synchronize();
      (ordered ? with : without).insert(out.seen()[0]);
    }
  }
  CHECK(with == std::set<int>{5});
  CHECK(without.size() >= 2);
  CHECK(without.count(5) == 1);
}

TEST_CASE("runtime: a wait is for the mark that stood when it was queued") {
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    const auto runtime = deferred(seed);
    Stream a(runtime), b(runtime);
    Event event(runtime);
    b.wait(event);  // never recorded: nothing to wait for
    std::string order;
    a.call([&] { order += '1'; });
    event.record(a);
    b.wait(event);
    b.call([&] { order += '2'; });
    Event b_done(runtime);
    b_done.record(b);
    a.wait(b_done);
    a.call([&] { order += '3'; });
    event.record(a);  // the mark moves; what waits already is not concerned
    b.synchronize();
    CHECK(order.substr(0, 2) == "12");
    event.synchronize();
    CHECK(order == "123");
  }
}

TEST_CASE("runtime: asking does not wait, and in the end the answer is yes") {
  const auto runtime = deferred(3);
  Stream s(runtime);
  Event event(runtime);
  CHECK(event.query());  // never recorded
  CHECK(s.query());
  int done = 0;
  for (int i = 0; i < 100; ++i) s.call([&] { ++done; });
  event.record(s);
  CHECK(!event.query());
  CHECK(done > 0);
  CHECK(done < 100);
  int asked = 0;
  while (!event.query()) ++asked;
  CHECK(asked > 1);
  CHECK(done == 100);
  CHECK(runtime->counters().synchronisations == 0);
  CHECK(event.milliseconds_since(event) == 0);
}

TEST_CASE("runtime: an error in queued work is thrown by the next wait, and later work runs") {
  const auto runtime = deferred();
  Stream s(runtime), other(runtime);
  bool later = false;
  s.call([] { fail("kernel", "out of luck"); });
  s.call([] { fail("kernel", "never mentioned"); });
  s.call([&] { later = true; });
  CHECK_THROWS_WITH_AS(s.synchronize(), "[kernel] out of luck", Error);
  CHECK(later);
  CHECK_NOTHROW(s.synchronize());

  // Freed memory waits for the work on it; its error waits for a place where it can be thrown.
  s.call([] { fail("kernel", "late"); });
  { const DeviceBuffer gone(runtime, 16); }
  CHECK_THROWS_WITH_AS(other.synchronize(), "[kernel] late", Error);

  s.call([] { fail("kernel", "polled"); });
  CHECK_THROWS_WITH_AS(
      [&] {
        while (!s.query()) {
        }
      }(),
      "[kernel] polled", Error);

  Stream now(open(Device::sim));
  CHECK_THROWS_WITH_AS(now.call([] { fail("kernel", "at once"); }), "[kernel] at once", Error);
}

TEST_CASE("runtime: memory is freed after the work that uses it") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    const auto runtime = deferred(seed);
    Stream s(runtime);
    Numbers out(runtime, {0, 0, 0, 0});
    {
      Numbers a(runtime, {1, 2, 3, 4});
      a.up(s);
      s.copy_within(out.device.data(), a.device.data(), out.device.bytes());
    }
    out.down(s);
    CHECK_NOTHROW(s.synchronize());
    CHECK(out.seen() == std::vector<int>{1, 2, 3, 4});
  }
}

TEST_CASE("runtime: a stream that goes away leaves its work to be done") {
  const auto runtime = deferred();
  int done = 0;
  {
    Stream s(runtime);
    s.call([&] { ++done; });
    Stream moved = std::move(s);
    moved.call([&] { ++done; });
  }
  CHECK(done == 0);
  runtime->synchronize();
  CHECK(done == 2);
}

TEST_CASE("runtime: bad ranges and foreign memory are refused") {
  const auto runtime = open(Device::sim);
  Stream s(runtime);
  Numbers a(runtime, {1, 2, 3});
  std::vector<int> plain(3);
  CHECK_THROWS_WITH_AS(s.copy_to_device(a.device.data(), plain.data(), 12),
                       doctest::Contains("not pinned"), Error);
  CHECK_THROWS_WITH_AS(s.copy_to_host(a.host.as<int>() + 1, a.device.data(), 12),
                       doctest::Contains("not pinned"), Error);
  CHECK(runtime->is_pinned(a.host.data(), 12));
  CHECK(runtime->is_pinned(a.host.as<int>() + 2, 4));
  CHECK(!runtime->is_pinned(a.host.as<int>() + 2, 5));
  CHECK_THROWS_AS(s.copy_to_device(a.device.as<int>() + 1, a.host.data(), 12), Error);
  CHECK_THROWS_AS(s.fill(a.host.data(), 0, 4), Error);

  const auto second = open(Device::sim);
  Stream elsewhere(second);
  Event event(runtime);
  CHECK_THROWS_WITH_AS(elsewhere.wait(event), doctest::Contains("another device"), Error);
  CHECK_THROWS_WITH_AS(event.record(elsewhere), doctest::Contains("another device"), Error);
  CHECK_THROWS_AS(elsewhere.copy_within(a.device.data(), a.device.as<int>() + 1, 4), Error);
}

TEST_CASE("graph: captured work runs when it is launched, as often as it is") {
  for (const auto& runtime : all_runtimes()) {
    Stream s(runtime);
    Numbers a(runtime, {1, 2});
    Numbers b(runtime, {0, 0});
    int calls = 0;
    const RuntimeCounters before = runtime->counters();
    s.begin_capture();
    CHECK(s.capturing());
    a.up(s);
    s.copy_within(b.device.data(), a.device.data(), a.device.bytes());
    Event inside(runtime);
    inside.record(s);
    s.wait(inside);
    s.call([&] { ++calls; });
    b.down(s);
    Graph graph = s.end_capture();
    CHECK(!s.capturing());
    runtime->synchronize();
    CHECK(calls == 0);
    CHECK(b.seen() == std::vector<int>{0, 0});
    CHECK(graph.kernels() == 0);

    graph.launch(s);
    s.synchronize();
    CHECK(b.seen() == std::vector<int>{1, 2});
    a.host.as<int>()[0] = 5;
    graph.launch(s);
    s.synchronize();
    CHECK(b.seen() == std::vector<int>{5, 2});
    CHECK(calls == 2);
    CHECK((runtime->counters() - before).graph_launches == 2);
  }
}

TEST_CASE("graph: what cannot be captured is refused, and the capture goes on") {
  const auto runtime = deferred();
  Stream s(runtime), other(runtime);
  Event outside(runtime);
  outside.record(other);
  int calls = 0;
  DeviceBuffer held(runtime, 8);
  s.begin_capture();
  CHECK_THROWS_WITH_AS(s.synchronize(), doctest::Contains("while a graph is captured"), Error);
  CHECK_THROWS_WITH_AS(other.query(), doctest::Contains("while a graph is captured"), Error);
  CHECK_THROWS_WITH_AS(runtime->synchronize(), doctest::Contains("while a graph is captured"),
                       Error);
  CHECK_THROWS_AS(DeviceBuffer(runtime, 8), Error);
  CHECK_THROWS_AS(PinnedBuffer(runtime, 8), Error);
  CHECK_THROWS_AS(s.upload(held.data(), &calls, 4), Error);
  CHECK_THROWS_AS(s.begin_capture(), Error);
  CHECK_THROWS_WITH_AS(s.wait(outside), doctest::Contains("not in the graph"), Error);
  Event inside(runtime);
  inside.record(s);
  CHECK_THROWS_WITH_AS(other.wait(inside), doctest::Contains("in a graph"), Error);
  s.call([&] { ++calls; });
  held = DeviceBuffer();  // given back once the capture is over
  CHECK(runtime->allocated_bytes() == 8);
  Graph graph = s.end_capture();
  CHECK(runtime->allocated_bytes() == 0);
  CHECK_THROWS_WITH_AS((void)inside.query(), doctest::Contains("has no state"), Error);
  CHECK_THROWS_WITH_AS(s.end_capture(), doctest::Contains("no graph is being captured"), Error);
  graph.launch(other);
  runtime->synchronize();
  CHECK(calls == 1);
  {
    Stream dropped(runtime);
    dropped.begin_capture();
  }
  CHECK_NOTHROW(runtime->synchronize());
}

TEST_CASE("cuda: every refusal gives its reason and the way on") {
  const CudaFacts good{.built = true,
                       .runtime_version = 13000,
                       .driver_version = 13010,
                       .devices = 1,
                       .capability = 90,
                       .name = "H200"};
  CHECK(cuda_refusal(good).empty());
  CudaFacts f = good;
  f.driver_version = 13000;
  f.runtime_version = 13020;  // minor versions of one major version go together
  CHECK(cuda_refusal(f).empty());

  const auto check = [](const CudaFacts& facts, const char* reason, int ordinal = 0) {
    const std::string text = cuda_refusal(facts, ordinal);
    CHECK_MESSAGE(text.find(reason) != std::string::npos, text);
    CHECK_MESSAGE(text.find("--device sim") != std::string::npos, text);
    CHECK_MESSAGE(text.find("--device cpu") != std::string::npos, text);
  };
  check({}, "this build has no CUDA side");
  f = good;
  f.driver_version = 0;
  check(f, "no NVIDIA driver is installed");
  f = good;
  f.driver_version = 12040;
  check(f, "too old: it knows CUDA 12.4, this build needs 13.0");
  f = good;
  f.devices = 0;
  check(f, "sees no GPU");
  f = good;
  f.error = "system not yet initialized";
  check(f, "reports: system not yet initialized");
  f = good;
  f.capability = 75;
  f.name = "Tesla T4";
  check(f, "GPU 0 (Tesla T4) is an sm_75; the kernels need sm_80");
  check(good, "no GPU number 1, the driver sees 1", 1);
  check(good, "no GPU number -1", -1);
}

TEST_CASE("cuda: asking for it where it cannot be used says why") {
  const std::string why = refusal(Device::cuda);
  if (why.empty()) {
    CHECK(open(Device::cuda)->description().capability >= kLeastCapability);
    return;
  }
  MESSAGE(why);
  CHECK_THROWS_WITH_AS(open(Device::cuda), doctest::Contains(why.c_str()), DeviceAbsent);
  CHECK(refusal(Device::sim).empty());
  CHECK(refusal(Device::cpu).empty());
  CHECK_THROWS_WITH_AS(open(Device::cpu), doctest::Contains("no runtime"), Error);
  CHECK_THROWS_AS(open(Device::sim, 1), Error);
}

TEST_CASE("runtime: sim says what it is") {
  const auto runtime = open_sim({.emulator = {.architecture = SimArchitecture::sm_80}});
  CHECK(runtime->device() == Device::sim);
  CHECK(runtime->description().capability == 80);
  CHECK(runtime->description().name == "SIMT emulator, sm_80");
  CHECK(open(Device::sim)->description().capability == 90);
}
