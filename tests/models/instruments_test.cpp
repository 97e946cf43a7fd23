// The shadow run and the probe of whole runs: who is blamed, that the blame adds up, and that
// training does not notice.
#include "models/instruments.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models.h"
#include "models/layers.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/shape.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

TrainConfig config(Precision precision, const char* model = "mlp") {
  TrainConfig c;
  c.model.model = model;
  c.model.hidden = {16, 12};
  c.precision = precision;
  c.micro_batch = 8;
  c.accumulate = 2;
  c.schedule.lr = 1e-2;
  c.steps = 4;
  return c;
}

std::vector<nlohmann::json> lines(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
  return all;
}

// fc1 and a shortcut around relu: a value with two uses, whose gradient is a sum.
class Shortcut : public Model {
 public:
  Shortcut() : fc1_(parameters_, "fc1", 64, 16), fc2_(parameters_, "fc2", 16, 3) {}
  std::string_view name() const override { return "shortcut"; }
  Tensor forward(Context& context, const Tensor& x) override {
    const Tensor h = fc1_(context, flatten(context, x, 1));
    return fc2_(context, add(context, h, relu(context, h)));
  }

 private:
  LinearLayer fc1_, fc2_;
};

std::vector<std::byte> weights(Trainer& trainer) {
  const Tensor& w = trainer.model().parameters().flat_master();
  return {w.data<std::byte>(), w.data<std::byte>() + w.bytes()};
}

}  // namespace

TEST_CASE("shadow_error: relative and ulp errors of planted differences") {
  const std::vector<double> reference{1, 2, 4};
  CHECK(shadow_error(reference, reference, DType::fp16).relative == 0);
  CHECK(std::isinf(shadow_error(reference, reference, DType::fp16).bits()));
  const ShadowError off =
      shadow_error(std::vector<double>{1 + 0x1p-10, 2, 4}, reference, DType::fp16);
  CHECK(off.max_ulp == 1);
  CHECK(off.rms_ulp == doctest::Approx(std::sqrt(1.0 / 3)));
  CHECK(off.relative == doctest::Approx(0x1p-10 / std::sqrt(21.0)));
  CHECK(off.bits() == doctest::Approx(10 + std::log2(std::sqrt(21.0))));
  // A subnormal reference, and 0, have the smallest subnormal as their unit.
  CHECK(shadow_error(std::vector<double>{0x1p-24}, std::vector<double>{0}, DType::fp16).max_ulp ==
        1);
  CHECK(shadow_error(std::vector<double>{0x3p-24}, std::vector<double>{0x1p-24}, DType::fp16)
            .max_ulp == 2);
  CHECK(std::isinf(
      shadow_error(std::vector<double>{HUGE_VAL}, std::vector<double>{1}, DType::fp16).relative));
  CHECK(shadow_error(std::vector<double>{HUGE_VAL}, std::vector<double>{HUGE_VAL}, DType::fp16)
            .relative == 0);
}

TEST_CASE("the shadow ranks the operation with the low precision first") {
  const Dataset data = small_dataset();
  for (const DType low : {DType::bf16, DType::fp16}) {
    TrainConfig c = config(low == DType::bf16 ? Precision::bf16 : Precision::fp16);
    // Everything in fp32 but one operation.
    c.autocast = {{"linear", DType::fp32}, {"relu", DType::fp32}, {"cross_entropy", low}};
    Trainer trainer(c, data);
    const ShadowReport report = shadow_step(trainer);
    REQUIRE(!report.rows.empty());
    const ShadowRow& worst = report.rows.front();
    // Its input is rounded for it, or its gradient: both are a cast, or itself.
    CHECK((worst.operation == "cast" || worst.operation == "cross_entropy"));
    CHECK(worst.local.bits() < format_of(low).precision + 4);
    for (const ShadowRow& row : report.rows)
      if (row.operation == "linear") CHECK(row.local.bits() > 20);
  }
}

TEST_CASE("in fp32 every node is within its rounding; errors of outputs are inherited and grow") {
  const Dataset data = small_dataset();
  Trainer trainer(config(Precision::fp32, "convnet"), data);
  const ShadowReport report = shadow_step(trainer);
  CHECK(report.samples == 8);
  CHECK(report.loss == doctest::Approx(report.fp64_loss).epsilon(1e-5));
  std::int64_t forward = 0, backward = 0;
  for (const ShadowRow& row : report.rows) {
    CAPTURE(row.operation);
    CAPTURE(row.tensor);
    ++(row.pass == ShadowRow::Pass::forward ? forward : backward);
    CHECK(row.local.bits() > 18);
    CHECK(row.total.bits() > 16);
    const bool exact =
        row.operation == "relu" || row.operation == "max_pool2d" || row.operation == "flatten";
    // Each output is one of its inputs.
    if (exact && row.pass == ShadowRow::Pass::forward) {
      CHECK(row.local.relative == 0);
      CHECK(row.total.relative > 0);
    }
  }
  CHECK(forward == 9);    // conv, relu, pool, twice; flatten, fc, cross-entropy
  CHECK(backward == 14);  // an input's gradient each but the image's; weights and biases of three
  CHECK(std::is_sorted(
      report.rows.begin(), report.rows.end(),
      [](const ShadowRow& a, const ShadowRow& b) { return a.local.relative > b.local.relative; }));
}

