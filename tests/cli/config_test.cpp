#include "cli/config.h"

#include <doctest/doctest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "engine/io/file.h"
#include "kernels/base/check.h"
#include "tests/cli/run_program.h"

using namespace roundoff;
using cli::config_arguments;
using cli::prepare_arguments;
using cli::resolved_config;
using test::contains;

namespace {

using Strings = std::vector<std::string>;

// A command with an option of every kind.
struct Sample {
  CLI::App app{"sample", "sample"};
  std::string config, scale = "dynamic", out;
  int epochs = 1;
  unsigned workers = 2;
  double lr = 1e-3;
  bool shadow = false;
  Strings params;
  std::vector<int> sizes;
  std::vector<double> weights;
  Strings values;

  Sample() {
    app.add_option("VALUE", values)->transform(cli::restore_minus);
    app.add_option("--config", config);
    app.add_option("--scale", scale)->capture_default_str();
    app.add_option("--out", out);
    app.add_option("--epochs", epochs)->capture_default_str();
    app.add_option("--workers", workers)->capture_default_str();
    app.add_option("--lr", lr)->capture_default_str();
    app.add_flag("--shadow", shadow);
    app.add_option("--param", params);
    app.add_option("--micro-batch", sizes);
    app.add_option("--weights", weights);
  }
  void parse(Strings arguments) {
    arguments = prepare_arguments(app, arguments);
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
  }
};

void check_refused(const std::string& toml, const std::string& part) {
  CAPTURE(toml);
  const Sample s;
  try {
    config_arguments(s.app, toml, "exp.toml", {});
    FAIL("accepted");
  } catch (const UsageError& e) {
    CHECK(contains(e.what(), part));
    CHECK(contains(e.what(), "[config] exp.toml line "));
  }
}

}  // namespace

TEST_CASE("a TOML file says what the flags say") {
  const Sample s;
  CHECK(config_arguments(s.app,
                         "epochs = 3\nlr = 1e-4\nscale = 65536\nshadow = true\nout = \"runs/a b\"\n"
                         "param = [\"stride=2\", \"pad=1\"]\nmicro-batch = 16\nworkers = 0x10\n",
                         "exp.toml", {}) == Strings{"--epochs", "3", "--lr", "1e-04", "--scale",
                                                    "65536", "--shadow", "--out", "runs/a b",
                                                    "--param", "stride=2", "--param", "pad=1",
                                                    "--micro-batch", "16", "--workers", "16"});
  CHECK(config_arguments(s.app, "shadow = false", "exp.toml", {}).empty());
  CHECK(config_arguments(s.app, "# nothing\n", "exp.toml", {}).empty());
  CHECK(config_arguments(s.app, "", "exp.toml", {}).empty());
  CHECK(config_arguments(s.app, "lr = -inf", "exp.toml", {}) == Strings{"--lr", "-inf"});
  CHECK(config_arguments(s.app, "lr = 2", "exp.toml", {}) == Strings{"--lr", "2"});
  CHECK(config_arguments(s.app, "param = []", "exp.toml", {}).empty());
}

TEST_CASE("flags win over the file, lists as a whole") {
  const Sample s;
  CHECK(config_arguments(s.app, "epochs = 3\nparam = [\"a\", \"b\"]\nlr = 0.5", "exp.toml",
                         {"epochs", "param"}) == Strings{"--lr", "0.5"});
}

TEST_CASE("what does not fit is refused, with its key and line") {
  check_refused("lr = 0.1\nepoch = 3", "line 2: key 'epoch' is unknown to sample");
  check_refused("micro_batch = 3", "'micro-batch' is the flag's name");
  check_refused("epochs = 1.5", "holds a floating-point number; an integer expected");
  check_refused("epochs = \"3\"", "holds text; an integer expected");
  check_refused("epochs = true", "holds a truth value; an integer expected");
  check_refused("epochs = [1]", "holds an array; an integer expected");
  check_refused("workers = -1", "is negative");
  check_refused("lr = \"fast\"", "holds text; a number expected");
  check_refused("shadow = 1", "holds an integer; true or false expected");
  check_refused("shadow = \"yes\"", "holds text; true or false expected");
  check_refused("out = true", "holds a truth value; text or a number expected");
  check_refused("param = [[\"a\"]]", "holds an array; text or a number expected");
  check_refused("epochs.x = 1", "key 'epochs' holds a table");
  check_refused("lr = 1\n [epochs]\nx = 1", "line 2: tables are no settings");
  check_refused("epochs = {x = 1}", "line 1: tables are no settings");
  check_refused("a.b = 1", "key 'a' is unknown");
  check_refused("config = \"other.toml\"", "belongs to the command line alone");
  check_refused("help = true", "belongs to the command line alone");
  check_refused("VALUE = \"1\"", "key 'VALUE' is unknown");
  check_refused("out = \"a\\u0000b\"", "zero byte");
}

