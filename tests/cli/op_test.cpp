// roundoff op from outside: arrays in files, judged results, every kind of bad input.
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

using namespace roundoff;
using test::contains;
using test::Result;
using test::TemporaryFolder;

namespace {

using Strings = std::vector<std::string>;
using Numbers = std::vector<double>;
using Json = nlohmann::json;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

HostArray array(const Numbers& values, const Shape& shape, DType dtype = DType::fp32) {
  HostArray a(element_type(dtype), shape);
  REQUIRE(static_cast<std::int64_t>(values.size()) == shape.numel());
  if (dtype == DType::i64)
    for (std::size_t i = 0; i < values.size(); ++i)
      a.as<std::int64_t>()[i] = static_cast<std::int64_t>(values[i]);
  else
    narrow(values.data(), a.numel(), View{a.bytes.data(), dtype, shape}, 0);
  return a;
}

Numbers ramp(std::int64_t n, double first = 0) {
  Numbers v(static_cast<std::size_t>(n));
  std::iota(v.begin(), v.end(), first);
  return v;
}
// (i step mod modulus) - shift.
Numbers pattern(std::int64_t n, int step, int modulus, int shift) {
  Numbers v;
  for (std::int64_t i = 0; i < n; ++i) v.push_back(static_cast<double>(i * step % modulus) - shift);
  return v;
}
Numbers filled(std::int64_t n, double value) { return Numbers(static_cast<std::size_t>(n), value); }

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
void check_close(const Numbers& actual, const Numbers& expected) {
  REQUIRE(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    CAPTURE(i);
    CHECK(actual[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  }
}

double sum_of(const Numbers& v) { return std::accumulate(v.begin(), v.end(), 0.0); }
double size_of_all(const Numbers& v) {
  return std::accumulate(v.begin(), v.end(), 0.0,
                         [](double s, double x) { return s + std::abs(x); });
}

constexpr const char* kEach[] = {"fp32", "fp16"};

void check_error(Call& call, int status, const std::string& operation, const std::string& part) {
  const Result r = call.run("nothing");
  CAPTURE(r.err);
  CHECK(r.status == status);
  CHECK(r.out.empty());
  CHECK(test::is_one_line_error(r.err, operation));
  CHECK(contains(r.err, part));
  CHECK(!std::filesystem::exists(call.folder.path("nothing")));
}

}  // namespace

TEST_CASE("case 19 [GEMM] beta = 0 must not read C, through files") {
  Call c("matmul");
  c.in("a", ramp(6), {2, 3}).in("b", ramp(12), {3, 4});
  c.in("c", {kNaN, kInfinity, kNaN, 1, 2, 3, 4, kInfinity}, {2, 4}).param("beta=0").go();
  CHECK(c.numbers("y") == Numbers{20, 23, 26, 29, 56, 68, 80, 92});
}

TEST_CASE("case 20 [GEMM] alpha = 0 and K = 0, through files") {
  Call zero("matmul");
  zero.in("a", filled(6, kNaN), {2, 3}).in("b", filled(12, 1), {3, 4}).param("alpha=0").go();
  CHECK(zero.numbers("y") == filled(8, 0));
  Call c("matmul");
  c.in("a", filled(6, kNaN), {2, 3}).in("b", filled(12, 1), {3, 4}).in("c", filled(4, 3), {4});
  c.param("alpha=0").param("beta=2").go();
  CHECK(c.numbers("y") == filled(8, 6));
  Call empty("matmul");
  empty.in("a", {}, {2, 0}).in("b", {}, {0, 4}).go();
  CHECK(empty.numbers("y") == filled(8, 0));
  Call rows("matmul");
  rows.in("a", {}, {0, 3}).in("b", ramp(12), {3, 4}).grad({}, {0, 4}).go();
  CHECK(rows.result("y").shape == Shape{0, 4});
  CHECK(rows.numbers("db") == filled(12, 0));
}

TEST_CASE("case 21 [GEMM] odd extents in all four transpose combinations, through files") {
  const Numbers a = pattern(17 * 31, 7, 11, 5), b = pattern(31 * 23, 5, 13, 6);
  const auto transposed = [](const Numbers& v, std::size_t rows, std::size_t columns) {
    Numbers t(v.size());
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < columns; ++j) t[j * rows + i] = v[i * columns + j];
    return t;
  };
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      Call c("matmul");
      c.in("a", ta ? transposed(a, 17, 31) : a, ta ? Shape{31, 17} : Shape{17, 31});
      c.in("b", tb ? transposed(b, 31, 23) : b, tb ? Shape{23, 31} : Shape{31, 23});
      c.param(ta ? "trans_a=true" : "trans_a=false").param(tb ? "trans_b=1" : "trans_b=0");
      c.with({"--dtype", "bf16", "--out-dtype", "fp16"}).go();
      CHECK(c.result("y").type == ElementType::fp16);
      const Numbers y = c.numbers("y");
      CHECK(sum_of(y) == -32);
      CHECK(size_of_all(y) == 11264);
      CHECK(y.front() == 55);
      CHECK(y.back() == -27);
      CHECK(c.report()["y"]["max_abs"] == 0);
    }
}

