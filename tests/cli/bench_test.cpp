// roundoff bench from outside: counted figures against hand calculations, samples, the forms of its
// tables, wrong usage. Nothing here depends on how long anything takes.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/result.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "tests/cli/run_program.h"

using namespace roundoff;
using namespace roundoff::test;
using Json = nlohmann::json;

namespace {

Result bench_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"bench"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  all.emplace_back("--quiet");
  return run_program(all);
}

Json table_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--json", "-"});
  const Result r = bench_of(arguments);
  CAPTURE(r.err);
  REQUIRE(r.status == cli::kDone);
  return Json::parse(r.out);
}

// The provenance of each column that has one.
std::map<std::string, std::string> provenance_of(const Json& table) {
  std::map<std::string, std::string> all;
  for (const Json& column : table["columns"])
    if (column.contains("provenance")) all[column["name"]] = column["provenance"];
  return all;
}

}  // namespace

#if ROUNDOFF_HAS_CHECKED
TEST_CASE("bench: rows are read and written once, sector by sector") {
  const Json table = table_of({"softmax", "add", "--size", "8x1024", "--device", "sim"});
  REQUIRE(table["rows"].size() == 2);
  const Json& softmax = table["rows"][0];
  CHECK(softmax["operation"] == "softmax");
  CHECK(softmax["verdict"] == "verified");
  CHECK(softmax["verified"] == "8192 of 8192 elements within bounds");
  CHECK(softmax["sample"].is_null());
  CHECK(softmax["launches"] == 1);
  // 8 x 1024 values of 2 bytes in sectors of 32.
  CHECK(softmax["load_sectors"] == 512);
  CHECK(softmax["store_sectors"] == 512);
  CHECK(softmax["min_bytes"] == 2 * 8 * 1024 * 2);
  CHECK(softmax["bytes/minimum"] == 1.0);
  CHECK(softmax["excess_wavefronts"] == 0);
  CHECK(softmax["syncs"] == 0);
  CHECK(softmax["flops"] == 5 * 8 * 1024);
  const Json& add = table["rows"][1];
  CHECK(add["load_sectors"] == 2 * 512);
  CHECK(add["store_sectors"] == 512);
  CHECK(add["bytes/minimum"] == 1.0);
  CHECK(add["shared_wavefronts"] == 0);
}

TEST_CASE("bench: a sample of the blocks, scaled, says what all of them would") {
  // 1024 rows of 4 KB: more than runs in full, and by hand 128 sectors a row, each way.
  const Json sampled = table_of({"softmax", "--size", "1024x2048", "--device", "sim"})["rows"][0];
  CHECK(contains(sampled["sample"], "counters scaled"));
  CHECK(sampled["clusters_run"] < sampled["clusters"]);
  CHECK(sampled["load_sectors"] == 1024 * 128);
  CHECK(sampled["store_sectors"] == 1024 * 128);
  CHECK(sampled["bytes/minimum"] == 1.0);
  CHECK(contains(sampled["verified"], "within bounds"));

  const auto product = [](const char* sample) {
    return table_of({"matmul", "--size", "512x512x256", "--dtype", "fp16", "--device", "sim",
                     "--sample", sample})["rows"][0];
  };
  const Json some = product("2"), all = product("100000");
  CHECK(all["sample"].is_null());
  CHECK(contains(some["sample"], "2 of "));
  CHECK(some["clusters_run"] == 2);
  CHECK(all["clusters_run"] == all["clusters"]);
  for (const char* name : {"blocks", "load_sectors", "store_sectors", "shared_wavefronts",
                           "excess_wavefronts", "barriers", "clusters", "threads"})
    CHECK_MESSAGE(some[name] == all[name], name);
  CHECK(contains(some["verified"], "of the elements written within bounds"));
}
#endif