TEST_CASE("a key is checked even where a flag overrides it") {
  const Sample s;
  CHECK_THROWS_AS(config_arguments(s.app, "epochs = \"x\"", "exp.toml", {"epochs"}), UsageError);
}

TEST_CASE("text that is not TOML is an error with its line, and no wrong usage") {
  const Sample s;
  for (const std::string text :
       {"lr =", "lr = 1\nlr = 2", "= 3", "lr = 1 2", "\"unfinished", "lr = 1e400x",
        "epochs = 99999999999999999999", "\xFF\xFE", "a = [1"}) {
    CAPTURE(text);
    try {
      config_arguments(s.app, text, "exp.toml", {});
      FAIL("accepted");
    } catch (const UsageError&) {
      FAIL("wrong usage");
    } catch (const Error& e) {
      CHECK(contains(e.what(), "[config] exp.toml line "));
    }
  }
}

TEST_CASE("what the parser would take on trust is refused before it, by line") {
  const Sample s;
  const auto refused = [&](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(config_arguments(s.app, text, "exp.toml", {}), part, Error);
  };
  for (const char c : {'\0', '\x01', '\v', '\r', '\x1F', '\x7F'}) {
    const std::string control(1, c);
    refused("lr = 1\n# a" + control + " b\n", "[config] exp.toml line 2: a control character");
    refused("\nlr = '" + control + "'", "[config] exp.toml line 2: a control character");
    refused("out = \"a" + control + "b\"", "[config] exp.toml line 1: a control character");
  }
  // Letters beyond ASCII outside of text; the first is a no-break space.
  refused("lr = \xC2\xA0 1",
          "[config] exp.toml line 1: '\xC2\xA0' is no value; text stands in quotes");
  refused("l\xC3\xA9 = 1", "[config] exp.toml line 1: = expected after a key");
  refused("\xC3\xA9 = 1", "[config] exp.toml line 1: a key expected");
  refused("lr = 1 \xE2\x80\x93", "[config] exp.toml line 1: the line's end expected after a value");
  for (const char* bytes : {"\xFF", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                            "\xF5\x80\x80\x80", "\xC3(", "\x80", "\xF4\x90\x80\x80"}) {
    refused(std::string("out = '") + bytes + "'", "[config] exp.toml line 1: not UTF-8");
    refused(std::string("lr = 1 # ") + bytes, "[config] exp.toml line 1: not UTF-8");
  }
  for (const char* date : {"1979-05-27", "1979-05-27T::Z", "07:32:00", "[1979-05-27T07:32:00Z]"})
    refused(std::string("lr = ") + date,
            "[config] exp.toml line 1: dates and times are no settings");
  for (const char* table : {"[=]", "[", " [[#", "[[a]]", "a = {", "a = [{b = 1}]"})
    refused(std::string("lr = 1\r\n") + table, "[config] exp.toml line 2: tables are no settings");
  refused("out = \"\\\xC3\xA9\"", "[config] exp.toml line 1: no escape is like this");
}

