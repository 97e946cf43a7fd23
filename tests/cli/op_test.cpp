// roundoff op from outside: judging a person's arrays, files in every form, every kind of bad
// input.
#include "tests/cli/op_call.h"

using namespace roundoff;
using namespace roundoff::test;

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
