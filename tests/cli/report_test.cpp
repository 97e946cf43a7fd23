// roundoff study, eval and compare from outside.
#include <doctest/doctest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/compare_runs.h"
#include "engine/io/npy.h"
#include "tests/cli/run_program.h"

using namespace roundoff;
using test::contains;
using test::is_one_line_error;
using test::read_text;
using test::Result;
using test::run_program;
using Json = nlohmann::json;
namespace fs = std::filesystem;

namespace {

using Strings = std::vector<std::string>;

Json read_json(const std::string& path) { return Json::parse(read_text(path)); }

// A run of a few windows on generated data.
void train(const std::string& out, const Strings& more) {
  Strings all{"train", "--model", "mlp", "--hidden", "8", "--steps", "6", "--quiet", "--out", out};
  if (std::find(more.begin(), more.end(), "--data") == more.end())
    all.insert(all.end(), {"--data", "glyphs"});
  all.insert(all.end(), more.begin(), more.end());
  const Result r = run_program(all);
  CAPTURE(r.err);
  REQUIRE(r.status == cli::kDone);
}

const Json& row_of(const Json& table, const char* key, const std::string& value) {
  for (const Json& row : table["rows"])
    if (row[key] == value) return row;
  FAIL("no row with " << key << " = " << value);
  return table;
}

}  // namespace

TEST_CASE("study writes a report, refuses to lose it, and lists what lies there") {
  const test::TemporaryFolder folder;
  const std::string out = folder.path("r");
  const Strings call{"study", "sanity", "--quick", "--seeds", "2", "--out", out, "--json", "-"};
  const Result r = run_program(call);
  CAPTURE(r.err);
  REQUIRE(r.status == cli::kDone);
  const auto table = Json::parse(r.out);
  CHECK(table["rows"][0]["study"] == "sanity");
  CHECK(table["rows"][0]["held"] == table["rows"][0]["claims"]);
  const auto result = read_json(out + "/sanity/result.json");
  CHECK(result["seeds"] == Json::array({2}));
  CHECK(contains(result["command"].get<std::string>(), "roundoff study sanity --quick --seeds 2"));
  CHECK(result["environment"].contains("cpu"));
  const std::string index = read_text(out + "/index.html");
  CHECK(contains(index, "sanity/index.html"));
  CHECK(contains(index, "all hold"));
  CHECK(read_json(out + "/studies.json")["studies"].size() == 1);
  for (const char* file : {"/config.toml", "/environment.json", "/sanity/config.toml"})
    CHECK(fs::exists(out + file));

  const Result again = run_program(call);
  CHECK(again.status == cli::kUsage);
  CHECK(contains(again.err, "--overwrite"));
  const std::string before = read_text(out + "/sanity/result.json");
  Strings overwriting = call;
  overwriting.emplace_back("--overwrite");
  CHECK(run_program(overwriting).status == cli::kDone);
  // But for the time that it took and what it was called with, the same.
  auto second = read_json(out + "/sanity/result.json");
  auto first = Json::parse(before);
  for (auto* json : {&first, &second}) {
    json->erase("seconds");
    json->erase("environment");
  }
  CHECK(first == second);
}

TEST_CASE("study: the settings that a report holds make it again") {
  const test::TemporaryFolder folder;
  const std::string out = folder.path("r");
  REQUIRE(run_program({"study", "sanity", "memory", "--quick", "--out", out, "--quiet"}).status ==
          cli::kDone);
  for (const char* name : {"sanity", "memory"}) {
    CAPTURE(name);
    const std::string again = folder.path(name);
    const Result r = run_program(
        {"study", "--config", out + "/" + name + "/config.toml", "--out", again, "--quiet"});
    CAPTURE(r.err);
    CHECK(r.status == cli::kDone);
    CHECK(read_json(again + "/studies.json")["studies"].size() == 1);
    const auto first = read_json(out + "/" + name + "/result.json");
    const auto second = read_json(again + "/" + name + "/result.json");
    CHECK(first["seeds"] == second["seeds"]);
    CHECK(first["claims"].size() == second["claims"].size());
  }
  // The study's own seeds, which nobody typed.
  const auto seeds = read_json(out + "/sanity/result.json")["seeds"];
  REQUIRE_FALSE(seeds.empty());
  CHECK(contains(read_text(out + "/sanity/config.toml"),
                 "seeds = [" + std::to_string(seeds[0].get<int>())));
  CHECK(contains(read_text(out + "/config.toml"), "names = [\"sanity\", \"memory\"]\n"));
  CHECK_FALSE(contains(read_text(out + "/config.toml"), "seeds"));
  // Names that are typed win over the file's.
  const std::string other = folder.path("other");
  REQUIRE(
      run_program({"study", "sanity", "--config", out + "/config.toml", "--out", other, "--quiet"})
          .status == cli::kDone);
  CHECK(read_json(other + "/studies.json")["studies"].size() == 1);
}

