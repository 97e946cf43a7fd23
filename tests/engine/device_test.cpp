// Memory, tensors and parameters of a device.
#include "engine/device.h"

#include <doctest/doctest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "engine/context.h"
#include "engine/parameters.h"
#include "kernels/simt/runtime_sim.h"
#include "tests/engine/support.h"

namespace roundoff::testing {

namespace {

using simt::QueueOrder;
using simt::RuntimeCounters;

std::shared_ptr<simt::Runtime> deferred(std::uint64_t seed = 1) {
  return simt::open_sim({.order = QueueOrder::deferred, .order_seed = seed});
}

RuntimeCounters counters(const Context& c) { return c.queue()->runtime().counters(); }

constexpr DType kFloating[] = {DType::fp32, DType::fp64, DType::fp16, DType::bf16};

std::vector<std::byte> held(const Tensor& t) {
  std::vector<std::byte> bytes(t.bytes());
  t.read(bytes.data());
  return bytes;
}

// Puts a report where a kernel would.
void report(Context& c, const DeviceErrors& errors) {
  c.queue()->write(c.errors(), &errors, sizeof(errors));
}

}  // namespace

TEST_CASE("device: tensors of sim hold and give back what tensors of cpu do") {
  Context cpu;
  for (const bool late : {false, true}) {
    Context sim(late ? deferred() : simt::open(Device::sim));
    CHECK(sim.device() == Device::sim);
    const Values values{0.1, -2, 65504, 1e-8, kInf, 3};
    for (const DType dtype : kFloating) {
      CAPTURE(name(dtype));
      const Tensor t = tensor(sim, values, {2, 3}, dtype);
      const Tensor expected = tensor(cpu, values, {2, 3}, dtype);
      CHECK(t.device() == Device::sim);
      CHECK(expected.device() == Device::cpu);
      CHECK(t.to_vector() == expected.to_vector());
      for (std::int64_t i = 0; i < t.numel(); ++i) CHECK(t.at(i) == expected.at(i));
      CHECK(t.slice(4, {2}).to_vector() == expected.slice(4, {2}).to_vector());
      CHECK(t.slice(3, {}).item() == expected.slice(3, {}).item());
      CHECK(Tensor::zeros(sim.allocator, {5}, dtype).to_vector() == Values(5, 0.0));
    }
    for (const DType dtype : {DType::i64, DType::i32, DType::u8})
      CHECK(tensor(sim, {0, 255, 7}, {3}, dtype).to_vector() == Values{0, 255, 7});
    CHECK(Tensor::zeros(sim.allocator, {0, 3}, DType::fp32).to_vector().empty());
    CHECK_THROWS_AS(tensor(sim, {300}, {1}, DType::u8), Error);
  }
}

TEST_CASE("device: reading waits, and is counted; writing, zeroing and copying do not") {
  Context sim(Device::sim);
  const Tensor t = Tensor::empty(sim.allocator, {4}, DType::fp32);
  const Tensor other = Tensor::empty(sim.allocator, {4}, DType::fp32);
  const std::vector<float> values{1, 2, 3, 4};
  t.write(values.data());  // the staging memory is made here
  const RuntimeCounters start = counters(sim);
  t.write(values.data());
  t.zero();
  other.copy_from(t);
  const Tensor third = t.to(sim.allocator);
  RuntimeCounters done = counters(sim) - start;
  CHECK(done.synchronisations == 0);
  CHECK(done.allocations == 1);  // of `third`
  (void)t.to_vector();
  (void)t.at(3);
  (void)held(t);
  done = counters(sim) - start;
  CHECK(done.synchronisations == 3);
}

TEST_CASE("device: tensors go from any device to any other") {
  Context cpu, sim(deferred(3)), second(deferred(4));
  const Values values{1, 2, 3, 4, 5};
  for (const DType dtype : {DType::fp32, DType::bf16, DType::i32}) {
    const Tensor host = tensor(cpu, values, {5}, dtype);
    const Tensor up = host.to(sim.allocator, MemoryCategory::parameters);
    const Tensor across = up.to(second.allocator);
    const Tensor within = across.to(second.allocator);
    const Tensor down = within.to(cpu.allocator);
    CHECK(down.device() == Device::cpu);
    CHECK(bytes(down) == bytes(host));
    CHECK(within.raw() != across.raw());
    CHECK(up.to_vector() == values);
  }
  CHECK(sim.allocator.stats().current[0] == 0);
  const Tensor three = tensor(sim, {1, 2, 3}, {3});
  CHECK_THROWS_AS(three.copy_from(tensor(cpu, {1, 2}, {2})), Error);
  CHECK_THROWS_AS(three.copy_from(tensor(cpu, {1, 2, 3}, {3}, DType::fp16)), Error);
  CHECK_THROWS_AS((void)Tensor().to(sim.allocator), Error);
}

TEST_CASE("device: freed blocks are handed out again without waiting") {
  Context sim(deferred());
  const auto in_step = [&] {
    const Tensor a = Tensor::zeros(sim.allocator, {1000}, DType::fp32);
    const void* first = a.raw();
    Tensor b = Tensor::zeros(sim.allocator, {1000}, DType::fp32);
    b = Tensor();
    const Tensor c = Tensor::empty(sim.allocator, {990}, DType::fp32);
    CHECK(c.raw() != first);
    return c.raw();
  };
  const void* warm = in_step();
  const RuntimeCounters start = counters(sim);
  const std::int64_t held_bytes =
      static_cast<std::int64_t>(sim.queue()->runtime().allocated_bytes());
  for (int i = 0; i < 10; ++i) CHECK(in_step() == warm);
  const RuntimeCounters done = counters(sim) - start;
  CHECK(done.allocations == 0);
  CHECK(done.releases == 0);
  CHECK(done.synchronisations == 0);
  CHECK(static_cast<std::int64_t>(sim.queue()->runtime().allocated_bytes()) == held_bytes);
  CHECK(sim.allocator.stats().system_allocations == 2);

  // A block that is used again holds what the queue says, in order, although the host ran ahead.
  Tensor x = tensor(sim, {1}, {1});
  const void* at = x.raw();
  const Tensor copy = x.to(sim.allocator);
  x = Tensor();
  x = tensor(sim, {2}, {1});
  CHECK(x.raw() == at);
  CHECK(copy.item() == 1);
  CHECK(x.item() == 2);
}

TEST_CASE("device: memory is counted by category and given back") {
  const auto runtime = simt::open(Device::sim);
  Tensor survivor;
  {
    Context sim(runtime);
    survivor = Tensor::zeros(sim.allocator, {100}, DType::fp32, MemoryCategory::gradients);
    CHECK(sim.allocator.stats().current[2] == 400);
    const std::size_t before = runtime->allocated_bytes();
    { const Tensor gone = Tensor::empty(sim.allocator, {5000}, DType::fp32); }
    CHECK(runtime->allocated_bytes() >= before + 20000);
    sim.allocator.trim();
    CHECK(runtime->allocated_bytes() == before);
  }
  CHECK(survivor.to_vector() == Values(100, 0.0));
  survivor = Tensor();
  CHECK(runtime->allocated_bytes() == 0);
}

TEST_CASE("device: checked memory has exactly the size that was asked for") {
  const auto runtime = simt::open(Device::sim);
  {
    Context sim(runtime, /*checked=*/true);
    CHECK(sim.checked());
    const std::size_t before = runtime->allocated_bytes();
    const Tensor t = Tensor::empty(sim.allocator, {3}, DType::fp16);
    CHECK(runtime->allocated_bytes() == before + 6);
    std::vector<std::byte> seven(7);
    CHECK_THROWS_AS(sim.queue()->write(t.raw(), seven.data(), 7), Error);
    {
      const Scratch::Frame frame(sim.scratch);
      (void)sim.scratch.get<float>(5);
      const Scratch::Frame inner(sim.scratch);
      (void)sim.scratch.get<double>(1);
      CHECK(runtime->allocated_bytes() == before + 6 + 28);
    }
    CHECK(runtime->allocated_bytes() == before + 6);
    CHECK(sim.scratch.capacity() == 0);
  }
  CHECK(runtime->allocated_bytes() == 0);
}

TEST_CASE("device: workspace is device memory in stack order, kept between uses") {
  Context sim(Device::sim);
  const auto use = [&] {
    const Scratch::Frame frame(sim.scratch);
    float* a = sim.scratch.get<float>(3);
    double* b = sim.scratch.get<double>(100);
    CHECK(reinterpret_cast<std::byte*>(b) - reinterpret_cast<std::byte*>(a) == 64);
    CHECK(simt::emulator(sim.queue()->runtime()).owns(a));
    return a;
  };
  const float* first = use();
  const RuntimeCounters start = counters(sim);
  CHECK(use() == first);
  CHECK((counters(sim) - start) == RuntimeCounters{});
}

TEST_CASE("device: what is written may change on return, and many writes wait for nothing") {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Context sim(deferred(seed));
    std::vector<Tensor> tensors;
    std::vector<int> host(2000);
    for (int i = 0; i < 100; ++i) {
      std::fill(host.begin(), host.end(), i);
      const std::int64_t n = i % 3 == 0 ? 2000 : 1;
      tensors.push_back(Tensor::empty(sim.allocator, {n}, DType::i32));
      tensors.back().write(host.data());
    }
    std::fill(host.begin(), host.end(), -1);
    for (int i = 0; i < 100; ++i) {
      const Values seen = tensors[static_cast<std::size_t>(i)].to_vector();
      CHECK(std::set<double>(seen.begin(), seen.end()) == std::set<double>{static_cast<double>(i)});
    }
  }
  // At once: one piece of staging memory serves all writes.
  Context sim(Device::sim);
  const Tensor t = Tensor::empty(sim.allocator, {10}, DType::i32);
  const std::vector<int> values(10, 7);
  t.write(values.data());
  const RuntimeCounters start = counters(sim);
  for (int i = 0; i < 100; ++i) t.write(values.data());
  CHECK((counters(sim) - start).allocations == 0);
  CHECK((counters(sim) - start).synchronisations == 0);
  CHECK((counters(sim) - start).copies == 100);
}

