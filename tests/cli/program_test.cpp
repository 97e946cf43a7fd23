// The program from outside: statuses, errors in one line, output in every form.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/environment.h"
#include "cli/interrupt.h"
#include "engine/io/file.h"
#include "tests/cli/run_program.h"

using namespace roundoff;
using test::contains;
using test::is_one_line_error;
using test::Result;
using test::run_on_terminal;
using test::run_program;

namespace {

using Strings = std::vector<std::string>;
using Json = nlohmann::json;

constexpr const char* kCommands[] = {"eval",  "compare", "study",   "op",
                                     "round", "scaler",  "formats", "info"};

Json rows_of(const Strings& arguments) {
  Strings all = arguments;
  all.insert(all.end(), {"--json", "-"});
  const Result r = run_program(all);
  REQUIRE(r.status == 0);
  REQUIRE(r.err.empty());
  return Json::parse(r.out)["rows"];
}

void check_usage(const Strings& arguments, const std::string& operation, const std::string& part) {
  const Result r = run_program(arguments);
  CAPTURE(r.err);
  CHECK(r.status == cli::kUsage);
  CHECK(r.out.empty());
  CHECK(is_one_line_error(r.err, operation));
  CHECK(contains(r.err, part));
}

}  // namespace

TEST_CASE("--version and --help, with an example on every subcommand") {
  const Result version = run_program({"--version"});
  CHECK(version.status == 0);
  CHECK(version.out.rfind("roundoff " + cli::build_info().version + " (", 0) == 0);
  const Result help = run_program({"--help"});
  CHECK(help.status == 0);
  for (const char* command : kCommands) {
    CAPTURE(command);
    CHECK(contains(help.out, std::string("\n  ") + command));
    const Result r = run_program({command, "--help"});
    CHECK(r.status == 0);
    CHECK(r.err.empty());
    CHECK(contains(r.out, "Example"));
    CHECK(contains(r.out, std::string("\n  roundoff ") + command));
    CHECK(contains(r.out, "--config"));
    CHECK(run_program({command, "-h"}).out == r.out);
  }
}

TEST_CASE("wrong usage: status 2 and one line that says what was expected") {
  check_usage({}, "roundoff", "no subcommand");
  check_usage({"rond"}, "roundoff", "unknown subcommand 'rond'");
  check_usage({"--quiet"}, "roundoff", "unknown subcommand '--quiet'");
  check_usage({"a\nb"}, "roundoff", "unknown subcommand 'a b'");
  check_usage({"formats", "--nonsense"}, "formats", "--nonsense");
  check_usage({"formats", "fp17"}, "format", "unknown format 'fp17'");
  check_usage({"info", "extra"}, "info", "extra");
  check_usage({"round"}, "round", "VALUE");
  check_usage({"round", "1", "--to"}, "round", "--to");
  check_usage({"round", "1", "--to="}, "round", "--to= has no value");
  check_usage({"round", "1", "--to", "fp17"}, "format", "unknown format 'fp17'");
  check_usage({"round", "1", "--to", "p=3"}, "format", "lacks emin");
  check_usage({"round", "1", "--mode", "up"}, "rounding mode", "'up'");
  check_usage({"round", "1", "abc"}, "number", "'abc'");
  check_usage({"round", ""}, "number", "''");
  check_usage({"round", "1", "-x"}, "round", "-x");
  check_usage({"round", "1", "--seed", "-1"}, "round", "--seed");
  for (const char* scale : {"0", "-2", "inf", "nan", "x", "1e-999"})
    check_usage({"round", "1", "--scale", scale}, std::string(scale) == "x" ? "number" : "round",
                scale);
  check_usage({"round", "1", "--json", "-", "--csv", "-"}, "output", "both ask for stdout");
  check_usage({"scaler"}, "scaler", "--pattern");
  check_usage({"scaler", "--pattern", "..x"}, "scaler", "'x' at position 3");
  check_usage({"scaler", "--pattern", ".", "--interval", "two"}, "scaler", "--interval");
  for (const Strings& bad : std::vector<Strings>{{"--interval", "0"},
                                                 {"--growth", "1"},
                                                 {"--growth", "nan"},
                                                 {"--backoff", "1"},
                                                 {"--backoff", "-0.5"},
                                                 {"--init", "0"},
                                                 {"--init", "nan"},
                                                 {"--init", "1e40"},
                                                 {"--min", "1e-40"},
                                                 {"--max", "inf"},
                                                 {"--max", "1024"}}) {
    CAPTURE(bad[0]);
    CAPTURE(bad[1]);
    const Result r = run_program({"scaler", "--pattern", ".", bad[0], bad[1]});
    CHECK(r.status == cli::kUsage);
    CHECK(r.err.rfind("roundoff: error: [", 0) == 0);
  }
}