TEST_CASE("study --seeds: an empty list and a repeated seed are refused by their name") {
  const test::TemporaryFolder folder;
  const auto refused = [&](const Strings& seeds, const std::string& part) {
    Strings all{"study", "sanity", "--quick"};
    all.insert(all.end(), seeds.begin(), seeds.end());
    all.insert(all.end(), {"--out", folder.path("r")});
    const Result r = run_program(all);
    CAPTURE(r.err);
    CHECK(r.status == cli::kUsage);
    CHECK(is_one_line_error(r.err, "study"));
    CHECK(contains(r.err, part));
    CHECK_FALSE(fs::exists(folder.path("r")));
  };
  for (const char* list : {",", "1,", ",1", "1,,2"}) {
    refused({"--seeds", list}, std::string("--seeds is '") + list + "'");
    refused({std::string("--seeds=") + list}, std::string("--seeds is '") + list + "'");
  }
  refused({"--seeds", "1,1"}, "--seeds has 1 twice");
  refused({"--seeds", "3,2,4,2"}, "--seeds has 2 twice");
  refused({"--seeds", "3", "--seeds", "3"}, "--seeds has 3 twice");
  // What follows a list is not part of it.
  CHECK(run_program(
            {"study", "--quick", "--seeds", "2,3", "sanity", "--out", folder.path("r"), "--quiet"})
            .status == cli::kDone);
}

TEST_CASE("study: an interrupt loses nothing of what is finished, and says what did not run") {
  const test::TemporaryFolder folder;
  const std::string out = folder.path("r");
  const std::string csv = folder.path("t.csv");
  const Result r = test::interrupt_program(
      {"study", "sanity", "memory", "--quick", "--out", out, "--json", "-", "--csv", csv},
      "memory (2 of 2): begins");
  CAPTURE(r.err);
  REQUIRE(r.status == cli::kInterrupted);
  CHECK(contains(r.err, "interrupted in memory; 1 of 2 studies are finished"));
  const auto rows = Json::parse(r.out)["rows"];
  REQUIRE(rows.size() == 2);
  CHECK(rows[0]["state"] == "done");
  CHECK(rows[1]["study"] == "memory");
  CHECK(rows[1]["state"] == "not run: interrupted");
  CHECK(contains(read_text(csv), "memory,not run: interrupted"));
  CHECK(contains(read_text(out + "/index.html"), "not run: interrupted"));
  const auto studies = read_json(out + "/studies.json")["studies"];
  REQUIRE(studies.size() == 2);
  CHECK(studies[1]["reason"] == "not run: interrupted");
}

TEST_CASE("study says what is wrong with what was asked") {
  const test::TemporaryFolder folder;
  const Result unknown = run_program({"study", "nonsense", "--out", folder.path("r")});
  CHECK(unknown.status == cli::kUsage);
  CHECK(is_one_line_error(unknown.err, "study"));
  CHECK(contains(unknown.err, "unknown study 'nonsense'; "));
  CHECK(contains(unknown.err, "sanity"));
  CHECK_FALSE(fs::exists(folder.path("r")));
  CHECK(run_program({"study", "--out", folder.path("r")}).status == cli::kUsage);

  const Result list = run_program({"study", "--list", "--json", "-"});
  CHECK(list.status == cli::kDone);
  row_of(Json::parse(list.out), "study", "sanity");

  // A folder of something else is left alone, --overwrite or not.
  fs::create_directories(folder.path("mine"));
  std::ofstream(folder.path("mine") + "/index.html") << "mine";
  const Result refused =
      run_program({"study", "sanity", "--quick", "--overwrite", "--out", folder.path("mine")});
  CHECK(refused.status == cli::kUsage);
  CHECK(read_text(folder.path("mine") + "/index.html") == "mine");

  const Result absent = run_program({"study", "sanity", "--quick", "--data",
                                     "npy:" + folder.path("none"), "--out", folder.path("r")});
  CHECK(absent.status == cli::kAbsent);
}

