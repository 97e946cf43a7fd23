// roundoff check from outside: its table, its seeds, wrong usage.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/check_report.h"
#include "cli/command.h"
#include "tests/cli/run_program.h"

using namespace roundoff;
using namespace roundoff::test;
using Json = nlohmann::json;

namespace {

Json table_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"check"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  all.insert(all.end(), {"--json", "-", "--quiet"});
  const Result r = run_program(all);
  CAPTURE(r.err);
  REQUIRE(r.status == cli::kDone);
  return Json::parse(r.out);
}

}  // namespace

TEST_CASE("check: a row a case and dtype, with what was tried") {
  const Json table = table_of({"relu", "softmax", "--device", "cpu", "--dtype", "fp16,bf16"});
  std::size_t relu = 0;
  for (const Json& row : table["rows"]) {
    CHECK((row["operation"] == "relu" || row["operation"] == "softmax"));
    CHECK((row["dtype"] == "fp16" || row["dtype"] == "bf16"));
    CHECK(row["gradient"] == "dx");
    CHECK(row["verdict"] == "holds");
    CHECK(row["error/bound"] <= 1);
    CHECK(row["gradient_error/bound"] <= 1);
    CHECK(row["schedules"] == 1);
    relu += row["operation"] == "relu" ? 1 : 0;
  }
  CHECK(relu >= 10);
  CHECK(table["rows"].size() > relu);
  // The same again.
  CHECK(table_of({"relu", "softmax", "--device", "cpu", "--dtype", "fp16,bf16"}) == table);
  CHECK(table_of({"relu", "softmax", "--device", "cpu", "--dtype", "fp16,bf16", "--seed",
                  "2"})["rows"] != table["rows"]);
  CHECK(table_of({"relu", "--device", "cpu", "--cases", "full"})["rows"].size() > relu);
}

TEST_CASE("check: the text says what the numbers are") {
  const Result r = run_program({"check", "add", "--device", "cpu", "--dtype", "fp32"});
  CHECK(r.status == cli::kDone);
  CHECK(contains(r.out, "gradient_error/bound"));
  CHECK(contains(r.out, "a [17, 31], b [31]"));
  CHECK(contains(r.out, "da db"));
  CHECK(contains(r.out, "1 whole numbers bit-equal"));
  CHECK(contains(r.err, "0 broken: every bound holds"));
}

TEST_CASE("check: sim is the default, with schedules, modelled tensor cores and the sanitizer") {
  const Json table = table_of({"softmax", "--dtype", "fp16"});
  CHECK(table["table"] == "check on sim");
  for (const Json& row : table["rows"]) {
    CHECK(row["schedules"] == 4);
    CHECK(row["verdict"] == "holds");
  }
  const Json replayed = table_of({"softmax", "--dtype", "fp16", "--replay", "7"});
  for (const Json& row : replayed["rows"]) CHECK(row["schedules"] == 1);
  const Json modelled = table_of({"matmul", "sum", "--dtype", "fp16", "--acc", "h100"});
  bool model = false;
  for (const Json& row : modelled["rows"]) {
    CHECK(row["operation"] == "matmul");
    model = model || contains(row["rung"], "4");
  }
  CHECK(model);
  CHECK(contains(modelled["notes"].dump(), "does not exist with --acc h100: sum in fp16"));
}

TEST_CASE("check: where nothing exists to be checked, that is no success") {
  const Result r = run_program({"check", "sum", "--acc", "v100", "--dtype", "fp16"});
  CHECK(r.status == cli::kAbsent);
  CHECK(contains(r.err, "nothing was checked"));
  CHECK(!contains(r.err, "every bound holds"));
}

TEST_CASE("check --kernel: the cases that a kernel takes, and why it does not take the others") {
  const Json table =
      table_of({"linear", "--dtype", "fp16", "--kernel", "sm90", "--schedules", "1"});
  REQUIRE(!table["rows"].empty());
  for (const Json& row : table["rows"]) {
    CHECK(contains(row["case"], "kernel sm90"));
    CHECK(row["verdict"] == "holds");
  }
  CHECK(contains(table["notes"].dump(), "cases not taken by kernel sm90, of linear in fp16: "));
  const Result none =
      run_program({"check", "matmul", "--dtype", "fp16", "--kernel", "wgmma", "--acc", "a100"});
  CHECK(none.status == cli::kAbsent);
  CHECK(contains(none.err, "nothing was checked: kernel wgmma takes none of these cases"));
}