TEST_CASE("failures at run time: status 3, nothing half written") {
  const test::TemporaryFolder folder;
  Result r = run_program({"formats", "--json", folder.path("no/such/folder.json")});
  CHECK(r.status == cli::kFailed);
  CHECK(r.err.rfind("roundoff: error: [", 0) == 0);
  CHECK(r.out.empty());
  r = run_program({"round", "1", "--config", folder.path("absent.toml")});
  CHECK(r.status == cli::kFailed);
  CHECK(contains(r.err, "absent.toml"));
  r = run_program({"round", "1", "--config", folder.file("bad.toml", "to = \n")});
  CHECK(r.status == cli::kFailed);
  CHECK(is_one_line_error(r.err, "config"));
  r = run_program({"round", "1", "--config", folder.file("unknown.toml", "too = \"fp16\"\n")});
  CHECK(r.status == cli::kUsage);
  CHECK(is_one_line_error(r.err, "config"));
  CHECK(contains(r.err, "key 'too'"));
}

TEST_CASE("round: values of every sign and class, in order, wherever the flags stand") {
  const Json rows = rows_of({"round", "-1.5", "0.1", "--to", "fp16", "-inf", "nan", "-0", "65520",
                             "-.5", "1e-8", "2e-7", "inf"});
  REQUIRE(rows.size() == 10);
  const Strings values = {"-1.5",  "0.1", "-inf", "nan",  "-0",
                          "65520", "-.5", "1e-8", "2e-7", "inf"};
  const Strings bits = {"0xBE00", "0x2E66", "0xFC00", "0x7E00", "0x8000",
                        "0x7C00", "0xB800", "0x0000", "0x0003", "0x7C00"};
  const Strings classes = {"normal",   "normal", "infinite", "nan",       "zero",
                           "infinite", "normal", "zero",     "subnormal", "infinite"};
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(rows[i]["value"] == values[i]);
    CHECK(rows[i]["bits"] == bits[i]);
    CHECK(rows[i]["class"] == classes[i]);
  }
  CHECK(rows[1]["rounded"] == 0.0999755859375);
  CHECK(rows[1]["error"].get<double>() == doctest::Approx(-0.4));
  CHECK(rows[1]["remark"] == "inexact");
  CHECK(rows[2]["rounded_class"] == "-inf");
  CHECK(rows[2]["remark"] == "exact");
  CHECK(rows[5]["remark"] == "overflow");
  CHECK(rows[5]["error_class"] == "inf");
}

TEST_CASE("round: a decimal that fp64 would turn into a tie") {
  const Json rows = rows_of({"round", "2.98023223876953125e-8",
                             "2.98023223876953125000000000000000000000000001e-8", "0x1p-25",
                             "0x1.0000000000000000000001p-25"});
  CHECK(rows[0]["bits"] == "0x0000");
  CHECK(rows[1]["bits"] == "0x0001");
  CHECK(rows[2]["bits"] == "0x0000");
  CHECK(rows[3]["bits"] == "0x0001");
}

TEST_CASE("round: formats, modes, binary patterns") {
  CHECK(rows_of({"round", "500", "nan", "--to", "fp8-e4m3"})[0]["rounded"] == 448);
  CHECK(rows_of({"round", "nan", "--to", "e2m1"})[0]["remark"] == "NaN has no pattern here");
  CHECK(rows_of({"round", "0.1", "--to", "bf16", "--mode", "rz"})[0]["bits"] == "0x3DCC");
  CHECK(rows_of({"round", "0.1", "--to", "bf16", "--mode", "ru"})[0]["bits"] == "0x3DCD");
  CHECK(rows_of({"round", "-0.1", "--to", "bf16", "--mode", "rd"})[0]["bits"] == "0xBDCD");
  CHECK(rows_of({"round", "-0.1", "--to", "bf16", "--bits"})[0]["sign_exponent_fraction"] ==
        "1 01111011 1001101");
  const Json odd = rows_of({"round", "0.3", "--to", "p=10,emin=-20,emax=20", "--bits"});
  CHECK(odd[0]["bits"].is_null());
  CHECK(odd[0]["sign_exponent_fraction"].is_null());
  // Stochastic rounding: the same seed gives the same line, and both neighbours occur.
  Strings many = {"round", "--to", "bf16", "--mode", "sr", "--seed", "3"};
  many.insert(many.end(), 200, "0.1");
  const Json first = rows_of(many);
  CHECK(rows_of(many) == first);
  int up = 0;
  for (const Json& row : first) {
    CHECK((row["bits"] == "0x3DCC" || row["bits"] == "0x3DCD"));
    up += row["bits"] == "0x3DCD" ? 1 : 0;
  }
  CHECK(up > 100);  // the fraction is 0.8
  CHECK(up < 200);
}