#if ROUNDOFF_HAS_CHECKED
TEST_CASE("bench: `automatic` does what the kernel does that it is said to be") {
  struct Asked {
    std::vector<std::string> arguments;
    std::string kernel;
  };
  const std::vector<Asked> all{
      {{"matmul", "--size", "136x264x128"}, "ping_pong"},
      {{"matmul", "--size", "136x264x1088", "--layout", "tn"}, "sm90"},
      {{"matmul", "--size", "136x264x128", "--arch", "sm_80"}, "sm80"},
      {{"matmul", "--size", "132x264x132", "--layout", "tt", "--pass", "wgrad"}, "sm80"},
      {{"matmul", "--size", "136x264x128", "--dtype", "fp32"}, "tiles"},
      {{"linear", "--size", "136x264x128", "--pass", "wgrad"}, "ping_pong"},
      {{"conv2d", "--conv", "2,9,9,16,80,3,3,1,1"}, "sm90"},
      {{"conv2d", "--conv", "2,9,9,72,80,3,3,1,1", "--pass", "dgrad"}, "sm90"},
      {{"conv2d", "--conv", "2,9,9,64,80,3,3,1,1", "--pass", "wgrad"}, "sm90"},
      {{"conv2d", "--conv", "2,9,9,24,80,3,3,1,1"}, "sm80"}};
  for (const Asked& a : all) {
    std::vector<std::string> arguments = a.arguments;
    arguments.insert(arguments.end(), {"--device", "sim"});
    const Json chosen = table_of(arguments)["rows"][0];
    CAPTURE(chosen["problem"].dump());
    CHECK(chosen["kernel"] == "automatic (" + a.kernel + ")");
    arguments.insert(arguments.end(), {"--kernel", a.kernel});
    const Json table = table_of(arguments);
    const Json& named = table["rows"][0];
    CHECK(named["kernel"] == a.kernel);
    for (const auto& kinds : provenance_of(table)) {
      const std::string& column = kinds.first;
      CAPTURE(column);
      CHECK(chosen[column] == named[column]);
    }
  }
}

TEST_CASE("bench: a long sum is counted at two depths, and extrapolated exactly") {
  const auto product = [](const char* size) {
    return table_of({"matmul", "--size", size, "--dtype", "fp32", "--device", "sim"})["rows"][0];
  };
  const Json two = product("128x128x4096"), three = product("128x128x6144"),
             six = product("128x128x12288");
  CHECK(contains(six["sample"], "extrapolated from sums of 2048 and 4096 products"));
  CHECK_FALSE(contains(three["sample"], "extrapolated"));
  CHECK(six["launches"] == 1);
  for (const char* name : {"load_sectors", "store_sectors", "shared_wavefronts", "barriers"}) {
    CAPTURE(name);
    const std::int64_t a = two[name], b = three[name];
    CHECK(six[name] == b + 3 * (b - a));
  }
}
#endif

TEST_CASE("bench: every figure has one provenance, and none on sim is measured") {
  const Json sim = table_of({"matmul", "softmax", "--size", "32x32x32", "--size", "4x64", "--dtype",
                             "bf16,fp32", "--device", "sim"});
  CHECK(sim["table"] == "bench on sim, sm_90a");
  CHECK(sim["rows"].size() == 4);
  std::set<std::string> kinds;
  const auto columns = provenance_of(sim);
  for (const auto& [name, kind] : columns) kinds.insert(kind);
  CHECK(kinds == std::set<std::string>{"counted", "modelled", "predicted"});
  CHECK(columns.at("launches") == "counted");
  CHECK(columns.at("flops") == "modelled");
  CHECK(columns.at("H200_floor_us") == "predicted");
  // A number without provenance is none of ours.
  for (const Json& row : sim["rows"])
    for (const auto& item : row.items()) {
      const std::string key = item.key();
      CAPTURE(key);
      CHECK((!item.value().is_number() || columns.count(key) == 1));
    }

  const Json cpu = table_of({"softmax", "--size", "4x64", "--device", "cpu"});
  const auto on_cpu = provenance_of(cpu);
  CHECK(on_cpu.at("us") == "measured");
  CHECK(on_cpu.count("launches") == 0);
  CHECK(on_cpu.count("H100_floor_us") == 0);
  CHECK(cpu["rows"][0]["us"] > 0);
  CHECK(cpu["rows"][0]["us_low"] <= cpu["rows"][0]["us"]);
}

TEST_CASE("bench: one name with two provenances is refused") {
  bench::Report report;
  report.rows.resize(2);
  report.rows[0].add("us", Provenance::measured, 1.0);
  report.rows[1].add("us", Provenance::measured, 2.0);
  CHECK_NOTHROW(cli::bench_table("t", report));
  report.rows[1].metrics[0].provenance = Provenance::predicted;
  CHECK_THROWS_AS(cli::bench_table("t", report), Error);
  CHECK_NOTHROW(cli::bench_text("t", report));  // a table each
}