TEST_CASE("16-bit outputs are one rounding off, and the fp64 run is far from them") {
  const Dataset data = small_dataset();
  Trainer trainer(config(Precision::bf16), data);
  const ShadowReport report = shadow_step(trainer);
  bool copies = false;
  for (const ShadowRow& row : report.rows) {
    copies = copies || row.operation == "copy";
    if (row.operation != "linear" || row.pass != ShadowRow::Pass::forward) continue;
    CHECK(row.dtype == DType::bf16);
    // The fp32 sum is rounded once: half a unit, and what 2^-15 of it can shift.
    CHECK(row.local.max_ulp <= 0.51);
    CHECK(row.local.max_ulp > 0.1);
    CHECK(row.total.relative > row.local.relative);
    CHECK(row.bits_lost() == 0);
  }
  CHECK(copies);
}

TEST_CASE(
    "a value with two uses: what another node added to its gradient is not this one's error") {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    Context context;
    apply_precision(context, precision);
    Shortcut model, twin;
    model.parameters().allocate(context.allocator, arena_settings(precision, 1));
    const MicroBatch micro{
        .x = Tensor::from(context.allocator, normal_values(4 * 64, 1), {4, 8, 8, 1}, DType::fp32),
        .labels = Tensor::from(context.allocator, random_labels(4, 3, 2), {4}, DType::i64)};
    const ShadowReport report = shadow_step(context, model, twin, micro, 1.0);
    int sums = 0;
    for (const ShadowRow& row : report.rows) {
      CAPTURE(row.operation);
      CAPTURE(row.tensor);
      CHECK(row.local.bits() > (precision == Precision::bf16 ? 7.5 : 20));
      CHECK(row.total.bits() > (precision == Precision::bf16 ? 4 : 18));
      // The gradient of h is written by add and relu, and is kept in fp32 until it is complete.
      if (row.pass != ShadowRow::Pass::backward || row.operation != "relu") continue;
      ++sums;
      CHECK(row.dtype == DType::fp32);
    }
    CHECK(sums == 1);
    for (const ParameterEntry& e : model.parameters().entries())
      CHECK_FALSE(e.tensor.leaf()->has_grad);
  }
}

TEST_CASE("dropout and BatchNorm: the masks and the statistics are the same in fp64") {
  const Dataset data = small_dataset();
  TrainConfig c = config(Precision::fp32, "convnet");
  c.model.dropout = 0.5;
  c.model.batch_norm = true;
  Trainer trainer(c, data);
  const auto before = weights(trainer);
  const ShadowReport report = shadow_step(trainer);
  CHECK(weights(trainer) == before);
  for (const ShadowRow& row : report.rows) {
    CAPTURE(row.operation);
    CAPTURE(row.tensor);
    // BatchNorm takes the mean away: the gradient of a bias before it is 0, and all of it is error.
    if (row.tensor == "gradient of conv1.bias" || row.tensor == "gradient of conv2.bias") continue;
    CHECK(row.total.bits() > 10);
  }
}

TEST_CASE("a run with probe and shadow trains to the same bits, and writes what it saw") {
  const Dataset data = small_dataset();
  for (const Precision precision : {Precision::fp16, Precision::bf16, Precision::pure_fp16}) {
    CAPTURE(name(precision));
    const TestFolder plain("plain"), probed("probed");
    const TrainConfig c = config(precision);
    run_training(c, data, {.out = plain.path, .amp_check = AmpCheck::off});
    Instruments instruments({.out = probed.path, .probe_every = 2, .shadow = true});
    RunHooks hooks;
    instruments.attach(hooks);
    run_training(c, data, {.out = probed.path, .amp_check = AmpCheck::off}, hooks);
    CHECK(lines(plain / "metrics.jsonl") == lines(probed / "metrics.jsonl"));
    CHECK(instruments.probed() == 2);
    CHECK(instruments.shadows().size() == 2);
    const std::vector<nlohmann::json> probe = lines(probed / "probe.jsonl");
    REQUIRE(probe.size() == 2);
    CHECK(probe[0]["step"] == 1);
    CHECK(probe[1]["step"] == 3);
    for (const nlohmann::json& line : probe) {
      for (const nlohmann::json& t : line["tensors"]) {
        const nlohmann::json& s = t["stored"];
        std::int64_t counted = s["zeros"].get<std::int64_t>() + s["inf"].get<std::int64_t>() +
                               s["nan"].get<std::int64_t>();
        for (const nlohmann::json& n : s["exponents"]["counts"]) counted += n.get<std::int64_t>();
        CHECK(counted == s["elements"].get<std::int64_t>());
      }
    }
    std::ifstream in(probed / "shadow.json");
    CHECK(nlohmann::json::parse(in)["windows"].size() == 2);
  }
}

