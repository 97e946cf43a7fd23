// Operations on a device, through the tape.
#include <doctest/doctest.h>

#include <limits>
#include <string>
#include <vector>

#include "engine/cast.h"
#include "engine/context.h"
#include "kernels/simt/runtime_sim.h"
#include "ops/cross_entropy.h"
#include "ops/run.h"
#include "ops/softmax.h"

namespace roundoff {

namespace {

// y = softmax(bf16(x)) of rows of equal logits, and the gradient of dy . y: y is 1/4 everywhere and
// dx = (dy - mean of dy) / 4, all exact.
void check_softmax_of_cast(Context& context) {
  const std::vector<double> dy{4, 0, -8, 12, 0, 0, 0, 16};
  const Tensor x = make_leaf(
      context.allocator,
      Tensor::from(context.allocator, std::vector<double>(8, -3.7), {2, 4}, DType::fp32), "x");
  const Tensor y = softmax(context, cast(context, x, DType::bf16), 1);
  context.tape.backward(context, y, Tensor::from(context.allocator, dy, {2, 4}, DType::fp32));
  CHECK(y.dtype() == DType::bf16);
  CHECK(y.to_vector() == std::vector<double>(8, 0.25));
  CHECK(x.leaf()->grad.to_vector() == std::vector<double>{0.5, -0.5, -2.5, 2.5, -1, -1, -1, 3});
  context.tape.clear();
}

}  // namespace

TEST_CASE("a tape runs forward and backward on every device") {
  Context cpu;
  check_softmax_of_cast(cpu);
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (const auto order : {simt::QueueOrder::immediate, simt::QueueOrder::deferred}) {
      Context sim(simt::open_sim(
          {.emulator = simt::with_schedule({}, seed), .order = order, .order_seed = seed}));
      check_softmax_of_cast(sim);
    }
  }
  if (simt::refusal(Device::cuda).empty()) {
    Context cuda(Device::cuda);
    check_softmax_of_cast(cuda);
  }
}

#if defined(ROUNDOFF_HAS_CHECKED)
TEST_CASE("a tape runs the instrumented kernels, and the sanitizer has nothing to say") {
  Context sim(simt::open_sim({.emulator = {.sanitize = true}}), /*checked=*/true);
  check_softmax_of_cast(sim);
}
#endif

TEST_CASE("forward and backward on sim allocate nothing and wait for nothing once they are warm") {
  Context sim(Device::sim);
  const Tensor x =
      make_leaf(sim.allocator,
                Tensor::from(sim.allocator, std::vector<double>(6, 0.5), {2, 3}, DType::fp32), "x");
  const auto step = [&] {
    const Tensor y = softmax(sim, cast(sim, x, DType::fp16), 1);
    sim.tape.backward(sim, y, y);
    sim.tape.clear();
    x.leaf()->zero_grad();
    sim.request_errors();
    sim.check_errors();
  };
  for (int i = 0; i < 3; ++i) step();
  const simt::RuntimeCounters start = sim.queue()->runtime().counters();
  step();
  const simt::RuntimeCounters done = sim.queue()->runtime().counters() - start;
  CHECK(done.synchronisations == 0);
  CHECK(done.allocations == 0);
  CHECK(done.releases == 0);
  CHECK(done.launches == 4);
}

TEST_CASE("unscale_clip on sim gives cpu's bits, norm, clip and verdict") {
  for (const double last : {4.0, std::numeric_limits<double>::infinity()}) {
    std::vector<OpResult> results;
    Context cpu, sim(Device::sim);
    for (Context* c : {&cpu, &sim}) {
      const OpParameters parameters(op_signature("unscale_clip"),
                                    {{"scale", "1024"}, {"max_norm", "1"}});
      NamedTensors in;
      in["g0"] = Tensor::from(c->allocator, std::vector<double>{3, 0, 0}, {3}, DType::fp16);
      in["g1"] = Tensor::from(c->allocator, std::vector<double>{0, last}, {1, 2}, DType::fp32);
      in["g10"] = Tensor::from(c->allocator, {}, {0}, DType::bf16);
      results.push_back(run_op(*c, parameters, in));
    }
    CHECK(results[0].found_inf == (last != 4.0));
    CHECK(results[0].found_inf == results[1].found_inf);
    for (const auto& [name, tensor] : results[0].outputs) {
      const std::vector<double> a = tensor.to_vector();
      const std::vector<double> b = results[1].outputs.at(name).to_vector();
      CHECK(a == b);
    }
  }
}

TEST_CASE("labels out of range on sim are told of when the host waits") {
  Context sim(Device::sim);
  const Tensor logits =
      Tensor::from(sim.allocator, std::vector<double>{1, 2, 3, 4, 5, 6}, {2, 3}, DType::fp32);
  const Tensor labels = Tensor::from(sim.allocator, std::vector<double>{0, 3}, {2}, DType::i64);
  (void)cross_entropy(sim, logits, labels);
  try {
    sim.synchronize();
    FAIL("nothing was thrown");
  } catch (const DeviceDataError& e) {
    CHECK(e.report().where == 1);
    CHECK(e.report().value == 3);
    CHECK(std::string(e.what()).find("[cross_entropy] row 1 has label 3, expected 0 to 2") == 0);
  }
  CHECK_NOTHROW(sim.synchronize());
}

}  // namespace roundoff