TEST_CASE("device: writes that are too large for staging memory arrive as well") {
  Context sim(deferred());
  const std::int64_t n = (std::int64_t{5} << 20) + 3;
  std::vector<float> values(static_cast<std::size_t>(n), 1.5F);
  values.back() = 2.5F;
  const Tensor t = Tensor::empty(sim.allocator, {n}, DType::fp32);
  t.write(values.data());
  values.assign(values.size(), 0);
  CHECK(t.at(0) == 1.5);
  CHECK(t.at(n - 1) == 2.5);
}

TEST_CASE("device: host data does not get into a graph unnoticed") {
  Context sim(Device::sim);
  const Tensor t = Tensor::zeros(sim.allocator, {3}, DType::fp32);
  simt::Stream& stream = sim.queue()->stream();
  stream.begin_capture();
  const std::vector<float> values(3);
  CHECK_THROWS_WITH_AS(t.write(values.data()), doctest::Contains("while a graph is captured"),
                       Error);
  CHECK_THROWS_AS((void)t.item(), Error);
  t.zero();
  simt::Graph graph = stream.end_capture();
  const std::vector<float> ones(3, 1.0F);
  t.write(ones.data());
  graph.launch(stream);
  CHECK(t.to_vector() == Values(3, 0.0));
}

TEST_CASE("device: parameters start from the same bits on every device") {
  for (const ArenaSettings settings :
       {ArenaSettings{.seed = 5}, ArenaSettings{.compute = DType::bf16, .seed = 6},
        ArenaSettings{.compute = DType::fp16, .seed = 7},
        ArenaSettings{.master = DType::bf16, .seed = 8},
        ArenaSettings{.master = DType::fp64, .seed = 9}}) {
    Context cpu, sim(deferred());
    ParameterArena a, b;
    for (ParameterArena* arena : {&a, &b}) {
      arena->add("w", {3, 70}, Init::uniform_fan_in, 70);
      arena->add("gain", {5}, Init::ones);
      arena->add("table", {7, 3}, Init::normal);
      arena->add_buffer("mean", {4}, 0.25);
      arena->allocate(arena == &a ? cpu.allocator : sim.allocator, settings);
    }
    CHECK(held(a.flat_master()) == held(b.flat_master()));
    CHECK(held(a.flat_gradient()) == held(b.flat_gradient()));
    if (settings.compute != DType::fp32) CHECK(held(a.flat_compute()) == held(b.flat_compute()));
    Buffer& mean = b.buffers().front();
    CHECK(mean.value.to_vector() == Values(4, 0.25));
    CHECK(mean.staged.to_vector() == Values(4, 0.25));
    const RuntimeCounters start = counters(sim);
    mean.staged.zero();
    b.discard_buffers();
    CHECK((counters(sim) - start).synchronisations == 0);
    CHECK(mean.staged.to_vector() == Values(4, 0.25));
    mean.staged.zero();
    b.commit_buffers();
    CHECK(mean.value.to_vector() == Values(4, 0.0));
    b.zero_grad();
    CHECK(!b.entries().front().tensor.leaf()->has_grad);
  }
}

