// Checkpoints: complete, bit-exact, whole or refused.
#include "models/checkpoint.h"

#include <unistd.h>

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "engine/io/file.h"
#include "engine/io/safetensors.h"
#include "models.h"

using namespace roundoff;
using namespace roundoff::test;
namespace fs = std::filesystem;

namespace {

TrainConfig config(Precision precision, const char* model = "convnet") {
  TrainConfig c;
  c.model.model = model;
  c.model.batch_norm = std::string(model) == "convnet";
  c.model.dropout = std::string(model) == "convnet" ? 0.25 : 0;
  c.precision = precision;
  c.micro_batch = 6;
  c.accumulate = 2;
  c.epochs = 4;
  c.schedule = {.kind = ScheduleSettings::Kind::cosine, .lr = 1e-2, .warmup = 3};
  // Overflows in fp16, so that skips lie before the save.
  c.scaler.init_scale = 0x1p24;
  c.scaler.growth_interval = 4;
  c.clip = 1.0;
  return c;
}

std::vector<std::byte> state(Trainer& trainer) {
  std::vector<std::byte> bytes;
  const auto add = [&](const Tensor& t) {
    if (t.defined())
      bytes.insert(bytes.end(), t.data<std::byte>(), t.data<std::byte>() + t.bytes());
  };
  ParameterArena& parameters = trainer.model().parameters();
  add(parameters.flat_master());
  add(trainer.optimizer().first_moment());
  add(trainer.optimizer().second_moment());
  for (const Buffer& b : parameters.buffers()) add(b.value);
  for (const ParameterEntry& e : parameters.entries()) {
    const auto* p = reinterpret_cast<const std::byte*>(&e.steps);
    bytes.insert(bytes.end(), p, p + sizeof(e.steps));
  }
  return bytes;
}

}  // namespace

TEST_CASE(
    "case 126 [CKPT] resume equals an uninterrupted run, an overflow before the save included") {
  const Dataset data = small_dataset();
  const TestFolder folder("resume");
  for (const Precision precision :
       {Precision::fp32, Precision::fp16, Precision::bf16, Precision::pure_bf16}) {
    Trainer whole(config(precision), data);
    Trainer first(config(precision), data);
    std::vector<double> losses;
    for (int i = 0; i < 10; ++i) losses.push_back(whole.step().loss);
    for (int i = 0; i < 5; ++i) first.step();
    if (precision == Precision::fp16) CHECK(first.skipped() > 0);
    save_checkpoint(folder / "c.safetensors", first, {});
    Trainer second(config(precision), data);
    second.step();  // whatever it did before is replaced
    load_checkpoint(folder / "c.safetensors", second);
    CHECK(state(second) == state(first));
    for (std::size_t i = 5; i < 10; ++i) CHECK(second.step().loss == losses[i]);
    CHECK(state(second) == state(whole));
    CHECK(second.scaler().state() == whole.scaler().state());
    CHECK(second.updates() == whole.updates());
    CHECK(second.sampler().state() == whole.sampler().state());
  }
}

TEST_CASE("case 123 [CKPT] scaler state is complete") {
  const Dataset data = small_dataset();
  const TestFolder folder("scaler");
  TrainConfig c = config(Precision::fp16, "mlp");
  c.scaler = {.init_scale = 32768, .growth_interval = 2000};
  Trainer trainer(c, data);
  LossScalerState almost = trainer.scaler().state();
  almost.state.growth_tracker = 1999;
  trainer.scaler().load(almost);
  trainer.scaler().abandon();
  save_checkpoint(folder / "c.safetensors", trainer, {});
  c.scaler.growth_interval = 7;  // the checkpoint's settings win
  Trainer resumed(c, data);
  load_checkpoint(folder / "c.safetensors", resumed);
  CHECK(resumed.scaler().state() == almost);
  CHECK(resumed.step().did_step);
  CHECK(resumed.scaler().scale() == 65536);
  CHECK(resumed.scaler().growth_tracker() == 0);
}