TEST_CASE("eval finds what the run's summary says, and takes a folder or a file") {
  const test::TemporaryFolder folder;
  const std::string a = folder.path("a");
  train(a, {"--precision", "bf16", "--seed", "3"});
  const auto summary = read_json(a + "/summary.json");
  for (const std::string& checkpoint : {a, a + "/best.safetensors"}) {
    const Result r = run_program({"eval", "--checkpoint", checkpoint, "--json", "-"});
    CAPTURE(r.err);
    REQUIRE(r.status == cli::kDone);
    const auto row = Json::parse(r.out)["rows"][0];
    CHECK(row["accuracy"] == summary["test_accuracy"]);
    CHECK(row["loss"] == summary["test_loss"]);
    CHECK(row["low"] == summary["test_interval"][0]);
    CHECK(row["n"] == summary["test_samples"]);
    CHECK(row["precision"] == "bf16");
  }
  const Result val = run_program({"eval", "--checkpoint", a, "--split", "val", "--json", "-"});
  CHECK(Json::parse(val.out)["rows"][0]["accuracy"] == summary["val_accuracy"]);
  // glyphs have a corrupted set of their own.
  const Result own = run_program({"eval", "--checkpoint", a, "--split", "corrupt", "--json", "-"});
  CHECK(Json::parse(own.out)["rows"][0]["corruption"] == "the data's own");
  // What would change nothing is refused.
  for (const char* flag : {"--severity", "--seed"}) {
    CAPTURE(flag);
    for (const char* split : {"corrupt", "val"}) {
      const Result r = run_program({"eval", "--checkpoint", a, "--split", split, flag, "3"});
      CHECK(r.status == cli::kUsage);
      CHECK(is_one_line_error(r.err, "eval"));
      CHECK(contains(r.err, flag));
      CHECK(contains(r.err, std::string(split) == "corrupt" ? "a corrupted set of its own"
                                                            : "goes with --split corrupt"));
    }
  }
}

TEST_CASE("eval --split corrupt spoils the test images of data without a corrupted set") {
  const test::TemporaryFolder folder;
  // Two classes: the left half is bright, or the right one.
  const auto write = [&](const std::string& role, std::int64_t n) {
    HostArray x(ElementType::u8, {n, 8, 8});
    HostArray y(ElementType::i64, {n});
    for (std::int64_t i = 0; i < n; ++i) {
      y.as<std::int64_t>()[static_cast<std::size_t>(i)] = i % 2;
      for (std::int64_t p = 0; p < 64; ++p)
        x.as<std::uint8_t>()[static_cast<std::size_t>(64 * i + p)] =
            static_cast<std::uint8_t>(((p % 8 < 4) == (i % 2 == 0) ? 180 : 60) + (7 * i + p) % 40);
    }
    write_npy(folder.path("x_" + role + ".npy"), x);
    write_npy(folder.path("y_" + role + ".npy"), y);
  };
  write("train", 200);
  write("test", 52);
  const std::string a = folder.path("a");
  train(a, {"--data", "npy:" + folder.path("")});
  const auto eval = [&](const Strings& more) {
    Strings all{"eval", "--checkpoint", a, "--split", "corrupt", "--json", "-"};
    all.insert(all.end(), more.begin(), more.end());
    const Result r = run_program(all);
    CAPTURE(r.err);
    REQUIRE(r.status == cli::kDone);
    return Json::parse(r.out);
  };
  const Json table = eval({});
  REQUIRE(table["rows"].size() == 6);
  CHECK(table["rows"][0]["corruption"] == "all in turn");
  CHECK(table["rows"][0]["n"] == 52);
  std::int64_t n = 0;
  std::int64_t correct = 0;
  for (std::size_t kind = 1; kind < 6; ++kind) {
    n += table["rows"][kind]["n"].get<std::int64_t>();
    correct += table["rows"][kind]["correct"].get<std::int64_t>();
  }
  CHECK(n == 52);
  CHECK(table["rows"][0]["correct"] == correct);
  CHECK(contains(table["notes"][0].get<std::string>(), "severity 3 of 5, seed 1"));
  CHECK(contains(table["notes"][0].get<std::string>(), "docs/studies.md"));
  // The defaults, and other numbers: other images, and the same ones again.
  CHECK(eval({"--severity", "3", "--seed", "1"}) == table);
  const Json severe = eval({"--severity", "5"});
  CHECK(severe["rows"][0]["loss"] != table["rows"][0]["loss"]);
  CHECK(eval({"--severity", "5"}) == severe);
  CHECK(eval({"--seed", "2"})["rows"][0]["loss"] != table["rows"][0]["loss"]);
}

