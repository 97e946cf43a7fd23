// Training on a GPU: every node within its bound, and a step that is one graph.
#include <doctest/doctest.h>

#include "models.h"
#include "node_bounds.h"
#include "tests/skip.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr Precision kMixed[] = {Precision::fp32, Precision::bf16, Precision::fp16};

TrainConfig config(const char* model, Precision precision) {
  TrainConfig c;
  c.data = "small";
  c.model = {.model = model, .hidden = {16}};
  c.precision = precision;
  c.device = Device::cuda;
  c.micro_batch = 6;
  c.epochs = 100;
  c.schedule = {.kind = ScheduleSettings::Kind::cosine, .lr = 1e-2, .warmup = 3};
  c.clip = 1;
  c.scaler.init_scale = 1024;
  return c;
}

}  // namespace

TEST_CASE("twenty steps on a GPU: every node, fed its own inputs, within its bound") {
  const std::string absent = simt::refusal(Device::cuda);
  if (!absent.empty()) return skip_test(absent);
  const Dataset data = small_dataset();
  for (const char* model : {"mlp", "convnet"}) {
    for (const Precision precision : kMixed) {
      CAPTURE(model);
      CAPTURE(name(precision));
      Trainer trainer(config(model, precision), data);
      NodeBounds bounds({{"conv2d", {{"padding", "1"}}},
                         {"cross_entropy", {{"reduction", "sum"}}},
                         {"flatten", {{"first", "1"}}}});
      trainer.context().observer = &bounds;
      for (int step = 0; step < 20; ++step) {
        CAPTURE(step);
        trainer.step();
        trainer.settle();
        bounds.check();
        CHECK(trainer.last().did_step);
      }
    }
  }
}

TEST_CASE("a GPU's step is one graph, with the bits of its kernels one by one") {
  const std::string absent = simt::refusal(Device::cuda);
  if (!absent.empty()) return skip_test(absent);
  const Dataset data = small_dataset();
  for (const Precision precision : kMixed) {
    TrainConfig c = config("convnet", precision);
    c.model.batch_norm = true;
    Trainer graph(c, data);
    c.graph = TrainConfig::Graph::off;
    Trainer plain(c, data);
    for (int step = 0; step < 12; ++step) {
      const std::int64_t allocations = graph.context().queue()->runtime().counters().allocations;
      graph.step();
      plain.step();
      if (step > 2) CHECK(graph.context().queue()->runtime().counters().allocations == allocations);
    }
    graph.settle();
    plain.settle();
    REQUIRE(graph.graph() != nullptr);
    REQUIRE(graph.graph()->graph() != nullptr);
    CHECK(graph.last().loss == plain.last().loss);
    CHECK(graph.model().parameters().flat_master().to_vector() ==
          plain.model().parameters().flat_master().to_vector());
  }
}