TEST_CASE("case 124 [CKPT] optimizer state keeps its dtype") {
  const Dataset data = small_dataset();
  const TestFolder folder("moments");
  Trainer trainer(config(Precision::bf16, "mlp"), data);
  auto* m = trainer.optimizer().first_moment().data<float>();
  m[0] = std::bit_cast<float>(0x3DCCCCCDU);
  save_checkpoint(folder / "c.safetensors", trainer, {});
  Trainer resumed(config(Precision::bf16, "mlp"), data);
  load_checkpoint(folder / "c.safetensors", resumed);
  CHECK(std::bit_cast<std::uint32_t>(resumed.optimizer().first_moment().data<float>()[0]) ==
        0x3DCCCCCDU);
  const SafetensorsFile file = read_safetensors(folder / "c.safetensors");
  CHECK(file.tensors.at("optimizer.steps").type == ElementType::i64);
  CHECK(file.tensors.at("fc1.weight").type == ElementType::fp32);  // masters, not the copy
}

TEST_CASE("case 127 [CKPT] a truncated or changed file is refused and changes nothing") {
  const Dataset data = small_dataset();
  const TestFolder folder("damaged");
  Trainer trainer(config(Precision::fp16, "mlp"), data);
  for (int i = 0; i < 3; ++i) trainer.step();
  const fs::path path = folder / "c.safetensors";
  save_checkpoint(path, trainer, {});
  const Bytes whole = read_file(path);
  Trainer victim(config(Precision::fp16, "mlp"), data);
  victim.step();
  const auto before = state(victim);
  const auto refused = [&](const Bytes& bytes) {
    write_file_atomically(path, bytes);
    CHECK_THROWS_AS(load_checkpoint(path, victim), FileError);
    CHECK(state(victim) == before);
  };
  for (std::size_t part = 0; part < 8; ++part)
    refused(
        Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * part / 8)));
  for (const std::size_t at : {whole.size() - 1, whole.size() / 2, std::size_t{9}}) {
    Bytes flipped = whole;
    flipped[at] ^= std::byte{1};
    refused(flipped);
  }
  write_file_atomically(path, whole);
  load_checkpoint(path, victim);
  CHECK(state(victim) == state(trainer));
}

TEST_CASE("a checkpoint of another run is refused by name of what differs") {
  const Dataset data = small_dataset();
  const TestFolder folder("identity");
  const fs::path path = folder / "c.safetensors";
  Trainer trainer(config(Precision::fp32, "mlp"), data);
  save_checkpoint(path, trainer, {});
  const auto refused = [&](const TrainConfig& c, const Dataset& d, const char* what) {
    Trainer other(c, d);
    bool named = false;
    try {
      load_checkpoint(path, other);
    } catch (const Error& e) {
      named = std::string(e.what()).find(what) != std::string::npos;
    }
    CHECK_MESSAGE(named, what);
  };
  TrainConfig c = config(Precision::fp32, "mlp");
  c.seed = 2;
  refused(c, data, "seed");
  refused(config(Precision::fp16, "mlp"), data, "precision");
  c = config(Precision::fp32, "mlp");
  c.model.hidden = {64};
  refused(c, data, "model");
  c = config(Precision::fp32, "mlp");
  c.micro_batch = 5;
  refused(c, data, "micro_batch");
  // Data prepared otherwise: another mean.
  Dataset shifted = small_dataset();
  shifted.normalization.mean[0] += 0.5;
  refused(config(Precision::fp32, "mlp"), shifted, "mean");
}

TEST_CASE("weights alone go into a model of the same shape") {
  const Dataset data = small_dataset();
  const TestFolder folder("weights");
  const fs::path path = folder / "c.safetensors";
  Trainer trainer(config(Precision::bf16), data);
  trainer.step();
  save_checkpoint(path, trainer, {});
  const CheckpointModel description = read_checkpoint_model(path);
  CHECK(description.model.model == "convnet");
  CHECK(description.model.batch_norm);
  CHECK(description.precision == Precision::bf16);
  CHECK(description.normalization == data.normalization);
  Trainer other(config(Precision::bf16), data);
  load_weights(path, other.model());
  CHECK(other.evaluate(data.test).correct == trainer.evaluate(data.test).correct);
  CHECK(other.evaluate(data.test).loss == trainer.evaluate(data.test).loss);
}