TEST_CASE("case 22 [GEMM] accumulator must be fp32, through files") {
  const auto product = [](const Numbers& a, const Numbers& b, const char* dtype, const char* acc) {
    const auto k = static_cast<std::int64_t>(a.size());
    Call c("matmul");
    c.in("a", a, {1, k}).in("b", b, {k, 1}).with({"--dtype", dtype, "--out-dtype", "fp32"});
    c.with({"--acc", acc}).go();
    return c.numbers("y")[0];
  };
  CHECK(product({2048, 1, 1}, filled(3, 1), "fp16", "fp32") == 2050);
  CHECK(product({256, 1, 1}, filled(3, 1), "bf16", "fp32") == 258);
  CHECK(product(filled(4096, 1), filled(4096, 1), "fp16", "fp32") == 4096);
  CHECK(product({256, 256}, {256, -256}, "fp16", "fp32") == 0);
  // The accumulators that a person may ask for: fp16 stalls, within its own (wide) bound.
  CHECK(product({2048, 1, 1}, filled(3, 1), "fp16", "fp16") == 2048);
  CHECK(product({2048, 1, 1}, filled(3, 1), "fp16", "h100") == 2050);
  Call once("matmul");
  once.in("a", filled(2049, 1), {1, 2049}).in("b", filled(2049, 1), {2049, 1});
  once.with({"--dtype", "fp16"}).go();
  CHECK(once.numbers("y")[0] == 2048);
}

TEST_CASE("case 26 [CONV] grouped conv with Cout >> groups, through files") {
  Call c("conv2d");
  c.in("x", {0, 0, 0, 1}, {1, 4, 1, 1}).in("w", filled(32, 1), {16, 2, 1, 1});
  c.param("groups=2").param("layout=nchw").with({"--dtype", "fp16"}).go();
  CHECK(c.result("y").shape == Shape{1, 16, 1, 1});
  Numbers expected = filled(8, 0);
  expected.resize(16, 1);
  CHECK(c.numbers("y") == expected);
  Call depthwise("conv2d");
  Numbers w = filled(9, 1);
  w.resize(18, 2);
  w.resize(27, 3);
  depthwise.in("x", filled(48, 1), {1, 3, 4, 4}).in("w", w, {3, 1, 3, 3});
  depthwise.param("groups=3").param("layout=nchw").go();
  CHECK(depthwise.numbers("y") == Numbers{9, 9, 9, 9, 18, 18, 18, 18, 27, 27, 27, 27});
}

TEST_CASE("case 28 [CONV] stride 2, pad 1, dilation 2, through files") {
  const Numbers nine{64, 102, 72, 138, 216, 150, 120, 186, 128};
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    CAPTURE(dtype);
    Call c("conv2d");
    c.in("x", ramp(49), {1, 7, 7, 1}).in("w", filled(9, 1), {1, 3, 3, 1});
    c.grad(filled(9, 1), {1, 3, 3, 1});
    c.param("stride=2").param("padding=1,1").param("dilation=2").with({"--dtype", dtype}).go();
    const HostArray y = c.result("y");
    CHECK(y.type == (dtype == std::string("fp32")   ? ElementType::fp32
                     : dtype == std::string("fp16") ? ElementType::fp16
                                                    : ElementType::u16));
    CHECK(c.numbers("y.oracle") == nine);
    CHECK(c.numbers("dw.oracle") == nine);
    CHECK(c.report()["y"]["max_abs"] == 0);
    CHECK(c.report()["dw"]["max_abs"] == 0);
    if (y.type == ElementType::u16) continue;
    CHECK(c.numbers("y") == nine);
    CHECK(c.numbers("dw") == nine);
    const Numbers dx = c.numbers("dx");
    const Numbers at_odd{4, 6, 4, 6, 9, 6, 4, 6, 4};
    for (std::size_t i = 0; i < 7; ++i)
      for (std::size_t j = 0; j < 7; ++j)
        CHECK(dx[i * 7 + j] == (i % 2 == 1 && j % 2 == 1 ? at_odd[i / 2 * 3 + j / 2] : 0));
  }
}