TEST_CASE("values by TOML's grammar, and nothing like it") {
  const Sample s;
  for (const char* good :
       {"0", "-0", "+1", "1_000", "0.5", "5e-3", "1E+06", "-inf", "+nan", "0xFF_F", "0o17", "0b101",
        "1_0.0_1e1_0", "[ ]", "[1, 2,]", "[\n1,# one\n2\n]"}) {
    CAPTURE(good);
    CHECK_NOTHROW(config_arguments(s.app, std::string("weights = ") + good, "exp.toml", {}));
  }
  for (const char* bad : {"",
                          "00",
                          "01",
                          "1_",
                          "_1",
                          "1__0",
                          ".5",
                          "5.",
                          "1e",
                          "1e+",
                          "+",
                          "-",
                          "0x",
                          "0x_1",
                          "0xG",
                          "0b2",
                          "0o8",
                          "+0x1",
                          "tru",
                          "True",
                          "truefalse",
                          "Inf",
                          "infinity",
                          "1 2",
                          "1,",
                          "]",
                          "}",
                          "[1 2]",
                          "[1,,2]",
                          "[,]",
                          "[",
                          "[1",
                          "[1]]",
                          "=",
                          "= 1",
                          "\"a",
                          "\"a\n\"",
                          "'a",
                          "\"\"\"a\"\"",
                          "\"\\q\"",
                          "'a' 'b'",
                          "99999999999999999999",
                          "[[[[[[[[[[1]]]]]]]]]]"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(config_arguments(s.app, std::string("weights = ") + bad, "exp.toml", {}),
                    Error);
  }
  for (const char* bad :
       {"weights", "weights 1", "= 1", ".a = 1", "a..b = 1", "\"a = 1", "a b = 1", "#\na"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(config_arguments(s.app, bad, "exp.toml", {}), Error);
  }
}

TEST_CASE("text keeps its letters, whatever the quotes; brackets inside it are no headers") {
  const Sample s;
  const auto out = [&](const std::string& text) {
    CAPTURE(text);
    const Strings all = config_arguments(s.app, "out = " + text, "exp.toml", {});
    REQUIRE(all.size() == 2);
    return all[1];
  };
  const std::string letters = "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80";
  CHECK(out("\"" + letters + "\" # " + letters) == letters);
  CHECK(out("'" + letters + "'") == letters);
  CHECK(out("\"\"\"\n[=\n" + letters + "\"\"\"") == "[=\n" + letters);
  CHECK(out("\'\'\'\n[=\n" + letters + "\'\'\'") == "[=\n" + letters);
  CHECK(out("\"\"\"a\\\n   " + letters + "\"\"\"") == "a" + letters);
  CHECK(out("\"\"\"\"a\"\"\"\"\"") == "\"a\"\"");
  CHECK(out("\"# no comment \\\" \"") == "# no comment \" ");
  CHECK(out("''") == "");
  CHECK(out("'1979-05-27 07:32:00'") == "1979-05-27 07:32:00");
  CHECK(config_arguments(s.app, "\xEF\xBB\xBF\tparam = [\n]\r\n", "exp.toml", {}).empty());
}

TEST_CASE("the whole way: file, flags, negative numbers") {
  const test::TemporaryFolder folder;
  const std::string file = folder.file(
      "exp.toml",
      "epochs = 7\nlr = -0.5\nparam = [\"a=1\", \"b=2\"]\nshadow = true\nscale = \"off\"\n");
  Sample s;
  s.parse({"-1.5", "--config", file, "--epochs", "2", "-inf", "-.5", "-NaN", "-3"});
  CHECK(s.epochs == 2);
  CHECK(s.lr == -0.5);
  CHECK(s.params == Strings{"a=1", "b=2"});
  CHECK(s.shadow);
  CHECK(s.scale == "off");
  CHECK(s.values == Strings{"-1.5", "-inf", "-.5", "-NaN", "-3"});

  Sample equals;
  equals.parse({"--config=" + file, "--lr=-inf", "--", "-x", "--epochs"});
  CHECK(equals.epochs == 7);
  CHECK(equals.lr < 0);
  CHECK(equals.values == Strings{"-x", "--epochs"});

  Sample value;  // a value that looks like a flag is still a value
  value.parse({"--out", "--config", "--lr", "-inf"});
  CHECK(value.out == "--config");
  CHECK(value.config.empty());

  const Sample empty;
  CHECK_THROWS_WITH_AS(prepare_arguments(empty.app, {"--lr="}), "[sample] --lr= has no value",
                       UsageError);
  CHECK_THROWS_AS(prepare_arguments(empty.app, {"--config", folder.path("absent.toml")}), Error);
  CHECK_THROWS_AS(prepare_arguments(empty.app, {"--config", folder.path("")}), Error);
  const std::string large = folder.file("large.toml", std::string((1 << 20) + 1, '#'));
  CHECK_THROWS_AS(prepare_arguments(empty.app, {"--config", large}), Error);
}

TEST_CASE("the resolved settings read back to the same run") {
  Sample first;
  first.parse({"--lr", "3e-7", "--scale", "a \"quoted\"\\ \x01 value", "--param", "a=1", "--param",
               "b=2", "--epochs", "12", "5"});
  const std::string text = resolved_config(first.app);
  CAPTURE(text);
  const Sample shape;
  Sample second;
  Strings arguments = config_arguments(shape.app, text, "config.toml", {});
  second.parse(arguments);
  CHECK(second.lr == first.lr);
  CHECK(second.scale == first.scale);
  CHECK(second.params == first.params);
  CHECK(second.epochs == first.epochs);
  CHECK(second.workers == first.workers);
  CHECK(second.shadow == first.shadow);
  CHECK(second.out == first.out);
  CHECK(resolved_config(second.app) == text);
  CHECK(contains(text, "lr = 3e-07\n"));
  CHECK(contains(text, "workers = 2\n"));
  CHECK(contains(text, "shadow = false\n"));
  CHECK_FALSE(contains(text, "out ="));
  CHECK_FALSE(contains(text, "config ="));
}