TEST_CASE("eval refuses what is damaged, absent or prepared otherwise, in one line") {
  const test::TemporaryFolder folder;
  const std::string a = folder.path("a");
  train(a, {});
  const auto fails = [&](const Strings& more, int status, const std::string& part) {
    Strings all{"eval"};
    all.insert(all.end(), more.begin(), more.end());
    const Result r = run_program(all);
    CAPTURE(r.err);
    CHECK(r.status == status);
    CHECK(r.out.empty());
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
    CHECK(contains(r.err, part));
  };
  fails({"--checkpoint", folder.path("none")}, cli::kFailed, "none");
  std::string bytes = read_text(a + "/best.safetensors");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  folder.file("damaged.safetensors", bytes);
  fails({"--checkpoint", folder.path("damaged.safetensors")}, cli::kFailed, "damaged.safetensors");
  folder.file("short.safetensors", bytes.substr(0, 100));
  fails({"--checkpoint", folder.path("short.safetensors")}, cli::kFailed, "short.safetensors");
  fails({"--checkpoint", a, "--split", "train"}, cli::kUsage, "val, test or corrupt");
  fails({"--checkpoint", a, "--severity", "6", "--split", "corrupt"}, cli::kUsage, "1 to 5");
}

TEST_CASE("compare pairs runs by seed, gives intervals, and says what differs") {
  const test::TemporaryFolder folder;
  Strings runs;
  for (const char* precision : {"fp32", "fp16"})
    for (const char* seed : {"1", "2", "3"}) {
      runs.push_back(folder.path(std::string(precision) + seed));
      train(runs.back(), {"--precision", precision, "--seed", seed, "--amp-check", "off"});
    }
  Strings call{"compare"};
  call.insert(call.end(), runs.begin(), runs.end());
  const std::string out = folder.path("c");
  call.insert(call.end(), {"--out", out, "--json", "-"});
  const Result r = run_program(call);
  CAPTURE(r.err);
  REQUIRE(r.status == cli::kDone);
  CHECK(Json::parse(r.out)["rows"].size() == 6);
  const auto result = read_json(out + "/result.json");
  const Json* differences = nullptr;
  for (const Json& table : result["tables"])
    if (table["table"] == "Paired differences from fp32") differences = &table;
  REQUIRE(differences != nullptr);
  const Json& row = row_of(*differences, "measure", "test loss");
  CHECK(row["group"] == "fp16");
  CHECK(row["n"] == 3);
  // The mean of the pairs' differences.
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    const auto loss = [&](int at) {
      return read_json(runs[static_cast<std::size_t>(at)] + "/summary.json")["test_loss"]
          .get<double>();
    };
    sum += loss(3 + i) - loss(i);
  }
  CHECK(std::abs(row["difference"].get<double>() - sum / 3) <= 8 * 0x1p-53);
  CHECK(row["low"].get<double>() <= row["difference"].get<double>());
  CHECK(row["high"].get<double>() >= row["difference"].get<double>());
  const std::string page = read_text(out + "/index.html");
  CHECK(contains(page, "n = 3 seeds (1, 2, 3)"));
  CHECK(contains(page, "loss scale"));
  CHECK_FALSE(contains(page, "WARNING"));

  CHECK(run_program(call).status == cli::kUsage);  // the report exists

  // One seed, and another model: said, not hidden.
  const std::string other = folder.path("other");
  train(other, {"--hidden", "4"});
  const Result loud = run_program({"compare", runs[0], other, "--out", folder.path("d"), "--tex"});
  CHECK(loud.status == cli::kDone);
  CHECK(contains(loud.err, "warning: [compare] the runs differ in their data or model (hidden)"));
  CHECK(contains(loud.out, "\\begin{tabular}"));
  CHECK(contains(loud.out, "one seed: no interval"));
  CHECK(contains(read_text(folder.path("d") + "/index.html"), "WARNING"));
}

TEST_CASE("compare counts a run once, however often and however its folder is named") {
  const test::TemporaryFolder folder;
  const std::string a = folder.path("a");
  train(a, {});
  fs::create_directory_symlink(a, folder.path("link"));
  fs::copy(a, folder.path("copy"));
  int at = 0;
  for (const std::string& again : {a, a + "/", folder.path("link"), folder.path("copy")}) {
    CAPTURE(again);
    const std::string out = folder.path("c" + std::to_string(at++));
    const Result r = run_program({"compare", a, again, "--out", out});
    CAPTURE(r.err);
    REQUIRE(r.status == cli::kDone);
    CHECK(contains(r.err, "more than once"));
    CHECK(contains(r.err, "once\n"));
    const auto result = read_json(out + "/result.json");
    for (const Json& table : result["tables"])
      if (table["table"] == "Over seeds")
        for (const Json& row : table["rows"]) {
          CHECK(row["n"] == 1);
          CHECK(row["low"].is_null());
          CHECK(row["deviation"].is_null());
        }
  }
}