TEST_CASE("case 30 [CONV] odd channels, full fwd/dgrad/wgrad/bias check, through files") {
  for (const char* dtype : kEach) {
    CAPTURE(dtype);
    Call c("conv2d");
    c.in("x", pattern(294, 1, 5, 2), {2, 3, 7, 7}).in("w", pattern(135, 1, 3, 1), {5, 3, 3, 3});
    c.in("b", {1, -1, 2, -2, 3}, {5}).grad(pattern(160, 1, 3, 1), {2, 5, 4, 4});
    c.param("stride=2").param("padding=1").param("layout=nchw").with({"--dtype", dtype}).go();
    const Numbers y = c.numbers("y");
    CHECK(c.result("y").shape == Shape{2, 5, 4, 4});
    CHECK(sum_of(y) == 96);
    CHECK(*std::max_element(y.begin(), y.end()) == 6);
    CHECK(Numbers(y.end() - 16, y.end()) ==
          Numbers{4, 0, 5, 3, 4, 1, 6, 1, 5, 1, 1, 5, 4, 0, 5, 3});
    const Numbers dx = c.numbers("dx"), dw = c.numbers("dw");
    CHECK(c.result("dx").shape == Shape{2, 3, 7, 7});
    CHECK(c.result("dw").shape == Shape{5, 3, 3, 3});
    CHECK(sum_of(dx) == 0);
    CHECK(size_of_all(dx) == 168);
    CHECK(sum_of(dw) == -1);
    CHECK(size_of_all(dw) == 389);
    CHECK(c.numbers("db") == Numbers{0, -1, 1, 0, -1});
  }
}

TEST_CASE("case 34, 35 [LOSS] log_softmax far from zero, through files") {
  Call far("log_softmax");
  far.in("x", {-20000, -20000}, {1, 2}, DType::fp16).go();
  CHECK(far.numbers("y") == Numbers{-0.693359375, -0.693359375});
  Call deep("log_softmax");
  deep.in("x", {0, -104, -200}, {3}).go();
  CHECK(deep.numbers("y") == Numbers{0, -104, -200});
}

TEST_CASE("case 39 [LOSS] class weights: mean divides by the sum of weights, through files") {
  const auto loss = [](const char* reduction) {
    Call c("cross_entropy");
    c.in("logits", {.2, .3, .5, .5, .2, .3}, {2, 3}).in("target", {2, 1}, {2}, DType::i64);
    c.in("weight", {2, 4, 6}, {3}).param(std::string("reduction=") + reduction).go();
    return c.numbers("y");
  };
  check_close(loss("none"), {5.63898637, 4.95932424});
  check_close(loss("sum"), {10.59831061});
  check_close(loss("mean"), {1.05983106});
}

TEST_CASE("case 40 [LOSS] all targets ignored, through files") {
  Call c("cross_entropy");
  c.in("logits", ramp(6, 1), {2, 3}).in("target", {-100, -100}, {2}, DType::i64);
  c.grad({1}, {}).go();
  CHECK(c.numbers("y") == Numbers{0});
  CHECK(c.numbers("dlogits") == filled(6, 0));
}

TEST_CASE("case 44 [LOSS] label smoothing formula, through files") {
  Call c("cross_entropy");
  c.in("logits", {2, 1, 0}, {1, 3}).in("target", {0}, {1}, DType::i64);
  c.param("label_smoothing=0.1").grad({1}, {}).go();
  check_close(c.numbers("y"), {0.5076059644});
  check_close(c.numbers("dlogits"), {-0.2680923776, 0.2113951377, 0.0566972398});
  CHECK(c.result("y").shape == Shape{});
}

TEST_CASE("case 47 [LOSS] soft targets divide by N, not by weights, through files") {
  Call c("cross_entropy");
  c.in("logits", {2, 1, 0, 0, 3, 1}, {2, 3}).in("target", {.7, .2, .1, .1, .1, .8}, {2, 3});
  c.in("weight", {1, 2, 5}, {3}).go();
  check_close(c.numbers("y"), {5.5412537136});
}

TEST_CASE("case 50 [LOSS] MSE and BCE ranges, through files") {
  Call c("mse");
  c.in("x", {300}, {1}, DType::fp16).in("target", {0}, {1}, DType::fp16).grad({1}, {}).go();
  CHECK(c.result("y").type == ElementType::fp32);
  CHECK(c.numbers("y") == Numbers{90000});
  CHECK(c.numbers("dx") == Numbers{600});
  CHECK(c.numbers("dtarget") == Numbers{-600});
  Call b("bce_with_logits");
  b.in("x", {100, -100}, {2}).in("target", {0, 1}, {2}).param("reduction=none");
  b.grad({1, 1}, {2}).go();
  CHECK(b.numbers("y") == Numbers{100, 100});
  CHECK(b.numbers("dx") == Numbers{1, -1});
  CHECK(b.numbers("dtarget") == Numbers{-100, 100});
}

TEST_CASE("case 52 [NORM] LayerNorm with large mean, through files") {
  Call c("layer_norm");
  c.in("x", {40000, 40001, 40002, 40003, 80000, 80001, 80002, 80003}, {2, 4});
  c.in("gamma", filled(4, 1), {4}).in("beta", filled(4, 0), {4}).param("eps=1e-5").go();
  const Numbers row{-1.34163542, -0.44721181, 0.44721181, 1.34163542};
  Numbers both = row;
  both.insert(both.end(), row.begin(), row.end());
  check_close(c.numbers("y"), both);
}