TEST_CASE("bench: the floor is operations over the rate or bytes over the bandwidth") {
  const Json row = table_of({"matmul", "--size", "64x64x64", "--device", "sim"})["rows"][0];
  CHECK(row["flops"] == 2 * 64 * 64 * 64);
  CHECK(row["min_bytes"] == 3 * 64 * 64 * 2);
  // 24 KB at 4.8 TB/s take longer than 0.5 MFLOP at a petaflop.
  CHECK(row["H200_floor_us"].get<double>() == doctest::Approx(24576 / 4.8e12 * 1e6));
  CHECK(row["A100_floor_us"].get<double>() == doctest::Approx(24576 / 2.039e12 * 1e6));
}

TEST_CASE("bench: text, CSV and files") {
  const Result text = bench_of({"softmax", "--size", "4x64", "--device", "sim"});
  CHECK(text.status == cli::kDone);
  for (const char* part :
       {"softmax, forward", "numbers: counted", "numbers: predicted",
        "verified: 256 of 256 elements within bounds", "no figure here is a time on a GPU"})
    CHECK_MESSAGE(contains(text.out, part), part);
  CHECK_FALSE(contains(text.out, "measured"));

  const Result csv = bench_of({"softmax", "--size", "4x64", "--device", "sim", "--csv", "-"});
  CHECK(contains(csv.out, "launches [counted]"));
  CHECK(contains(csv.out, "H100_floor_us (us) [predicted]"));
  CHECK(std::count(csv.out.begin(), csv.out.end(), '\n') == 2);

  const TemporaryFolder folder;
  const std::string out = folder.path("results"), picture = folder.path("roof.svg");
  const std::vector<std::string> arguments{"softmax", "--size", "4x64",       "--device", "sim",
                                           "--out",   out,      "--roofline", picture};
  REQUIRE(bench_of(arguments).status == cli::kDone);
  for (const char* file :
       {"bench.json", "bench.csv", "roofline.svg", "config.toml", "environment.json"})
    CHECK_MESSAGE(std::filesystem::exists(std::filesystem::path(out) / file), file);
  const std::string svg = read_text(picture);
  CHECK(svg == read_text(out + "/roofline.svg"));
  for (const char* part : {"</svg>", "FLOP/s", "FLOP/B", "peaks: cited", "predicted (hollow)",
                           "nothing was measured", "softmax 4x64 bf16"})
    CHECK_MESSAGE(contains(svg, part), part);
  // Not again without being told to.
  const Result again = bench_of(arguments);
  CHECK(again.status == cli::kUsage);
  CHECK(is_one_line_error(again.err, "bench"));
}

TEST_CASE("bench: the same request gives the same figures; another seed other operands") {
  const std::vector<std::string> arguments{"layer_norm", "--size", "5x96", "--device", "sim"};
  CHECK(table_of(arguments) == table_of(arguments));
}

TEST_CASE("bench: gradients are counted apart from the forward pass") {
  const Json dgrad =
      table_of({"matmul", "--size", "48x64x32", "--pass", "dgrad", "--device", "sim"})["rows"][0];
  CHECK(dgrad["pass"] == "dgrad");
  CHECK(dgrad["out_dtype"] == "bf16");
  CHECK(dgrad["launches"] == 1);
  CHECK(dgrad["flops"] == 2 * 48 * 64 * 32);
  CHECK(dgrad["min_bytes"] == 2 * (48 * 64 + 64 * 32 + 48 * 32));
  CHECK(dgrad["verified"] == "1536 of 1536 elements within bounds");
  const Json wgrad = table_of(
      {"conv2d", "--conv", "2,7,6,8,16,3,3,1,1", "--pass", "wgrad", "--device", "sim"})["rows"][0];
  CHECK(wgrad["out_dtype"] == "fp32");
  CHECK(wgrad["min_bytes"] == 2 * (2 * 7 * 6 * 8) + 2 * (2 * 7 * 6 * 16) + 4 * (16 * 3 * 3 * 8));
  CHECK(wgrad["verified"] == "1152 of 1152 elements within bounds");
  const Json norm = table_of(
      {"layer_norm", "--size", "6x64", "--pass", "backward", "--device", "sim"})["rows"][0];
  CHECK(norm["verdict"] == "verified");
  CHECK(norm["flops"] == 0);
}