TEST_CASE("compare names the folder and the file that are wrong") {
  const test::TemporaryFolder folder;
  const std::string a = folder.path("a");
  train(a, {});
  const auto fails = [&](const std::string& run, const std::string& part) {
    const Result r = run_program({"compare", a, run, "--out", folder.path("c")});
    CAPTURE(r.err);
    CHECK(r.status == cli::kFailed);
    CHECK(is_one_line_error(r.err, "compare"));
    CHECK(contains(r.err, part));
    CHECK_FALSE(fs::exists(folder.path("c")));
  };
  fails(folder.path("none"), "none: is not a folder of a run");
  const std::string b = folder.path("b");
  fs::copy(a, b);
  std::ofstream(b + "/metrics.jsonl", std::ios::app) << "{\"step\": 7, \"loss\"\n";
  fails(b, "b/metrics.jsonl line 7");
  fs::copy(a + "/metrics.jsonl", b + "/metrics.jsonl", fs::copy_options::overwrite_existing);
  std::ofstream(b + "/summary.json") << "{}";
  fails(b, "b/summary.json");
  fs::remove(b + "/summary.json");
  fails(b, "has no summary.json");
}

TEST_CASE("runs are grouped by everything but the seed") {
  std::vector<cli::RunFiles> runs(4);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].folder = "r" + std::to_string(i);
    runs[i].precision = i < 2 ? "fp32" : "bf16";
    runs[i].seed = i % 2;
    runs[i].settings = {{"precision", runs[i].precision}, {"seed", std::to_string(i % 2)}};
    runs[i].test_samples = 100;
    runs[i].test_accuracy = 0.5 + 0.1 * static_cast<double>(i);
    runs[i].windows = {{1, 0, 2.0, 0.1, 1, 1, false, true},
                       {2, 0, std::nan(""), 0.1, HUGE_VAL, 1, true, false}};
  }
  const cli::Comparison c = cli::compare_runs(runs);
  CHECK(c.warnings.empty());
  REQUIRE(c.result.tables.size() == 4);
  const Table& differences = c.result.tables.back();
  REQUIRE(differences.rows().size() == 4);
  CHECK(std::get<std::string>(differences.rows()[0][0]) == "bf16");
  CHECK(std::get<double>(differences.rows()[0][4]) == doctest::Approx(20.0));

  runs[3].data_sums = "other";
  runs[3].settings["lr"] = "1";
  const cli::Comparison loud = cli::compare_runs(runs);
  CHECK(loud.warnings.size() == 2);
  // No common seed is said, and is no number.
  runs.resize(3);
  runs[2].seed = 9;
  const Table unpaired = cli::compare_runs(runs).result.tables.back();
  CHECK(std::holds_alternative<std::monostate>(unpaired.rows()[0][4]));
  CHECK(std::get<std::string>(unpaired.rows()[0][7]) == "no seed in common");
}

TEST_CASE("how a reproducible run cuts its windows is no difference between runs") {
  const auto run = [](const char* micro, const char* accumulate, bool reproducible,
                      std::uint64_t seed) {
    cli::RunFiles files;
    files.folder = "r";
    files.precision = "fp32";
    files.seed = seed;
    files.settings = {{"micro-batch", micro},
                      {"accumulate", accumulate},
                      {"reproducible", reproducible ? "true" : "false"}};
    files.test_samples = 100;
    files.windows = {{1, 0, 2.0, 0.1, 1, 1, false, true}};
    return files;
  };
  // Tables: the runs, over seeds; and where there are groups, what differs and the differences.
  const auto count = [](std::vector<cli::RunFiles> runs) {
    return cli::compare_runs(runs).result.tables.size();
  };
  const auto warnings = [](std::vector<cli::RunFiles> runs) {
    return cli::compare_runs(runs).warnings;
  };
  CHECK(count({run("8", "8", true, 1), run("64", "1", true, 2), run("16", "4", true, 3)}) == 2);
  CHECK(count({run("8", "8", true, 1), run("8", "4", true, 1)}) == 4);
  CHECK(count({run("8", "8", false, 1), run("64", "1", false, 1)}) == 4);
  // A reproducible run has the bits of the other's cut, so that being reproducible is all.
  CHECK(warnings({run("8", "8", true, 1), run("64", "1", false, 1)}).empty());
  CHECK(warnings({run("8", "8", true, 1), run("8", "8", false, 1)}).empty());
  CHECK(warnings({run("8", "8", false, 1), run("64", "1", false, 1)}).size() == 1);
  // The same bits twice: once.
  CHECK(warnings({run("8", "8", true, 1), run("64", "1", true, 1)}).size() == 1);
}