TEST_CASE("case 56 [NORM] biased for output, unbiased for running_var, through files") {
  // X[n, c, l] = 1 + n + 4 c + l.
  Numbers x;
  for (int n = 0; n < 4; ++n)
    for (int ch = 0; ch < 3; ++ch)
      for (int l = 0; l < 4; ++l) x.push_back(1 + n + 4 * ch + l);
  Call c("batch_norm");
  c.in("x", x, {4, 3, 4}).in("running_mean", filled(3, 0), {3});
  c.in("running_var", filled(3, 1), {3}).param("axis=1").go();
  const Numbers y = c.numbers("y");
  check_close({y.begin(), y.begin() + 3}, {-1.8973628, -1.2649086, -0.6324543});
  CHECK(std::abs(y[3]) < 1e-6);
  check_close(c.numbers("running_mean"), {0.4, 0.8, 1.2});
  check_close(c.numbers("running_var"), filled(3, 0.9 + 0.1 * 2.6666667));
}

TEST_CASE("case 60 [NORM] eval mode forward/backward, through files") {
  Call c("batch_norm");
  c.in("x", {6, 0}, {2, 1}).in("gamma", {3}, {1}).in("beta", {1}, {1});
  c.in("running_mean", {2}, {1}).in("running_var", {4}, {1}).grad({1, 1}, {2, 1});
  c.param("training=false").param("eps=0").go();
  CHECK(c.numbers("y") == Numbers{7, -2});
  CHECK(c.numbers("dx") == Numbers{1.5, 1.5});
  CHECK(c.numbers("dgamma") == Numbers{1});
  CHECK(c.numbers("dbeta") == Numbers{2});
  CHECK(c.numbers("running_mean") == Numbers{2});
  CHECK(c.numbers("running_var") == Numbers{4});
}

TEST_CASE("case 61 [NORM] training backward, through files") {
  Call c("batch_norm");
  c.in("x", {1, 2, 4}, {3, 1}).grad({1, 0, 0}, {3, 1}).param("eps=0").go();
  check_close(c.numbers("y"), {-1.0690450, -0.2672612, 1.3363062});
  check_close(c.numbers("dx"), {0.2290811, -0.3436216, 0.1145405});
  CHECK(!c.wrote("dgamma.npy"));
}

TEST_CASE("case 65, 66 [DROP] p = 1, p = 0 and invalid p, through files") {
  Call one("dropout");
  one.in("x", {1, -2, 3}, {3}).grad({1, 1, 1}, {3}).param("p=1").go();
  CHECK(one.numbers("y") == filled(3, 0));
  CHECK(one.numbers("dx") == filled(3, 0));
  Call none("dropout");
  none.in("x", {1, -2, 3}, {3}).grad({1, 2, 4}, {3}).param("p=0").go();
  CHECK(none.numbers("y") == Numbers{1, -2, 3});
  CHECK(none.numbers("dx") == Numbers{1, 2, 4});
  for (const char* p : {"p=-0.1", "p=1.1", "p=nan"}) {
    Call bad("dropout");
    bad.in("x", {1, -2, 3}, {3}).param(p);
    check_error(bad, cli::kUsage, "dropout", "p");
  }
}

TEST_CASE("case 92 [CLIP] inf check sees every element of every tensor, through files") {
  for (const double bad : {kInfinity, -kInfinity, kNaN, 1.0})
    for (const bool last : {true, false}) {
      CAPTURE(bad);
      // g2 is absent.
      Numbers g0{2}, g4 = filled(257, 1);
      (last ? g4.back() : g0.front()) = bad;
      Call c("unscale_clip");
      c.in("g0", g0, {1}).in("g1", {}, {0}).in("g3", filled(1003, 1), {1003}).in("g4", g4, {257});
      c.param("scale=2").go();
      CHECK(c.json("status.json")["found_inf"] == !std::isfinite(bad));
      CHECK(c.numbers("g3") == filled(1003, 0.5));
      CHECK(!c.wrote("g2.npy"));
      if (std::isnan(bad)) CHECK(c.json("status.json")["norm_class"] == "nan");
    }
}

TEST_CASE("case 96 [CLIP] unscale goes to fp32, through files") {
  Call c("unscale_clip");
  c.in("g0", {0x1p-14}, {1}, DType::fp16).param("scale=65536").go();
  CHECK(c.numbers("g0") == Numbers{0x1p-30});
}

TEST_CASE("case 98, 103 [CLIP] no eps in the coefficient, clip after unscale, through files") {
  Call c("unscale_clip");
  c.in("g0", {3072, 4096}, {2}).param("scale=1024").param("max_norm=1").go();
  check_close(c.numbers("g0"), {0.6, 0.8});
  CHECK(c.json("status.json")["norm"] == 5);
  CHECK(c.json("status.json")["clip"] == doctest::Approx(0.2));
  Call unchanged("unscale_clip");
  unchanged.in("g0", {1, 0}, {2}).param("max_norm=1").go();
  CHECK(unchanged.numbers("g0") == Numbers{1, 0});
  CHECK(unchanged.json("status.json")["clip"] == 1);
  Call small("unscale_clip");
  small.in("g0", {3e-7, 4e-7}, {2}).param("max_norm=1e-7").go();
  check_close(small.numbers("g0"), {0.6e-7, 0.8e-7});
}