TEST_CASE("check: chains are rows of their own") {
  const Json table = table_of({"mlp", "attention", "--device", "cpu", "--dtype", "bf16"});
  REQUIRE(table["rows"].size() == 2);
  CHECK(table["rows"][0]["operation"] == "mlp");
  CHECK(table["rows"][0]["case"] == "linear, relu, linear, cross_entropy");
  CHECK(table["rows"][1]["verdict"] == "holds");
  CHECK(table_of({"relu", "--device", "cpu", "--dtype", "bf16"})["rows"][0]["operation"] == "relu");
}

TEST_CASE("check --long: a run is its seed's, and what none failing means is said") {
  const Json table = table_of({"--long", "--device", "cpu", "--seeds", "40", "--seed", "5"});
  std::int64_t seeds = 0;
  for (const Json& row : table["rows"]) {
    seeds += row["seeds"].get<std::int64_t>();
    CHECK(row["failures"] == 0);
  }
  CHECK(seeds == 40);
  CHECK(contains(table["notes"].dump(), "0 failures in 40 seeds on cpu: less than 7.5% at 95%"));
  CHECK(table_of({"--long", "--device", "cpu", "--seeds", "40", "--seed", "5"}) == table);
}

TEST_CASE("check: statements about failures") {
  CHECK(cli::long_statement(0, 1000, Device::sim) ==
        "0 failures in 1000 seeds on sim: less than 0.3% at 95% (3 / n)");
  CHECK(cli::long_statement(0, 1, Device::cpu) ==
        "0 failures in 1 seed on cpu: less than 100% at 95% (3 / n)");
  // Clopper and Pearson: 1 of 100 gives 0.0253% to 5.446%.
  CHECK(cli::long_statement(1, 100, Device::cpu) ==
        "1 failure in 100 seeds on cpu: 1%, 95% interval 0.025% to 5.4%");
  CHECK(cli::long_statement(10, 10, Device::cpu) ==
        "10 failures in 10 seeds on cpu: 100%, 95% interval 69.2% to 100%");
}

TEST_CASE("check: wrong usage, and devices that are not there") {
  const auto usage = [](const std::vector<std::string>& more, const std::string& part) {
    std::vector<std::string> all{"check"};
    all.insert(all.end(), more.begin(), more.end());
    const Result r = run_program(all);
    CAPTURE(r.err);
    CHECK(r.status == cli::kUsage);
    CHECK(contains(r.err, part));
  };
  usage({"softmux"}, "unknown operation 'softmux'");
  usage({"matmul", "--kernel", "sm81"}, "--kernel is 'sm81'; naive, tiles, mma");
  usage({"softmax", "--kernel", "sm80"},
        "--kernel is for matmul, linear and conv2d, not for softmax");
  usage({"mlp", "--kernel", "sm80"}, "not for the chain mlp");
  usage({"matmul", "--device", "cpu", "--kernel", "sm80"}, "cpu has no kernels to choose");
  usage({"softmax", "--dtype", "fp8"}, "--dtype is 'fp8'");
  usage({"softmax", "--cases", "some"}, "--cases is 'some'");
  usage({"softmax", "--acc", "fp8"}, "--acc is 'fp8'");
  usage({"softmax", "--device", "tpu"}, "unknown device 'tpu'");
  usage({"softmax", "--schedules", "0"}, "--schedules is 0");
  usage({"softmax", "--device", "cpu", "--sanitize"}, "--sanitize");
  usage({"--long", "--seeds", "0"}, "--seeds is 0");
  usage({"--long", "--replay", "3"}, "--replay does not go with --long");
  usage({"softmax", "--seed", "-1"}, "seed");
  const Result cuda = run_program({"check", "softmax", "--dtype", "fp32", "--device", "cuda"});
  CHECK((cuda.status == cli::kAbsent || cuda.status == cli::kDone));
  CHECK((cuda.status == cli::kDone || contains(cuda.err, "roundoff: skipped: ")));
  const Result help = run_program({"check", "--help"});
  CHECK(help.status == cli::kDone);
  CHECK(contains(help.out, "roundoff check --long"));
}