TEST_CASE("a reproducible run keeps its bits under the instruments") {
  const Dataset data = small_dataset();
  const TestFolder plain("plain-reproducible"), probed("probed-reproducible");
  TrainConfig c = config(Precision::fp16);
  c.reproducible = true;
  run_training(c, data, {.out = plain.path, .amp_check = AmpCheck::off});
  Instruments instruments({.out = probed.path, .probe_every = 1, .shadow = true});
  RunHooks hooks;
  instruments.attach(hooks);
  run_training(c, data, {.out = probed.path, .amp_check = AmpCheck::off}, hooks);
  CHECK(lines(plain / "metrics.jsonl") == lines(probed / "metrics.jsonl"));
  CHECK(lines(probed / "probe.jsonl").size() == 4);
  CHECK(instruments.shadows().size() == 2);
}

TEST_CASE("a skip has its reason, and the scale that fits is found by looking again") {
  const Dataset data = small_dataset();
  TrainConfig c = config(Precision::fp16);
  c.scaler.init_scale = 0x1p30;
  c.steps = 3;
  const TestFolder folder("skips");
  Instruments instruments({.out = folder.path, .probe_every = 2});
  RunHooks hooks;
  instruments.attach(hooks);
  run_training(c, data, {.out = folder.path, .amp_check = AmpCheck::off}, hooks);
  const std::vector<nlohmann::json> probe = lines(folder / "probe.jsonl");
  REQUIRE(probe.size() == 3);
  CHECK(probe[0]["first_nonfinite"]["text"].get<std::string>().starts_with("backward: "));
  CHECK(probe[0]["skip"] == probe[0]["first_nonfinite"]["text"]);
  CHECK(probe[1]["probed"] == false);
  CHECK(probe[1]["skip"].get<std::string>().find("fc1.weight") != std::string::npos);
  // By trying: the first window's gradient, at every scale.
  Trainer trainer(c, data);
  const SamplerState state = trainer.sampler().state();
  const std::vector<MicroBatch> window = trainer.cut(trainer.sampler().next(), c.micro_batch);
  trainer.sampler().restore(state);
  double largest = 0;
  for (int k = 0; k <= 30; ++k) {
    accumulate_window(trainer.context(), trainer.model(), window, std::ldexp(1.0, k), {});
    bool finite = true;
    for (const ParameterEntry& e : trainer.model().parameters().entries())
      finite = finite && all_finite(e.tensor.leaf()->grad);
    trainer.model().parameters().zero_grad();
    if (finite) largest = std::ldexp(1.0, k);
  }
  CHECK(largest > 1);
  CHECK(largest < 0x1p30);
  CHECK(probe[0]["scale_that_fits"]["largest"].get<double>() == largest);
}

TEST_CASE("probes of a resumed run follow those of its first part") {
  const Dataset data = small_dataset();
  const TestFolder folder("resumed");
  TrainConfig c = config(Precision::fp16);
  for (const std::int64_t steps : {2, 5}) {
    c.steps = steps;
    Instruments instruments(
        {.out = folder.path, .probe_every = 1, .shadow = true, .resume = steps == 5});
    RunHooks hooks;
    instruments.attach(hooks);
    run_training(c, data, {.out = folder.path, .resume = steps == 5, .amp_check = AmpCheck::off},
                 hooks);
  }
  const std::vector<nlohmann::json> probe = lines(folder / "probe.jsonl");
  REQUIRE(probe.size() == 5);
  for (std::size_t i = 0; i < probe.size(); ++i) CHECK(probe[i]["step"] == i + 1);
  std::ifstream in(folder / "shadow.json");
  CHECK(nlohmann::json::parse(in)["windows"].size() == 4);
}

TEST_CASE("on sim a run with probes gives the bits of one without, as a graph too") {
  const Dataset data = small_dataset();
  for (const TrainConfig::Graph graph : {TrainConfig::Graph::off, TrainConfig::Graph::on}) {
    TrainConfig c = config(Precision::fp16, "tiny-mlp");
    c.device = Device::sim;
    c.graph = graph;
    c.scaler.init_scale = 0x1p30;  // skips
    const TestFolder plain("plain-sim"), probed("probed-sim");
    run_training(c, data, {.out = plain.path, .amp_check = AmpCheck::off});
    Instruments instruments({.out = probed.path, .probe_every = 3, .shadow = true});
    RunHooks hooks;
    instruments.attach(hooks);
    run_training(c, data, {.out = probed.path, .amp_check = AmpCheck::off}, hooks);
    CHECK(lines(plain / "metrics.jsonl") == lines(probed / "metrics.jsonl"));
    const std::vector<nlohmann::json> probe = lines(probed / "probe.jsonl");
    // Windows 1 and 4 are probed, and 2 and 3 were skipped unseen.
    REQUIRE(probe.size() == 4);
    for (std::size_t i = 0; i < 4; ++i) {
      CHECK(probe[i]["step"] == i + 1);
      CHECK(probe[i]["probed"] == (i % 3 == 0));
      CHECK(probe[i]["skip"].is_string());
    }
    CHECK(probe[0]["first_nonfinite"]["text"].get<std::string>().starts_with("backward: "));
    CHECK(instruments.shadows().size() == 2);
  }
}