TEST_CASE("case 99, 101 [CLIP] norms that overflow, and non-finite gradients, through files") {
  Call c("unscale_clip");
  c.in("g0", filled(100, 1e20), {100}).param("max_norm=1").go();
  check_close(c.numbers("g0"), filled(100, 0.1));
  CHECK(c.json("status.json")["norm"] == doctest::Approx(1e21));
  CHECK(c.json("status.json")["found_inf"] == false);
  Call fp16("unscale_clip");
  fp16.in("g0", {300}, {1}, DType::fp16).param("max_norm=1").go();
  CHECK(fp16.numbers("g0")[0] == doctest::Approx(1));
  Call bad("unscale_clip");
  bad.in("g0", {1, kInfinity, 2}, {3}).param("max_norm=1").go();
  CHECK(bad.numbers("g0") == Numbers{1, kInfinity, 2});
  CHECK(bad.json("status.json")["norm"].is_null());
  CHECK(bad.json("status.json")["norm_class"] == "inf");
  CHECK(bad.json("status.json")["clip"] == 1);
}

TEST_CASE("case 102 [CLIP] max_norm validation, through files") {
  for (const char* text : {"max_norm=-1", "max_norm=nan", "scale=0", "scale=-1", "scale=inf"}) {
    Call bad("unscale_clip");
    bad.in("g0", {3, 4}, {2}).param(text);
    check_error(bad, cli::kUsage,
                std::string(text).rfind("scale", 0) == 0 ? "unscale_clip" : "clip", "");
  }
  Call zero("unscale_clip");
  zero.in("g0", {3, 4}, {2}).param("max_norm=0").go();
  CHECK(zero.numbers("g0") == Numbers{0, 0});
}

TEST_CASE("case 12, 15 [RED] sums past 2048, and NaN in a maximum, through files") {
  Call c("sum");
  c.in("x", filled(4096, 1), {4096}, DType::fp16).grad({2}, {}).go();
  CHECK(c.numbers("y") == Numbers{4096});
  CHECK(c.numbers("dx") == filled(4096, 2));
  Call m("max");
  m.in("x", {1, kNaN, 2, 4, 5, 6}, {2, 3}).param("axis=1").go();
  CHECK(std::isnan(m.numbers("y")[0]));
  CHECK(m.numbers("y")[1] == 6);
}

// ---- judging a person's own arrays

TEST_CASE("--compare judges the arrays that are given, and a wrong one breaks and is named") {
  const Numbers a = pattern(12, 1, 5, 2), b = pattern(20, 1, 7, 3);
  Call own("matmul");
  own.in("a", a, {3, 4}).in("b", b, {4, 5}).grad(filled(15, 1), {3, 5}).go();
  Call right("matmul");
  right.in("a", a, {3, 4}).in("b", b, {4, 5}).grad(filled(15, 1), {3, 5});
  right.compare("y", own.result("y")).compare("da", own.result("da")).go();
  CHECK(right.report().size() == 2);
  CHECK(right.report()["y"]["max_abs"] == 0);
  CHECK(right.wrote("y.npy"));
  CHECK(right.wrote("da.bound.npy"));

  HostArray spoilt = own.result("y");
  spoilt.as<float>()[7] += 0.25F;
  Call wrong("matmul");
  wrong.in("a", a, {3, 4}).in("b", b, {4, 5}).grad(filled(15, 1), {3, 5});
  wrong.compare("y", spoilt).compare("da", own.result("da"));
  const Result r = wrong.run();
  CHECK(r.status == cli::kNotHeld);
  CHECK(contains(r.err, "roundoff: error: [matmul] y[1,2] is "));
  CHECK(contains(r.out, "[1,2]"));
  CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  CHECK(wrong.report()["y"]["holds"] == false);
  CHECK(wrong.report()["y"]["max_abs"] == 0.25);
  CHECK(wrong.report()["y"]["worst"]["index"] == 7);
  CHECK(wrong.report()["da"]["holds"] == true);
  // Non-finite where a number is due, in every position of a report.
  spoilt.as<float>()[7] = std::numeric_limits<float>::quiet_NaN();
  Call nan("matmul");
  nan.in("a", a, {3, 4}).in("b", b, {4, 5}).compare("y", spoilt);
  CHECK(nan.run().status == cli::kNotHeld);
  CHECK(nan.report()["y"]["bound_ratio"].is_null());
  CHECK(nan.report()["y"]["bound_ratio_class"] == "inf");
  CHECK(nan.report()["y"]["worst"]["value_class"] == "nan");
}

