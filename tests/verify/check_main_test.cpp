// A person's own kernels through check_main(): on the host, and CUDA kernels on the emulator.
#include "verify/check_main.h"

#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "kernels/base/convert.h"
#include "tests/verify/planted.h"

using namespace roundoff;

namespace {

struct Result {
  int status;
  std::string out, err;
};
Result run(const std::vector<std::string>& arguments, const std::vector<OwnKernel>& kernels) {
  std::ostringstream out, err;
  const int status = check_main(arguments, kernels, out, err);
  return {status, out.str(), err.str()};
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// y = a tanh(x) + 0.1, with a formula for a reference. `lost` elements at the end are not written.
OwnKernel scaled_tanh(std::int64_t lost = 0, std::int64_t over = 0) {
  OwnKernel k;
  k.name = "scaled_tanh";
  k.forward = host_launcher([=](const KernelCall& call) {
    const ConstView x = call.in("x");
    std::vector<float> v(static_cast<std::size_t>(x.numel()));
    widen(x, 0, x.numel(), v.data());
    const auto a = static_cast<float>(std::stod(call.text("a", "1")));
    for (float& value : v) value = a * std::tanh(value) + 0.1F;
    const View y = call.out("y").view;
    narrow(v.data(), x.numel() - lost, y, 0);
    if (over != 0)
      static_cast<char*>(y.data)[x.numel() * static_cast<std::int64_t>(size_of(y.dtype))] = 1;
  });
  k.backward = host_launcher([](const KernelCall& call) {
    const ConstView x = call.in("x"), dy = call.in("dy");
    std::vector<float> v(static_cast<std::size_t>(x.numel())), g(v.size());
    widen(x, 0, x.numel(), v.data());
    widen(dy, 0, x.numel(), g.data());
    const auto a = static_cast<float>(std::stod(call.text("a", "1")));
    for (std::size_t i = 0; i < v.size(); ++i) {
      const float t = std::tanh(v[i]);
      g[i] = a * g[i] * (1 - t * t);
    }
    narrow(g.data(), x.numel(), call.out("dx").view, 0);
  });
  k.reference = [](ReferenceCall& call) {
    const double a = std::stod(call.text("a", "1"));
    for (const Number& x : call.in("x")) call.out("y").push_back(a * tanh(x) + 0.1);
  };
  k.reference_backward = [](ReferenceCall& call) {
    const double a = std::stod(call.text("a", "1"));
    for (std::size_t i = 0; i < call.in("x").size(); ++i) {
      const Number t = tanh(call.in("x")[i]);
      call.out("dx").push_back(a * call.in("dy")[i] * (1 - t * t));
    }
  };
  k.cases = {{"", {{"a", "2"}}, {{"x", {33}}}, {33}}, {"", {}, {{"x", {2, 5}}}, {2, 5}}};
  return k;
}

OwnKernel device_softmax(Fault fault, const char* name = "my_softmax") {
  OwnKernel k;
  k.name = name;
  k.oracle = "softmax";
  k.forward = launcher([fault](auto target, const KernelCall& call) {
    planted_softmax(target, fault, call.in("x"), call.out("y"));
  });
  k.backward = launcher([fault](auto target, const KernelCall& call) {
    planted_softmax_backward(target, fault, call.in("y"), call.in("dy"), call.out("dx"));
  });
  k.takes = [](const Case& c) { return c.parameters.at("axis") == "-1" && c.y[-1] <= 257; };
  return k;
}

}  // namespace

TEST_CASE("check_main: a host kernel with a reference of its own") {
  const Result r = run({"check"}, {scaled_tanh()});
  CAPTURE(r.err);
  CHECK(r.status == 0);
  CHECK(contains(r.out, "scaled_tanh  fp32   x [33], a 2"));
  CHECK(contains(r.out, "dx"));
  CHECK(!contains(r.out, "BROKEN"));

  const Result list = run({"list"}, {scaled_tanh()});
  CHECK(list.status == 0);
  CHECK(contains(list.out, "its own reference"));
}

TEST_CASE("check_main: what is missing, wrong or beside the output is said") {
  const Result lost = run({"check", "--dtype", "fp32"}, {scaled_tanh(1)});
  CHECK(lost.status == 1);
  CHECK(contains(lost.err, "y[32] is nan"));
  CHECK(contains(lost.err, "never written"));
  const Result over = run({"check", "--dtype", "fp32"}, {scaled_tanh(0, 1)});
  CHECK(over.status == 1);
  CHECK(contains(over.err, "y (132 bytes"));
  CHECK(contains(over.err, "behind it were overwritten"));
  OwnKernel wrong = scaled_tanh();
  wrong.reference = [](ReferenceCall& call) {
    for (const Number& x : call.in("x")) call.out("y").push_back(tanh(x));
  };
  CHECK(run({"check"}, {wrong}).status == 1);
}

TEST_CASE("check_main: a CUDA kernel on the emulator against a named oracle") {
  const Result r = run({"check", "--schedules", "3"}, {device_softmax(Fault::none)});
  CAPTURE(r.err);
  CHECK(r.status == 0);
  CHECK(contains(r.out, "my_softmax  bf16   x [3, 257], axis -1"));
  CHECK(contains(r.out, "dx"));
  CHECK(contains(r.out, "3          holds"));

  const Result wrong =
      run({"check", "--dtype", "fp32"},
          {device_softmax(Fault::none), device_softmax(Fault::wrong_lane, "other")});
  CHECK(wrong.status == 1);
  CHECK(contains(wrong.err, "error: [other] fp32, x [3, 2], axis -1"));
  CHECK(contains(wrong.err, "again with: replay 0 other --dtype fp32 --seed 1"));
  CHECK(!contains(wrong.err, "[my_softmax]"));
  // One of two, and one schedule of it.
  CHECK(run({"check", "my_softmax", "--dtype", "fp32"},
            {device_softmax(Fault::none), device_softmax(Fault::wrong_lane, "other")})
            .status == 0);
}

#if defined(ROUNDOFF_HAS_CHECKED)
TEST_CASE("check_main: the sanitizer, a replayed schedule and the profile of the same kernel") {
  const std::vector<OwnKernel> kernels{device_softmax(Fault::none)};
  const Result sanitized =
      run({"check", "--sanitize", "--dtype", "fp16", "--schedules", "2"}, kernels);
  CAPTURE(sanitized.err);
  CHECK(sanitized.status == 0);
  const Result replayed = run({"replay", "5", "--dtype", "fp16"}, kernels);
  CHECK(replayed.status == 0);
  CHECK(contains(replayed.out, "1          holds"));
  const Result profiled = run({"profile", "--dtype", "fp32"}, kernels);
  CAPTURE(profiled.err);
  CHECK(profiled.status == 0);
  CHECK(contains(profiled.out, "planted_softmax"));
  CHECK(contains(profiled.out, "counted on sim"));
  CHECK(contains(profiled.out, "planted.cu"));
}
#endif

TEST_CASE("check_main: bench without a GPU says that there are no times") {
  const Result r =
      run({"bench", "--dtype", "fp32", "--device", "sim"}, {device_softmax(Fault::none)});
  CHECK(r.status == 0);
  CHECK(contains(r.out, "launches [counted]"));
  CHECK(!contains(r.out, "[measured]"));
}

TEST_CASE("check_main: json, wrong usage and kernels that say too little") {
  const Result json = run({"check", "--dtype", "fp32", "--json", "-"}, {scaled_tanh()});
  CHECK(json.status == 0);
  CHECK(json.out.front() == '[');
  CHECK(contains(json.out, "\"case\": \"x [33], a 2\", \"holds\": true"));
  const auto usage = [](const std::vector<std::string>& arguments, const std::string& part) {
    const Result r = run(arguments, {scaled_tanh()});
    CAPTURE(r.err);
    CHECK(r.status == 2);
    CHECK(contains(r.err, part));
  };
  usage({}, "no command");
  usage({"chekc"}, "unknown command 'chekc'");
  usage({"check", "--dtype", "fp8"}, "--dtype is 'fp8'");
  usage({"check", "--device", "tpu"}, "--device is 'tpu'");
  usage({"check", "--seed"}, "--seed takes a value");
  usage({"check", "--seed", "-1"}, "--seed is '-1'");
  usage({"check", "--fast"}, "unknown option --fast");
  usage({"check", "other"}, "unknown kernel 'other'; scaled_tanh expected");
  usage({"replay"}, "replay takes the number of a schedule");
  usage({"check", "--device", "sim"}, "is not built for sim");
  usage({"profile", "--device", "cuda"}, "profile counts on sim");
  CHECK(run({"--help"}, {}).status == 0);
  OwnKernel nothing;
  nothing.name = "nothing";
  CHECK(run({"check"}, {nothing}).status == 2);
  OwnKernel both = scaled_tanh();
  both.oracle = "tanh";
  CHECK(contains(run({"check"}, {both}).err, "either a named oracle or a reference"));
}