TEST_CASE("device: what a kernel reports reaches the host as an error of its operation") {
  Context sim(Device::sim);
  CHECK(sim.errors() != nullptr);
  sim.request_errors();
  CHECK_NOTHROW(sim.check_errors());
  CHECK_NOTHROW(sim.synchronize());
  const DeviceErrors label{static_cast<std::int32_t>(DeviceError::cross_entropy_label), 10, 3, 12};
  report(sim, label);
  CHECK_NOTHROW(sim.check_errors());  // nobody has asked for it
  sim.request_errors();
  try {
    sim.check_errors();
    FAIL("nothing was thrown");
  } catch (const DeviceDataError& e) {
    CHECK(std::string(e.what()) ==
          "[cross_entropy] row 3 has label 12, expected 0 to 9 or ignore_index");
    CHECK(e.report().where == 3);
    CHECK(e.report().value == 12);
  }
  CHECK_NOTHROW(sim.synchronize());  // once

  report(sim, {static_cast<std::int32_t>(DeviceError::embedding_index), 5, 2, -1});
  CHECK_THROWS_WITH_AS(sim.synchronize(), "[embedding] index -1 at position 2, expected in [0, 5)",
                       DeviceDataError);
  report(sim, {99, 0, 1, 2});
  CHECK_THROWS_WITH_AS(sim.synchronize(), doctest::Contains("unknown error 99"), DeviceDataError);

  Context cpu;
  CHECK(cpu.errors() == nullptr);
  cpu.request_errors();
  cpu.check_errors();
  cpu.synchronize();
}