TEST_CASE("round --scale: scaled, back, and the smallest power of two that makes it normal") {
  const Json rows = rows_of(
      {"round", "3e-8", "1", "1e6", "0", "inf", "6.1e-5", "6.10351e-5", "--scale", "65536"});
  CHECK(rows[0]["class"] == "subnormal");
  CHECK(rows[0]["scaled_class"] == "normal");
  CHECK(rows[0]["scaled"] == 0.0019664764404296875);
  CHECK(rows[0]["back"] == 0.0019664764404296875 / 65536);
  CHECK(std::abs(rows[0]["back_error"].get<double>()) < 0x1p-11);
  CHECK(rows[0]["normal_from_log2_scale"] == 11);  // 3e-8 = 1.007 2^-25
  CHECK(rows[1]["scaled_class"] == "infinite, overflow");
  CHECK(rows[1]["normal_from_log2_scale"] == 0);
  CHECK(rows[2]["normal_from_log2_scale"].is_null());
  CHECK(rows[3]["normal_from_log2_scale"].is_null());
  CHECK(rows[4]["normal_from_log2_scale"].is_null());
  CHECK(rows[5]["normal_from_log2_scale"] == 1);  // rounds to the largest subnormal
  CHECK(rows[6]["normal_from_log2_scale"] == 0);  // just below 2^-14, rounds up to it
  CHECK(rows_of({"round", "1e-30", "--to", "bf16", "--scale", "3"})[0]["back"].get<double>() ==
        doctest::Approx(1e-30).epsilon(0x1p-8));
}

TEST_CASE("formats: the rows of numerics, and custom ones") {
  const Json rows = rows_of({"formats"});
  CHECK(rows.size() == 10);
  for (const Json& row : rows) {
    if (row["format"] == "fp16") {
      CHECK(row["p"] == 11);
      CHECK(row["emax"] == 15);
      CHECK(row["max"] == 65504);
      CHECK(row["min_subnormal"] == 0x1p-24);
      CHECK(row["u"] == 0x1p-11);
    }
    if (row["format"] == "fp8-e4m3") {
      CHECK(row["max"] == 448);
      CHECK(row["infinities"] == false);
      CHECK(row["overflow"] == "saturates");
    }
  }
  const Json custom = rows_of({"formats", "p=5,emin=-6,emax=7", "p=10,emin=-20,emax=20"});
  CHECK(custom[0]["width"] == 9);
  CHECK(custom[0]["max"] == 248);
  CHECK(custom[1]["width"].is_null());
}

TEST_CASE("info names the build, the devices and the data") {
  const Result r = run_program({"info"});
  CHECK(r.status == 0);
  for (const char* part : {"version", "commit", "compiler", "blas", "device cpu", "device sim",
                           "device cuda", "not available", "data fashion-mnist"})
    CHECK(contains(r.out, part));
}

namespace {

void check_scaler(const Strings& arguments, const std::vector<double>& scales,
                  const std::vector<int>& trackers) {
  Strings all = {"scaler"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Json rows = rows_of(all);
  REQUIRE(rows.size() == scales.size());
  for (std::size_t i = 0; i < scales.size(); ++i) {
    CAPTURE(i);
    CHECK(rows[i]["scale"] == scales[i]);
    if (!trackers.empty()) CHECK(rows[i]["tracker"] == trackers[i]);
    CHECK(rows[i]["did_step"] == (rows[i]["gradients"] == "."));
  }
}

}  // namespace

TEST_CASE("case 76 [SCALER] base sequence, as the program replays it") {
  check_scaler({"--pattern", "...X......X.X..", "--interval", "3"},
               {65536, 65536, 131072, 65536, 65536, 65536, 131072, 131072, 131072, 262144, 131072,
                131072, 65536, 65536, 65536},
               {1, 2, 0, 0, 1, 2, 0, 1, 2, 0, 0, 1, 0, 1, 2});
}

TEST_CASE("case 77 [SCALER] counter resets on overflow, as the program replays it") {
  check_scaler({"--pattern", "..X..X...", "--init", "1024", "--interval", "3"},
               {1024, 1024, 512, 512, 512, 256, 256, 256, 512}, {1, 2, 0, 1, 2, 0, 1, 2, 0});
  check_scaler({"--pattern", "........", "--init", "8", "--interval", "3"},
               {8, 8, 16, 16, 16, 32, 32, 32}, {});
}

TEST_CASE("case 79 [SCALER] growth guard, as the program replays it") {
  check_scaler({"--pattern", "...", "--init", "0x1p126", "--interval", "1"},
               {0x1p126, 0x1p126, 0x1p126}, {0, 0, 0});
  check_scaler({"--pattern", "...", "--init", "0x1p23", "--interval", "1", "--max", "0x1p24"},
               {0x1p24, 0x1p24, 0x1p24}, {0, 0, 0});
  check_scaler({"--pattern", "XXX", "--init", "1"}, {0.5, 0.25, 0.125}, {0, 0, 0});
  check_scaler({"--pattern", "XXX", "--init", "4", "--min", "2"}, {2, 2, 2}, {0, 0, 0});
  check_scaler({"--pattern", ""}, {}, {});
}

TEST_CASE("--config: the file's settings, and flags that win") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file(
      "exp.toml", "pattern = \"..X\"\ninit = 1024\ninterval = 2\nbackoff = 0.25\nquiet = true\n");
  Json rows = rows_of({"scaler", "--config", file});
  CHECK(rows.size() == 3);
  CHECK(rows[1]["scale"] == 2048);
  CHECK(rows[2]["scale"] == 512);
  rows = rows_of({"scaler", "--config", file, "--backoff", "0.5", "--pattern=X"});
  REQUIRE(rows.size() == 1);
  CHECK(rows[0]["scale"] == 512);
}