TEST_CASE("an element is named in the person's layout") {
  Call own("conv2d");
  const Numbers x = pattern(2 * 3 * 4 * 5, 1, 7, 3), w = pattern(6 * 3 * 2 * 2, 1, 5, 2);
  own.in("x", x, {2, 3, 4, 5}).in("w", w, {6, 3, 2, 2}).param("layout=nchw").go();
  HostArray y = own.result("y");
  REQUIRE(y.shape == Shape{2, 6, 3, 4});
  y.as<float>()[((1 * 6 + 4) * 3 + 2) * 4 + 1] += 1;
  Call wrong("conv2d");
  wrong.in("x", x, {2, 3, 4, 5}).in("w", w, {6, 3, 2, 2}).param("layout=nchw").compare("y", y);
  const Result r = wrong.run();
  CHECK(r.status == cli::kNotHeld);
  CHECK(contains(r.err, "y[1,4,2,1] is "));
}

TEST_CASE("--compare-acc chooses the accumulator whose bound applies") {
  // 4096 products of 1: an fp16 accumulator stalls at 2048, which only its own bound forgives.
  const auto judge = [](const Strings& more) {
    Call c("matmul");
    c.in("a", filled(4096, 1), {1, 4096}).in("b", filled(4096, 1), {4096, 1});
    c.with({"--dtype", "fp16"}).compare("y", array({2048}, {1, 1}, DType::fp16)).with(more);
    return c.run().status;
  };
  CHECK(judge({}) == cli::kNotHeld);
  CHECK(judge({"--compare-acc", "h100"}) == cli::kNotHeld);
  CHECK(judge({"--compare-acc", "fp16"}) == cli::kDone);
  CHECK(judge({"--acc", "fp16"}) == cli::kDone);
  CHECK(judge({"--acc", "fp16", "--compare-acc", "fp32"}) == cli::kNotHeld);
  // A truncated sum, a few units of 2^-23 low, is within a tensor core's bound and not fp32's.
  const auto truncated = [](const char* acc) {
    Call c("matmul");
    c.in("a", {1, 1}, {1, 2}).in("b", {1, 1}, {2, 1}).with({"--dtype", "fp16"});
    c.compare("y", array({2 - 4 * 0x1p-23}, {1, 1})).with({"--compare-acc", acc});
    return c.run().status;
  };
  CHECK(truncated("v100") == cli::kDone);
  CHECK(truncated("fp32") == cli::kNotHeld);
}

// ---- files

TEST_CASE("bf16 travels as uint16 bits, in and out") {
  HostArray bits(ElementType::u16, {3});
  bits.as<std::uint16_t>()[0] = 0x3F80;  // 1
  bits.as<std::uint16_t>()[1] = 0xC000;  // -2
  bits.as<std::uint16_t>()[2] = 0x7FC0;  // NaN
  Call c("relu");
  write_npy(c.folder.path("x.npy"), bits);
  c.with({"--in", "x:bf16=" + c.folder.path("x.npy")}).grad({1, 1, 1}, {3}).go();
  const HostArray y = c.result("y");
  REQUIRE(y.type == ElementType::u16);
  CHECK(y.as<std::uint16_t>()[0] == 0x3F80);
  CHECK(y.as<std::uint16_t>()[1] == 0);
  CHECK((y.as<std::uint16_t>()[2] & 0x7FFF) > 0x7F80);
  CHECK(c.report()["y"]["dtype"] == "bf16");
  Call again("relu");
  write_npy(again.folder.path("x.npy"), bits);
  write_npy(again.folder.path("mine.npy"), y);
  again.with({"--in", "x:bf16=" + again.folder.path("x.npy")});
  again.with({"--compare", "y:bf16=" + again.folder.path("mine.npy")}).go();

  Call bare("relu");
  bare.in("x", bits);
  check_error(bare, cli::kFailed, "relu", "x:bf16=FILE");
  Call wrong("relu");
  write_npy(wrong.folder.path("x.npy"), array({1}, {1}));
  wrong.with({"--in", "x:bf16=" + wrong.folder.path("x.npy")});
  check_error(wrong, cli::kFailed, "op", "uint16 expected");
}

TEST_CASE("operands are rounded once, from the file's own type") {
  // In fp32 first this fp64 value would be a tie of fp16 and round down.
  Call c("relu");
  c.in("x", {1 + 0x1p-11 + 0x1p-40, 65519.99, 65520, 0x1p-25}, {4}, DType::fp64);
  c.with({"--dtype", "fp16", "--out-dtype", "fp64"}).go();
  CHECK(c.numbers("y") == Numbers{1 + 0x1p-10, 65504, kInfinity, 0});
  // Integers too: 2^24 + 1 + 2^40 ties in nothing but its own 64 bits.
  HostArray whole(ElementType::i64, {2});
  whole.as<std::int64_t>()[0] = (std::int64_t{1} << 60) + (std::int64_t{1} << 36) + 1;
  whole.as<std::int64_t>()[1] = 2049;
  Call i("relu");
  i.in("x", whole).with({"--dtype", "fp32", "--out-dtype", "fp64"}).go();
  CHECK(i.numbers("y") == Numbers{0x1p60 + 0x1p37, 2049});
}

