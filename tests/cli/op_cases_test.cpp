// roundoff op from outside: public reports of this field as arrays in files.
#include "tests/cli/op_call.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr const char* kEach[] = {"fp32", "fp16"};

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