TEST_CASE("--json and --csv: to files and to stdout") {
  const test::TemporaryFolder folder;
  const std::string json = folder.path("t.json");
  const std::string csv = folder.path("t.csv");
  const Result r = run_program({"round", "0.1", "--json", json, "--csv", csv});
  CHECK(r.status == 0);
  CHECK(contains(r.out, "0x2E66"));  // the text still goes to stdout
  CHECK(Json::parse(test::read_text(json))["rows"][0]["bits"] == "0x2E66");
  CHECK(contains(test::read_text(csv), "0.1,0.0999755859375,0x2E66,normal"));
  const Result out = run_program({"round", "0.1", "--csv", "-"});
  CHECK(out.out == test::read_text(csv));
}

TEST_CASE("colours and wide tables depend on the terminal") {
  Result r = run_on_terminal({"rond"}, 80, {"TERM=xterm"});
  CHECK(r.status == cli::kUsage);
  CHECK(contains(r.out, "\x1b[31merror"));
  for (const char* setting : {"NO_COLOR=1", "TERM=dumb"}) {
    r = run_on_terminal({"rond"}, 80, {"TERM=xterm", setting});
    CHECK(contains(r.out, "roundoff: error:"));
    CHECK_FALSE(contains(r.out, "\x1b["));
  }
  CHECK_FALSE(contains(run_program({"rond"}, {"TERM=xterm"}).err, "\x1b["));
  r = run_on_terminal({"formats", "fp16"}, 60, {"TERM=xterm"});
  CHECK(contains(r.out, "min_normal"));
  std::istringstream lines(r.out);
  for (std::string line; std::getline(lines, line);)
    if (!contains(line, "significant")) CHECK(line.size() <= 61);
}

TEST_CASE("environment.json says what a result depends on") {
  const Strings command_line = {"roundoff", "train", "--lr", "1e-3"};
  const std::vector<SourceFile> data = {{"train-images-idx3-ubyte.gz", std::string(64, 'a')}};
  const Json j = Json::parse(cli::environment_json(command_line, data));
  for (const char* key : {"roundoff", "commit", "compiler", "flags", "build_type", "system", "cpu",
                          "threads", "blas", "gpus", "gpu_driver", "command_line", "data"}) {
    CAPTURE(key);
    CHECK(j.contains(key));
  }
  CHECK(j["command_line"] == command_line);
  CHECK(j["data"][0]["sha256"] == std::string(64, 'a'));
  CHECK(j["threads"].get<int>() >= 1);
  CHECK(cli::parse_device("cpu") == Device::cpu);
  CHECK_THROWS_AS(cli::parse_device("tpu"), UsageError);
  for (const cli::DeviceStatus& d : cli::device_status())
    if (!d.available) CHECK_THROWS_AS(cli::parse_device(d.name), AbsentError);
}

TEST_CASE("Ctrl-C: status 130 at once, or when the step is done") {
  const auto child = [](auto&& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      cli::install_interrupt_handler();
      _exit(body());
    }
    return pid;
  };
  const auto status = [](pid_t pid) {
    int s = 0;
    REQUIRE(waitpid(pid, &s, 0) == pid);
    return WIFEXITED(s) ? WEXITSTATUS(s) : -1;
  };
  CHECK(status(child([] {
          std::raise(SIGINT);
          return 0;
        })) == cli::kInterrupted);
  CHECK(status(child([] {
          const cli::GracefulInterrupt guard;
          if (guard.requested()) return 1;
          std::raise(SIGINT);
          return guard.requested() ? 42 : 2;
        })) == 42);
  CHECK(status(child([] {
          const cli::GracefulInterrupt guard;
          std::raise(SIGINT);
          std::raise(SIGINT);
          return 0;
        })) == cli::kInterrupted);
  CHECK(status(child([] {
          { const cli::GracefulInterrupt guard; }
          std::raise(SIGTERM);
          return 0;
        })) == cli::kInterrupted);
}