TEST_CASE("big-endian and Fortran-ordered files, and one safetensors file for all") {
  const HostArray a = array(ramp(6), {2, 3}), b = array(ramp(12), {3, 4});
  const Numbers expected{20, 23, 26, 29, 56, 68, 80, 92};
  Call c("matmul");
  write_npy(c.folder.path("a.npy"), a, {.version = 2, .big_endian = true});
  write_npy(c.folder.path("b.npy"), b, {.version = 3, .fortran_order = true});
  c.with({"--in", "a=" + c.folder.path("a.npy"), "--in", "b=" + c.folder.path("b.npy")}).go();
  CHECK(c.numbers("y") == expected);
  Call s("matmul");
  const std::vector<TensorBytes> both{{"a", a}, {"b", b}};
  write_safetensors(s.folder.path("all.safetensors"), both);
  s.with({"--in", s.folder.path("all.safetensors")}).go();
  CHECK(s.numbers("y") == expected);
  check_error(s.with({"--in", "a=" + c.folder.path("a.npy")}), cli::kUsage, "op", "\"a\" twice");
}

TEST_CASE("the folder: what is in it, and what is never lost") {
  Call c("softmax");
  c.in("x", ramp(6), {2, 3}).grad(ramp(6), {2, 3}).go();
  for (const char* file : {"y.npy", "dx.npy", "y.oracle.npy", "y.bound.npy", "dx.oracle.npy",
                           "dx.bound.npy", "report.json", "config.toml", "environment.json"})
    CHECK(c.wrote(file));
  CHECK(c.result("y.oracle").type == ElementType::fp64);
  for (const char* key :
       {"max_abs", "max_rel", "max_ulp", "rms", "bound_ratio", "bound_kind", "holds"})
    CHECK(c.report()["dx"].contains(key));
  CHECK(c.json("environment.json")["data"].size() == 2);

  // Refused without --overwrite; with it only an earlier run's files go.
  const std::string out = c.folder.path("out");
  const Strings again{"op", "relu", "--in", "x=" + c.folder.path("x.npy"), "--out", out};
  const Result refused = test::run_program(again);
  CHECK(refused.status == cli::kUsage);
  CHECK(test::is_one_line_error(refused.err, "op"));
  CHECK(c.wrote("dx.npy"));
  c.folder.file("out/mine.txt", "kept");
  Strings replace = again;
  replace.push_back("--overwrite");
  CHECK(test::run_program(replace).status == cli::kDone);
  CHECK(!c.wrote("dx.npy"));
  CHECK(c.wrote("mine.txt"));
  // A result never replaces an input.
  const Result own = test::run_program(
      {"op", "unscale_clip", "--in", "g0=" + c.folder.path("x.npy"), "--out", out, "--overwrite"});
  CHECK(own.status == cli::kDone);
  const Result input = test::run_program(
      {"op", "unscale_clip", "--in", "g0=" + out + "/g0.npy", "--out", out, "--overwrite"});
  CHECK(input.status == cli::kUsage);
  CHECK(contains(input.err, "g0.npy"));
  CHECK(c.numbers("g0") == ramp(6));
  // Settings come from a file as well as from flags.
  c.folder.file("op.toml", "in = [\"x=" + c.folder.path("x.npy") + "\"]\ndtype = \"fp16\"\n");
  const Result configured = test::run_program(
      {"op", "relu", "--config", c.folder.path("op.toml"), "--out", c.folder.path("second")});
  CHECK(configured.status == cli::kDone);
  CHECK(read_npy(c.folder.path("second/y.npy")).type == ElementType::fp16);
}

// ---- bad input

