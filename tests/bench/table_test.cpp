#include "bench/table.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kernels/base/check.h"

using namespace roundoff;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Table example() {
  Table t("example", {{"name"},
                      {"seconds", Provenance::measured, 3, "s"},
                      {"steps", Provenance::counted},
                      {"good"}});
  t.add_row({std::string("a, \"b\""), 0.123456, std::int64_t{12}, true});
  t.add_row({std::string("c"), -kInf, Cell(), false});
  t.add_note("one machine");
  return t;
}

std::string printed(const Table& t, int width = 0) {
  std::ostringstream out;
  t.print(out, width);
  return out.str();
}

}  // namespace

TEST_CASE("a table in text: numbers to the right, provenance under the names where it differs") {
  CHECK(printed(example()) ==
        "name    seconds (s)    steps  good\n"
        "           measured  counted\n"
        "----------------------------------\n"
        "a, \"b\"        0.123       12  yes\n"
        "c              -inf        -  no\n"
        "one machine\n");
  Table one("one", {{"x", Provenance::modelled, 0}});
  one.add_row({0.1});
  CHECK(printed(one) == "  x\n---\n0.1\nnumbers: modelled\n");
  CHECK(printed(Table("empty", {{"a"}, {"b"}})) == "a  b\n----\n");
  Table utf8("utf8", {{"\xC3\xA9"}, {"b"}});  // an accent is one column wide
  utf8.add_row({std::string("xy"), std::string("z")});
  CHECK(printed(utf8) == "\xC3\xA9   b\n-----\nxy  z\n");
}

TEST_CASE("a table too wide for its terminal is printed in blocks") {
  CHECK(printed(example(), 34) == printed(example()));
  CHECK(printed(example(), 33) ==
        "name         a, \"b\"\n"
        "seconds (s)  0.123  [measured]\n"
        "steps        12  [counted]\n"
        "good         yes\n"
        "\n"
        "name         c\n"
        "seconds (s)  -inf  [measured]\n"
        "steps        -  [counted]\n"
        "good         no\n"
        "one machine\n");
}

TEST_CASE("a table as CSV: quoted where it must be, numbers in full, provenance in the header") {
  CHECK(example().csv() ==
        "name,seconds (s) [measured],steps [counted],good\r\n"
        "\"a, \"\"b\"\"\",0.123456,12,yes\r\n"
        "c,-inf,,no\r\n");
}

TEST_CASE("a table as JSON: non-finite numbers are null beside their class") {
  const auto j = nlohmann::json::parse(example().json());
  CHECK(j["table"] == "example");
  CHECK(j["columns"][1]["provenance"] == "measured");
  CHECK(j["columns"][1]["unit"] == "s");
  CHECK_FALSE(j["columns"][0].contains("provenance"));
  CHECK(j["rows"][0]["seconds"] == 0.123456);
  CHECK(j["rows"][0]["steps"] == 12);
  CHECK(j["rows"][0]["good"] == true);
  CHECK(j["rows"][1]["seconds"].is_null());
  CHECK(j["rows"][1]["seconds_class"] == "-inf");
  CHECK(j["rows"][1]["steps"].is_null());
  CHECK(j["notes"][0] == "one machine");
  Table nan("nan", {{"x"}});
  nan.add_row({std::nan("")});
  CHECK(nlohmann::json::parse(nan.json())["rows"][0]["x_class"] == "nan");
  CHECK(nlohmann::json::parse(Table("none", {{"x"}}).json())["rows"].empty());
  Table raw("raw", {{"x"}});
  raw.add_row({std::string("\xFF\x01")});  // not UTF-8: replaced, still JSON
  CHECK(nlohmann::json::parse(raw.json())["rows"].size() == 1);
}

TEST_CASE("a row has a cell a column") {
  Table t("t", {{"a"}, {"b"}});
  CHECK_THROWS_AS(t.add_row({std::string("x")}), roundoff::Error);
  CHECK(t.rows().empty());
}

TEST_CASE("shortest decimals read back") {
  CHECK(shortest(0.1) == "0.1");
  CHECK(shortest(65504.0) == "65504");
  CHECK(shortest(0x1p-24) == "5.960464477539063e-08");
  CHECK(shortest(-kInf) == "-inf");
  CHECK(shortest(std::nan("")) == "nan");
}
