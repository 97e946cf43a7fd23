// roundoff train and demo from outside.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.h"
#include "engine/io/safetensors.h"
#include "tests/cli/run_program.h"

using namespace roundoff;
using test::contains;
using test::is_one_line_error;
using test::Result;
using test::run_on_terminal;
using test::run_program;
namespace fs = std::filesystem;

namespace {

using Strings = std::vector<std::string>;

// A run of a few windows on generated data.
Strings train(const Strings& more) {
  Strings all{"train", "--model", "mlp", "--hidden", "8", "--data", "glyphs"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::int64_t lines(const std::string& path) {
  std::istringstream in(test::read_text(path));
  std::int64_t n = 0;
  for (std::string line; std::getline(in, line);) ++n;
  return n;
}

void check_usage(const Strings& arguments, const std::string& part) {
  const Result r = run_program(arguments);
  CAPTURE(r.err);
  CHECK(r.status == cli::kUsage);
  CHECK(r.out.empty());
  CHECK(contains(r.err, part));
  CHECK(contains(r.err, "roundoff: error: ["));
}

}  // namespace

TEST_CASE("train leaves what it promises, and its settings run the same again") {
  const test::TemporaryFolder folder;
  const std::string a = folder.path("a");
  const std::string b = folder.path("b");
  const Result r = run_program(train(
      {"--precision", "fp16", "--steps", "7", "--schedule", "cosine", "--out", a, "--json", "-"}));
  REQUIRE(r.status == 0);
  const auto table = nlohmann::json::parse(r.out);
  CHECK(table["rows"][0]["steps"] == 7);
  for (const char* file : {"/config.toml", "/environment.json", "/metrics.jsonl", "/summary.json",
                           "/last.safetensors", "/best.safetensors"})
    CHECK(fs::exists(a + file));
  CHECK(lines(a + "/metrics.jsonl") == 7);
  const auto environment = nlohmann::json::parse(test::read_text(a + "/environment.json"));
  CHECK(environment.contains("commit"));
  CHECK(environment["command_line"].size() > 5);
  CHECK(run_program({"train", "--config", a + "/config.toml", "--out", b, "--quiet"}).status == 0);
  CHECK(test::read_text(a + "/metrics.jsonl") == test::read_text(b + "/metrics.jsonl"));
  CHECK(test::read_text(a + "/best.safetensors").size() > 0);
}

TEST_CASE("train runs on sim, and the same command gives the same bits") {
  const test::TemporaryFolder folder;
  std::vector<std::string> metrics;
  for (const char* name : {"a", "b"}) {
    const std::string out = folder.path(name);
    const Result r =
        run_program(train({"--device", "sim", "--precision", "fp16", "--steps", "5",
                           "--micro-batch", "8", "--accumulate", "2", "--out", out, "--quiet"}));
    CAPTURE(r.err);
    REQUIRE(r.status == 0);
    metrics.push_back(test::read_text(out + "/metrics.jsonl"));
    CHECK(lines(out + "/metrics.jsonl") == 5);
    const auto summary = nlohmann::json::parse(test::read_text(out + "/summary.json"));
    CHECK(summary["device"] == "sim");
    CHECK(summary["updates"].get<int>() + summary["skipped"].get<int>() == 5);
  }
  CHECK(metrics[0] == metrics[1]);
}

TEST_CASE("a step that is a graph gives the bits of its kernels") {
  const test::TemporaryFolder folder;
  std::vector<std::string> metrics;
  for (const char* graph : {"off", "on"}) {
    const std::string out = folder.path(graph);
    const Result r = run_program(train({"--device", "sim", "--graph", graph, "--steps", "4",
                                        "--micro-batch", "8", "--out", out, "--quiet"}));
    CAPTURE(r.err);
    REQUIRE(r.status == 0);
    metrics.push_back(test::read_text(out + "/metrics.jsonl"));
    CHECK(lines(out + "/metrics.jsonl") == 4);
  }
  CHECK(metrics[0] == metrics[1]);
}

TEST_CASE("a run goes on bit for bit, with its own settings") {
  const test::TemporaryFolder folder;
  const std::string a = folder.path("a");
  const std::string b = folder.path("b");
  const Strings settings{"--precision", "fp16",       "--micro-batch", "16",       "--accumulate",
                         "4",           "--schedule", "cosine",        "--warmup", "3",
                         "--clip",      "1",          "--init-scale",  "16777216"};
  const auto with = [&](const Strings& more) {
    Strings all = train(settings);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  CHECK(run_program(with({"--steps", "12", "--out", a})).status == 0);
  const Result first = run_program(with({"--steps", "5", "--out", b}));
  CHECK(first.status == 0);
  CHECK(contains(first.err, "effective batch 64 = 4 micro-batches of 16"));
  CHECK(run_program({"train", "--resume", b, "--steps", "12"}).status == 0);
  CHECK(test::read_text(a + "/metrics.jsonl") == test::read_text(b + "/metrics.jsonl"));
  check_usage({"train", "--resume", b, "--lr", "0.1"}, "--lr does not go with --resume");
  check_usage({"train", "--resume", b, "--out", a}, "--out does not go with --resume");
  check_usage({"train", "--resume", b, "--steps", "3"}, "has done 12 windows already");
  const Result absent = run_program({"train", "--resume", folder.path("none")});
  CHECK(absent.status == cli::kFailed);
  CHECK(is_one_line_error(absent.err, "read"));
}

TEST_CASE("a resumed run keeps the command line that it began with, and adds the later ones") {
  const test::TemporaryFolder folder;
  const std::string a = folder.path("a");
  REQUIRE(run_program(train({"--steps", "2", "--out", a})).status == 0);
  for (const char* steps : {"3", "4"})
    REQUIRE(run_program({"train", "--resume", a, "--steps", steps}).status == 0);
  const auto j = nlohmann::json::parse(test::read_text(a + "/environment.json"));
  CHECK(j["command_line"].back() == a);
  REQUIRE(j["resumed"].size() == 2);
  CHECK(j["resumed"][0]["command_line"].back() == "3");
  CHECK(j["resumed"][1]["command_line"].back() == "4");
  CHECK(j["resumed"][1]["commit"] == j["commit"]);
  // One that was lost is written anew, and ends no run.
  fs::remove(a + "/environment.json");
  REQUIRE(run_program({"train", "--resume", a, "--steps", "5"}).status == 0);
  const auto anew = nlohmann::json::parse(test::read_text(a + "/environment.json"));
  CHECK(anew["command_line"].back() == "5");
}

TEST_CASE("every number of summary.json that is no setting says where it comes from") {
  const test::TemporaryFolder folder;
  const std::string a = folder.path("a");
  REQUIRE(run_program(train({"--steps", "2", "--out", a})).status == 0);
  const auto j = nlohmann::json::parse(test::read_text(a + "/summary.json"));
  const auto& provenance = j["provenance"];
  const std::vector<std::string> settings{"seed", "micro_batch", "accumulate", "provenance"};
  for (const auto& entry : j.items()) {
    if (entry.value().is_string() || entry.value().is_boolean()) continue;
    if (std::find(settings.begin(), settings.end(), entry.key()) != settings.end()) continue;
    CAPTURE(entry.key());
    REQUIRE(provenance.contains(entry.key()));
    CHECK((provenance[entry.key()] == "measured" || provenance[entry.key()] == "counted"));
  }
  for (const auto& entry : provenance.items()) CHECK(j.contains(entry.key()));
}

TEST_CASE("an existing run is refused, and a failing one with --overwrite loses nothing") {
  const test::TemporaryFolder folder;
  const std::string a = folder.path("a");
  REQUIRE(run_program(train({"--steps", "2", "--out", a})).status == 0);
  const std::string before = test::read_text(a + "/summary.json");
  check_usage(train({"--steps", "2", "--out", a}), "exists");
  check_usage(train({"--out", a, "--overwrite", "--precision", "bf16", "--acc", "v100"}), "v100");
  // Found by the first forward pass: an operation that a V100 does not have.
  const Result r = run_program(train({"--out", a, "--overwrite", "--precision", "fp16", "--acc",
                                      "v100", "--autocast", "linear=bf16"}));
  CHECK(r.status == cli::kFailed);
  CHECK(test::read_text(a + "/summary.json") == before);
  CHECK(run_program(train({"--steps", "3", "--out", a, "--overwrite"})).status == 0);
  CHECK(lines(a + "/metrics.jsonl") == 3);
}

TEST_CASE("train refuses settings in one line") {
  check_usage(train({"--precision", "fp17"}), "fp17");
  check_usage({"train", "--data", "glyphs", "--model", "resnet"}, "resnet");
  check_usage({"train", "--data", "glyphs", "--graph", "on"}, "cpu has no graphs");
  check_usage({"train", "--data", "glyphs", "--graph", "never"}, "auto, on or off");
  check_usage(train({"--optimizer", "lion"}), "lion");
  check_usage(train({"--schedule", "linear"}), "linear");
  check_usage(train({"--accumulate", "0"}), "accumulate");
  check_usage(train({"--accumulate", "-1"}), "accumulate");
  check_usage(train({"--micro-batch", "0"}), "micro-batch");
  check_usage(train({"--epochs", "0"}), "epochs");
  check_usage(train({"--epochs", "99999999999999999999"}), "not an integer");
  check_usage(train({"--seed", "-1"}), "from 0 to 2^63");
  check_usage(train({"--seed", "010"}), "010");
  check_usage(train({"--steps", "ten"}), "ten");
  check_usage(train({"--lr", ""}), "--lr has no value");
  check_usage(train({"--lr", "nan"}), "lr");
  check_usage(train({"--clip", "-1"}), "max_norm");
  check_usage(train({"--scale", "big"}), "--scale");
  check_usage(train({"--precision", "pure-fp16", "--scale", "dynamic"}), "without loss scaling");
  check_usage(train({"--max-skips", "2"}), "max-skips");
  check_usage(train({"--precision", "fp16", "--autocast", "conv3d=fp32"}), "conv3d");
  check_usage(train({"--precision", "fp16", "--autocast", "linear"}), "operation=dtype");
  check_usage(train({"--amp-check", "maybe"}), "amp-check");
  check_usage(train({"--acc", "fp8"}), "fp8");
  check_usage(train({"--weight-grad", "8bit"}), "weight-grad");
  check_usage(train({"--json", "-", "--csv", "-"}), "both ask for stdout");
  check_usage({"train", "--data", "imagenet"}, "imagenet");
  const Result device = run_program(train({"--device", "cuda"}));
  CHECK(device.status == cli::kAbsent);
  CHECK(contains(device.err, "cuda cannot be used"));
  const Result data = run_program({"train", "--data", "idx:nowhere"});
  CHECK(data.status == cli::kAbsent);
}

TEST_CASE("probe and shadow write what they saw, and leave the run as it is") {
  const test::TemporaryFolder folder;
  const std::string plain = folder.path("plain");
  const std::string probed = folder.path("probed");
  const Strings settings{"--precision", "fp16", "--steps", "5", "--amp-check", "off", "--out"};
  Strings arguments = settings;
  arguments.push_back(plain);
  REQUIRE(run_program(train(arguments)).status == 0);
  arguments.back() = probed;
  for (const char* more : {"--probe", "2", "--shadow"}) arguments.emplace_back(more);
  const Result r = run_program(train(arguments));
  REQUIRE(r.status == 0);
  CHECK(contains(r.out, "bits_lost"));
  CHECK(contains(r.out, "copy"));
  CHECK(contains(r.err, "3 windows probed"));
  CHECK(lines(probed + "/probe.jsonl") == 3);
  CHECK(fs::exists(probed + "/shadow.json"));
  CHECK(test::read_text(plain + "/metrics.jsonl") == test::read_text(probed + "/metrics.jsonl"));
  // Where stdout is for scripts, the table goes to stderr.
  arguments.insert(arguments.end(), {"--overwrite", "--json", "-"});
  const Result json = run_program(train(arguments));
  CHECK(nlohmann::json::parse(json.out, nullptr, false).is_object());
  CHECK(contains(json.err, "bits_lost"));
  check_usage(train({"--probe", "2"}), "--out");
  check_usage(train({"--probe", "-1", "--out", folder.path("c")}), "every -1 windows");
}

TEST_CASE("probe and shadow count windows as the metrics do, and name the pass that overflowed") {
  const test::TemporaryFolder folder;
  const auto records = [&](const std::string& file) {
    std::vector<nlohmann::json> all;
    std::istringstream in(test::read_text(folder.path(file)));
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  };
  const auto run = [&](const char* name, const Strings& more) {
    Strings all{"--steps", "3",     "--amp-check",     "off",     "--probe", "2",
                "--quiet", "--out", folder.path(name), "--shadow"};
    all.insert(all.end(), more.begin(), more.end());
    const Result r = run_program(train(all));
    CAPTURE(r.err);
    REQUIRE(r.status == 0);
  };
  run("a", {"--precision", "fp16", "--scale", "1099511627776"});
  const auto metrics = records("a/metrics.jsonl");
  const auto probe = records("a/probe.jsonl");
  const auto shadow = nlohmann::json::parse(test::read_text(folder.path("a/shadow.json")));
  REQUIRE(metrics.size() == 3);
  REQUIRE(probe.size() == 3);  // the skipped window between two probes has a line, too
  REQUIRE(shadow["windows"].size() == 2);
  CHECK(metrics[0]["step"] == 1);
  CHECK(probe[0]["step"] == 1);
  CHECK(shadow["windows"][0]["step"] == 1);
  CHECK(shadow["windows"][1]["step"] == metrics[2]["step"]);
  CHECK(metrics[0]["did_step"] == false);
  CHECK(probe[0]["first_nonfinite"]["pass"] == "backward");
  // A scale that is named is one that --scale takes.
  for (const char* precision : {"fp32", "bf16"}) {
    run(precision, {"--precision", precision});
    const auto lines = records(std::string(precision) + "/probe.jsonl");
    const auto fits = lines[0]["scale_that_fits"];
    CHECK(fits["largest"] == 0x1p126);
    CHECK(contains(fits["limit"].get<std::string>(), "no loss scale is larger"));
  }
  CHECK(run_program(train({"--steps", "1", "--scale", "85070591730234615865843651857942052864"}))
            .status == 0);
}

TEST_CASE("verbose shows the dtype of every node, weight and gradient") {
  const Result r =
      run_program(train({"--precision", "bf16", "--steps", "1", "--verbose", "--quiet"}));
  CHECK(r.status == 0);
  CHECK(contains(r.err, "linear         bf16   bf16    bf16"));
  CHECK(contains(r.err, "cross_entropy  fp32   fp32    fp32"));
  CHECK(contains(r.err, "fc1.weight"));
}

TEST_CASE("on a terminal of 80 columns the bar shows loss, accuracy, scale and skips") {
  const Result r = run_on_terminal(train({"--precision", "fp16", "--steps", "40"}), 80);
  CHECK(r.status == 0);
  CHECK(contains(r.out, "acc "));
  CHECK(contains(r.out, "scale 65536 skip 0"));
}

TEST_CASE("train --reproducible: another cut of the windows gives the same metrics and weights") {
  const test::TemporaryFolder folder;
  const auto run = [&](const char* name, const char* micro_batch, const char* accumulate,
                       const Strings& more) {
    Strings all{"--micro-batch", micro_batch, "--accumulate", accumulate,        "--steps", "6",
                "--clip",        "1",         "--out",        folder.path(name), "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    const Result r = run_program(train(all));
    CAPTURE(r.err);
    REQUIRE(r.status == 0);
  };
  const auto weights = [&](const char* name) {
    return read_safetensors(folder.path(name) + "/last.safetensors").tensors;
  };
  const auto same = [&](const char* a, const char* b) {
    const auto left = weights(a), right = weights(b);
    CHECK(left.size() == right.size());
    return std::all_of(left.begin(), left.end(), [&](const auto& tensor) {
      return right.at(tensor.first).bytes == tensor.second.bytes;
    });
  };
  for (const char* precision : {"fp32", "fp16"}) {
    CAPTURE(precision);
    const Strings on{"--reproducible", "--precision", precision};
    run("whole", "24", "1", on);
    run("cut", "8", "3", on);
    run("single", "1", "24", on);
    CHECK(same("whole", "cut"));
    CHECK(same("whole", "single"));
    const std::string metrics = test::read_text(folder.path("whole") + "/metrics.jsonl");
    CHECK(metrics == test::read_text(folder.path("cut") + "/metrics.jsonl"));
    CHECK(metrics == test::read_text(folder.path("single") + "/metrics.jsonl"));
    run("plain", "24", "1", {"--precision", precision});
    run("plain-cut", "8", "3", {"--precision", precision});
    CHECK_FALSE(same("plain", "plain-cut"));
    for (const char* name : {"whole", "cut", "single", "plain", "plain-cut"})
      fs::remove_all(folder.path(name));
  }
  const auto refuses = [](const Strings& more, const char* why) {
    Strings all{"train", "--data", "glyphs", "--reproducible"};
    all.insert(all.end(), more.begin(), more.end());
    check_usage(all, why);
  };
  refuses({"--acc", "h100"}, "reproducible does not go with acc h100");
  refuses({"--weight-grad", "16bit"}, "reproducible does not go with weight-grad 16bit");
  refuses({"--model", "convnet", "--batch-norm"}, "reproducible does not go with BatchNorm");
}

TEST_CASE("a reproducible run goes on in another cut, bit for bit; any other run does not") {
  const test::TemporaryFolder folder;
  const auto run = [&](const char* name, const Strings& more) {
    Strings all{"--micro-batch", "24", "--clip", "1", "--out", folder.path(name), "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    const Result r = run_program(train(all));
    CAPTURE(r.err);
    REQUIRE(r.status == 0);
  };
  run("whole", {"--reproducible", "--steps", "8"});
  run("resumed", {"--reproducible", "--steps", "3"});
  const std::string resumed = folder.path("resumed");
  const Result r = run_program(
      {"train", "--resume", resumed, "--micro-batch", "8", "--accumulate", "3", "--steps", "8"});
  CAPTURE(r.err);
  REQUIRE(r.status == 0);
  CHECK(test::read_text(folder.path("whole") + "/metrics.jsonl") ==
        test::read_text(resumed + "/metrics.jsonl"));
  for (const char* file : {"/last.safetensors", "/best.safetensors"}) {
    const auto left = read_safetensors(folder.path("whole") + file).tensors;
    const auto right = read_safetensors(resumed + file).tensors;
    REQUIRE(left.size() == right.size());
    for (const auto& tensor : left)
      CHECK(bool(right.at(tensor.first).bytes == tensor.second.bytes));
  }
  const std::string config = test::read_text(resumed + "/config.toml");
  CHECK(contains(config, "micro-batch = 8\n"));
  CHECK(contains(config, "accumulate = 3\n"));
  CHECK(contains(config, "reproducible = true\n"));

  const auto refused = [&](const std::string& name, const char* micro, const char* accumulate,
                           const char* why) {
    const std::string before = test::read_text(folder.path(name) + "/config.toml");
    const Result other = run_program({"train", "--resume", folder.path(name), "--micro-batch",
                                      micro, "--accumulate", accumulate, "--steps", "12"});
    CAPTURE(other.err);
    CHECK(other.status == cli::kFailed);
    CHECK(is_one_line_error(other.err, "resume"));
    CHECK(contains(other.err, why));
    CHECK(test::read_text(folder.path(name) + "/config.toml") == before);
  };
  refused("resumed", "8", "2", "was trained with window = 24, this run has 16");
  run("plain", {"--steps", "3"});
  refused("plain", "8", "3", "was trained with micro_batch = 24, this run has 8");
}

TEST_CASE("train --stochastic-rounding: other weights, the same ones again, and in a resumed run") {
  const test::TemporaryFolder folder;
  const auto run = [&](const char* name, const Strings& more) {
    Strings all{"--precision", "pure-bf16", "--lr", "1e-4", "--out", folder.path(name), "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    const Result r = run_program(train(all));
    CAPTURE(r.err);
    REQUIRE(r.status == 0);
  };
  const auto weights = [&](const char* name) {
    const auto file =
        read_safetensors(std::filesystem::path(folder.path(name)) / "last.safetensors");
    std::vector<std::byte> bytes;
    for (const auto& [key, tensor] : file.tensors)
      bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    return bytes;
  };
  run("nearest", {"--steps", "6"});
  run("a", {"--steps", "6", "--stochastic-rounding"});
  run("b", {"--steps", "6", "--stochastic-rounding"});
  run("c", {"--steps", "3", "--stochastic-rounding"});
  REQUIRE(run_program({"train", "--resume", folder.path("c"), "--steps", "6"}).status == 0);
  const auto a = weights("a");
  CHECK(bool(a != weights("nearest")));
  CHECK(bool(a == weights("b")));
  CHECK(bool(a == weights("c")));
  check_usage({"train", "--data", "glyphs", "--precision", "bf16", "--stochastic-rounding"},
              "--stochastic-rounding is for weights in 16 bit");
}

TEST_CASE("demo compares three precisions in one table, with what it does not show") {
  const test::TemporaryFolder folder;
  const std::string out = folder.path("demo");
  const Strings demo{"demo", "--model",  "mlp", "--data", "glyphs", "--steps",
                     "5",    "--warmup", "2",   "--out",  out};
  const Result r = run_program(demo);
  REQUIRE(r.status == 0);
  for (const char* part : {"fp32 ", "bf16 mixed", "fp16 mixed", "ranks nothing", "growth interval",
                           "GPU", "the runs lie in"})
    CHECK_MESSAGE(contains(r.out, part), part);
  for (const char* run : {"/fp32", "/bf16", "/fp16"})
    CHECK(fs::exists(out + run + "/summary.json"));
  // The report of the three runs, whose path the table's last line names.
  CHECK(contains(r.out, "the report: " + out + "/report/index.html"));
  const std::string page = test::read_text(out + "/report/index.html");
  CHECK(contains(page, "Paired differences from fp32"));
  CHECK_FALSE(contains(page, "WARNING"));
  // Its own folder it writes again where it is told to; another's it does not.
  check_usage(demo, "--overwrite replaces the demonstration in it");
  CHECK(test::read_text(out + "/report/index.html") == page);
  Strings json = demo;
  json.insert(json.end(), {"--overwrite", "--json", "-"});
  const Result again = run_program(json);
  REQUIRE(again.status == 0);
  const auto rows = nlohmann::json::parse(again.out)["rows"];
  CHECK(rows.size() == 3);
  CHECK(rows[1]["gradient cosine"].get<double>() > 0.99);
  const std::string other = folder.path("other");
  fs::create_directories(other + "/mine");
  check_usage({"demo", "--data", "glyphs", "--overwrite", "--out", other},
              "not an earlier demonstration");
  // What is refused leaves nothing behind, and loses nothing.
  const std::string fresh = folder.path("fresh");
  const Strings bad{"demo",    "--data",         "glyphs",       "--model",
                    "convnet", "--reproducible", "--batch-norm", "--out"};
  Strings refused = bad;
  refused.push_back(fresh);
  check_usage(refused, "reproducible does not go with BatchNorm");
  CHECK_FALSE(fs::exists(fresh));
  const std::string before = test::read_text(out + "/fp32/summary.json");
  refused = bad;
  refused.insert(refused.end(), {out, "--overwrite"});
  check_usage(refused, "reproducible does not go with BatchNorm");
  CHECK(test::read_text(out + "/fp32/summary.json") == before);
}