TEST_CASE("wrong usage of op: status 2, one line, nothing written") {
  const auto bad = [](const std::string& operation, const Strings& more, const std::string& where,
                      const std::string& part) {
    Call c(operation);
    c.in("x", ramp(6), {2, 3}).with(more);
    CAPTURE(part);
    check_error(c, cli::kUsage, where, part);
  };
  bad("relux", {}, "op", "unknown operation 'relux'");
  bad("add", {}, "add", "takes no input 'x'");
  bad("conv2d", {}, "conv2d", "input w is missing");
  bad("relu", {"--param", "alpha=1"}, "relu", "unknown parameter 'alpha'");
  bad("softmax", {"--param", "axis=one"}, "softmax", "axis is 'one'; an integer expected");
  bad("softmax", {"--param", "axis"}, "op", "NAME=VALUE expected");
  bad("softmax", {"--param", "axis=0", "--param", "axis=1"}, "op", "axis twice");
  bad("sum", {"--param", "axis=0,,1"}, "sum", "axis is '0,,1'");
  bad("sum", {"--param", "keepdim=yes"}, "sum", "true or false expected");
  bad("max_pool2d", {"--param", "kernel=1,2,3"}, "max_pool2d", "vertical,horizontal");
  bad("conv2d", {"--param", "layout=chwn"}, "conv2d", "nhwc nchw");
  bad("dropout", {"--param", "seed=-1"}, "dropout", "not negative");
  bad("relu", {"--dtype", "fp8"}, "op", "--dtype is 'fp8'");
  bad("relu", {"--dtype", "int32"}, "op", "--dtype is 'int32'");
  bad("relu", {"--out-dtype", "x"}, "op", "--out-dtype is 'x'");
  bad("relu", {"--acc", "fp8"}, "op", "--acc is 'fp8'");
  bad("relu", {"--device", "tpu"}, "device", "tpu");
  bad("relu", {"--compare-acc", "h100"}, "op", "goes with --compare");
  bad("relu", {"--in", "y.npz"}, "op", "NAME=FILE.npy");
  bad("relu", {"--in", "x:fp8=/nowhere.npy"}, "op", "NAME:bf16=FILE.npy");
  bad("sum", {"--dtype", "bf16", "--acc", "v100"}, "op", "v100 takes fp16");
  Call c("relu");
  c.in("x", ramp(6), {2, 3}).compare("dx", array(ramp(6), {2, 3}));
  check_error(c, cli::kUsage, "op", "--compare dx: relu gives y; gradients with --grad");
  Call eval("batch_norm");
  eval.in("x", ramp(6), {2, 3}).param("training=false");
  check_error(eval, cli::kUsage, "batch_norm", "running_mean is missing");
  Call clip("unscale_clip");
  clip.in("g0", {1}, {1}).grad({1}, {1});
  check_error(clip, cli::kUsage, "unscale_clip", "no backward pass");
  Call wide("unscale_clip");
  wide.in("g0", {1}, {1}).with({"--out-dtype", "fp16"});
  check_error(wide, cli::kUsage, "unscale_clip", "gives fp32 ones");
}

TEST_CASE("bad arrays for op: status 3, one line, nothing written") {
  const auto bad = [](const std::string& operation, const Shape& shape, const Strings& more,
                      const std::string& where, const std::string& part) {
    Call c(operation);
    c.in("x", ramp(shape.numel()), shape).with(more);
    CAPTURE(part);
    check_error(c, cli::kFailed, where, part);
  };
  bad("softmax", {2, 3}, {"--param", "axis=2"}, "softmax", "axis");
  bad("sum", {2, 3}, {"--param", "axis=0,0"}, "sum", "");
  bad("max_pool2d", {2, 3}, {}, "pool2d", "[N, H, W, C] expected");
  bad("layer_norm", {2, 3}, {"--param", "axes=3"}, "layer_norm", "");
  bad("layer_norm", {2, 3}, {"--param", "axes=-1"}, "layer_norm", "");
  bad("batch_norm", {1, 3}, {}, "batch_norm", "");  // case 57
  bad("max", {0, 3}, {}, "max", "");
  bad("relu", {2, 3}, {"--grad", "/nowhere/dy.npy"}, "read", "/nowhere/dy.npy");
  Call grad("relu");
  grad.in("x", ramp(6), {2, 3}).grad(ramp(6), {3, 2});
  check_error(grad, cli::kFailed, "relu", "[3, 2]");
  Call shapes("matmul");
  shapes.in("a", ramp(6), {2, 3}).in("b", ramp(6), {2, 3});
  check_error(shapes, cli::kFailed, "matmul", "inner extents differ");
  Call rank("conv2d");
  rank.in("x", ramp(6), {1, 2, 3}).in("w", ramp(6), {1, 1, 2, 3}).param("layout=nchw");
  check_error(rank, cli::kFailed, "conv2d", "four axes expected");
  for (const double label : {3.0, -4.0}) {  // case 42
    Call labels("cross_entropy");
    labels.in("logits", ramp(6), {2, 3}).in("target", {0, label}, {2}, DType::i64);
    check_error(labels, cli::kFailed, "cross_entropy", "label");
  }
  for (const char* geometry : {"stride=0", "dilation=0", "padding=-1", "groups=2"}) {  // case 33
    Call conv("conv2d");
    conv.in("x", ramp(27), {1, 3, 3, 3}).in("w", ramp(27), {1, 3, 3, 3}).param(geometry);
    check_error(conv, cli::kFailed, "conv2d", "");
  }
  Call shape("relu");
  shape.in("x", ramp(6), {2, 3}).compare("y", array(ramp(6), {6}));
  check_error(shape, cli::kFailed, "op", "has shape [6], [2, 3] expected");
  Call type("relu");
  type.in("x", ramp(6), {2, 3}).compare("y", array(ramp(6), {2, 3}, DType::i64));
  check_error(type, cli::kFailed, "op", "holds int64");
  Call text("relu");
  text.folder.file("x.npy", "no array");
  text.with({"--in", "x=" + text.folder.path("x.npy")});
  check_error(text, cli::kFailed, "npy", "x.npy");
  Call safetensors("relu");
  safetensors.folder.file("x.safetensors", "no arrays at all");
  safetensors.with({"--in", safetensors.folder.path("x.safetensors")});
  check_error(safetensors, cli::kFailed, "safetensors", "x.safetensors");
}