TEST_CASE("bench: training steps are counted, and the host waits for none") {
  const Json table = table_of({"step", "--dtype", "bf16", "--device", "sim"});
  REQUIRE(table["rows"].size() == 2);
  for (const Json& row : table["rows"]) {
    CHECK(row["syncs"] == 0);
    CHECK(row["allocations"] == 0);
    CHECK(row["launches"] > 5);
    CHECK(row["verdict"] == "verified");
  }
}

TEST_CASE("bench: --list says what there is") {
  const Json table = table_of({"--list"});
  std::set<std::string> names;
  for (const Json& row : table["rows"]) names.insert(row["operation"]);
  for (const char* name : {"matmul", "conv2d", "softmax", "unscale_clip", "step"})
    CHECK_MESSAGE(names.count(name) == 1, name);
  CHECK(contains(table["notes"].dump(), "ping_pong"));
}

TEST_CASE("bench: what is listed can be run") {
  // A small size each, of the form that --list gives.
  const std::map<std::string, std::string> sizes{
      {"linear", "3x5x7"},       {"matmul", "2x3x4x5"},     {"embedding", "5x7x8"},
      {"max_pool2d", "1x4x6x3"}, {"avg_pool2d", "1x4x6x3"}, {"unscale_clip", "77"},
      {"batch_norm", "2x3x3x5"}};
  const Json list = table_of({"--list"});
  std::size_t tried = 0;
  for (const Json& row : list["rows"]) {
    const std::string name = row["operation"];
    if (name == "step") continue;
    CAPTURE(name);
    std::vector<std::string> arguments{name, "--device", "sim", "--dtype", "fp32"};
    if (name == "conv2d")
      arguments.insert(arguments.end(), {"--conv", "1,4,4,3,5,3,3,2,1"});
    else
      arguments.insert(arguments.end(),
                       {"--size", sizes.count(name) != 0 ? sizes.at(name) : "4x6"});
    const Json ran = table_of(arguments);
    REQUIRE(ran["rows"].size() == 1);
    CHECK(ran["rows"][0]["verdict"] == "verified");
    ++tried;
  }
  CHECK(tried + 1 == list["rows"].size());
}

TEST_CASE("bench: wrong usage is one line") {
  const std::vector<std::vector<std::string>> wrong{
      {"nonsense"},
      {"matmul", "--size", "12"},
      {"matmul", "--size", "12x-3x4"},
      {"matmul", "--size", "axbxc"},
      {"matmul", "--size", "99999999999x1x1"},
      {"matmul", "--size", "2000000000x2000000000x1"},
      {"softmax", "--size", "2000000x2000000"},
      {"matmul", "--layout", "xx"},
      {"matmul", "--dtype", "int8"},
      {"matmul", "--out-dtype", "fp8"},
      {"matmul", "--kernel", "fastest"},
      {"matmul", "--kernel", "tiles", "--rungs"},
      {"matmul", "--rungs", "--device", "cpu"},
      {"matmul", "--baseline", "--device", "sim"},
      {"matmul", "--arch", "sm_75"},
      {"matmul", "--pass", "sideways"},
      {"softmax", "--pass", "wgrad"},
      {"softmax", "--rungs"},
      {"unscale_clip", "--pass", "backward"},
      {"conv2d", "--conv", "1,2,3"},
      {"conv2d", "--conv", "1,2,2,3,4,5,5,1,0"},
      {"conv2d", "--conv", "1,2,2,3,4,1,1,0,0"},
      {"matmul", "--conv", "1,4,4,3,5,3,3,2,1"},
      {"step", "--dtype", "fp64", "--device", "sim"},
      {"matmul", "--device", "tpu"},
      {"softmax", "--size", "4x8", "--json", "-", "--csv", "-"},
  };
  for (const std::vector<std::string>& arguments : wrong) {
    std::string text;
    for (const std::string& a : arguments) text += a + " ";
    CAPTURE(text);
    const Result r = bench_of(arguments);
    CAPTURE(r.err);
    CHECK(r.status == cli::kUsage);
    CHECK(r.err.find("roundoff: error: [") == 0);
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
    CHECK(r.out.empty());
  }
}