TEST_CASE("device: reports arrive late and never make the host wait for the step that runs") {
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    CAPTURE(seed);
    Context sim(deferred(seed));
    int asked = 0;
    const auto step = [&](bool bad) {
      // Work enough that it is not done when it is asked for.
      for (int i = 0; i < 50; ++i) sim.queue()->stream().call([] {});
      if (bad) report(sim, {static_cast<std::int32_t>(DeviceError::cross_entropy_label), 2, 0, 7});
      sim.request_errors();
      sim.check_errors();
      ++asked;
    };
    step(true);  // not known yet
    CHECK_THROWS_AS(
        [&] {
          for (int i = 0; i < 3; ++i) step(false);
        }(),
        DeviceDataError);
    CHECK(asked <= 3);
    // Reported once: nothing of it comes after.
    for (int i = 0; i < 5; ++i) CHECK_NOTHROW(step(false));
    CHECK_NOTHROW(sim.synchronize());
  }
}

TEST_CASE("device: work that failed is told of where the host waits") {
  Context sim(deferred());
  const Tensor t = tensor(sim, {1}, {1});
  sim.queue()->stream().call([] { fail("kernel", "out of luck"); });
  CHECK_THROWS_WITH_AS((void)t.item(), "[kernel] out of luck", Error);
  CHECK(t.item() == 1);
}

TEST_CASE("device: a device that cannot be used is refused with the reason") {
  const std::string why = simt::refusal(Device::cuda);
  if (why.empty()) {
    CHECK(Context(Device::cuda).device() == Device::cuda);
  } else {
    CHECK_THROWS_WITH_AS(Context{Device::cuda}, doctest::Contains(why.c_str()), simt::DeviceAbsent);
  }
  CHECK(Context(Device::cpu).device() == Device::cpu);
  CHECK_THROWS_AS(Context(nullptr, /*checked=*/true), Error);
#if !defined(ROUNDOFF_HAS_SIM)
  Context sim(Device::sim);
  CHECK_THROWS_WITH_AS(visit_target(sim, [](auto) {}), "[device] sim has no kernels in this build",
                       Error);
#endif
}

TEST_CASE("device: zeros go to memory of the context's device") {
  Context cpu, sim(Device::sim);
  for (Context* c : {&cpu, &sim}) {
    const Tensor t = tensor(*c, {1, 2, 3}, {3}, DType::fp16);
    c->zero(t.slice(1, {2}).view());
    CHECK(t.to_vector() == Values{1, 0, 0});
    c->zero(t.slice(0, {0}).view());
  }
}

}  // namespace roundoff::testing
