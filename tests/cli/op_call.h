// Calls of `roundoff op` with arrays in files, for its tests.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/command.h"
#include "engine/io/npy.h"
#include "engine/io/safetensors.h"
#include "kernels/base/convert.h"
#include "tests/cli/run_program.h"

namespace roundoff::test {

using Strings = std::vector<std::string>;
using Numbers = std::vector<double>;
using Json = nlohmann::json;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline const double kNaN = std::nan("");

inline HostArray array(const Numbers& values, const Shape& shape, DType dtype = DType::fp32) {
  HostArray a(element_type(dtype), shape);
  REQUIRE(static_cast<std::int64_t>(values.size()) == shape.numel());
  if (dtype == DType::i64)
    for (std::size_t i = 0; i < values.size(); ++i)
      a.as<std::int64_t>()[i] = static_cast<std::int64_t>(values[i]);
  else
    narrow(values.data(), a.numel(), View{a.bytes.data(), dtype, shape}, 0);
  return a;
}

inline Numbers ramp(std::int64_t n, double first = 0) {
  Numbers v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), first);
  return v;
}
// (i step mod modulus) - shift.
inline Numbers pattern(std::int64_t n, int step, int modulus, int shift) {
  Numbers v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(static_cast<double>(i * step % modulus) - shift);
  return v;
}
inline Numbers filled(std::int64_t n, double value) {
  return Numbers(static_cast<std::size_t>(n), value);
}

// A call of the program under construction, and what it gave.
class Call {
 public:
  explicit Call(const std::string& operation) : arguments_{"op", operation} {}

  Call& in(const std::string& name, const HostArray& a) {
    write_npy(folder.path(name + ".npy"), a);
    return with({"--in", name + "=" + folder.path(name + ".npy")});
  }
  Call& in(const std::string& name, const Numbers& values, const Shape& shape,
           DType dtype = DType::fp32) {
    return in(name, array(values, shape, dtype));
  }
  Call& grad(const Numbers& values, const Shape& shape, DType dtype = DType::fp32) {
    write_npy(folder.path("dy.npy"), array(values, shape, dtype));
    return with({"--grad", folder.path("dy.npy")});
  }
  Call& compare(const std::string& name, const HostArray& a) {
    write_npy(folder.path("mine_" + name + ".npy"), a);
    return with({"--compare", name + "=" + folder.path("mine_" + name + ".npy")});
  }
  Call& with(const Strings& arguments) {
    arguments_.insert(arguments_.end(), arguments.begin(), arguments.end());
    return *this;
  }
  Call& param(const std::string& text) { return with({"--param", text}); }

  Result run(const std::string& out = "out") {
    Strings all = arguments_;
    all.insert(all.end(), {"--quiet", "--overwrite", "--out", folder.path(out)});
    return test::run_program(all);
  }
  // Expects that every bound holds.
  Call& go() {
    const Result r = run();
    CAPTURE(r.err);
    REQUIRE(r.status == cli::kDone);
    CHECK(r.err.empty());
    const Json judged = report();
    for (const Json& one : judged) CHECK(one["holds"] == true);
    return *this;
  }
  HostArray result(const std::string& name) const {
    return read_npy(folder.path("out/" + name + ".npy"));
  }
  Numbers numbers(const std::string& name) const {
    const HostArray a = result(name);
    Numbers v(static_cast<std::size_t>(a.numel()));
    widen(a.view(), 0, a.numel(), v.data());
    return v;
  }
  Json json(const std::string& name) const {
    return Json::parse(test::read_text(folder.path("out/" + name)));
  }
  Json report() const { return json("report.json"); }
  bool wrote(const std::string& name) const {
    return std::filesystem::exists(folder.path("out/" + name));
  }

  TemporaryFolder folder;

 private:
  Strings arguments_;
};

// One rounding to fp32 of what a case gives in ten digits.
inline void check_close(const Numbers& actual, const Numbers& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    CAPTURE(i);
    CHECK(actual[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  }
}

inline double sum_of(const Numbers& v) { return std::accumulate(v.begin(), v.end(), 0.0); }
inline double size_of_all(const Numbers& v) {
  return std::accumulate(v.begin(), v.end(), 0.0,
                         [](double s, double x) { return s + std::abs(x); });
}

inline void check_error(Call& call, int status, const std::string& operation,
                        const std::string& part) {
  const Result r = call.run("nothing");
  CAPTURE(r.err);
  CHECK(r.status == status);
  CHECK(r.out.empty());
  CHECK(test::is_one_line_error(r.err, operation));
  CHECK(contains(r.err, part));
  CHECK(!std::filesystem::exists(call.folder.path("nothing")));
}

}  // namespace roundoff::test
