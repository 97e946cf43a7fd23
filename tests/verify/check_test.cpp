// The equivalence check: right operations pass it, in every dtype; what it says of wrong ones.
#include "verify/check.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "ops/list.h"
#include "verify/cases.h"
#include "verify/guard.h"
#include "verify/ladder.h"

using namespace roundoff;

namespace {

constexpr DType kDTypes[] = {DType::fp32, DType::fp16, DType::bf16, DType::fp64};

std::string joined(const CheckReport& r) {
  std::string text;
  for (const CheckFailure& f : r.failures) text += concat("\n  ", name(f.fill), ": ", f.text);
  return text;
}

// Spoils one value of one array after a right run.
CallRunner spoilt(const std::string& array, const std::function<void(Tensor&)>& spoil) {
  return [=, right = device_runner(Device::cpu)](const CallRequest& request) {
    CallOutcome outcome = right(request);
    for (NamedTensors* set : {&outcome.outputs, &outcome.gradients})
      if (const auto found = set->find(array); found != set->end()) spoil(found->second);
    return outcome;
  };
}

const Case& small_softmax() {
  static const Case kCase = [] {
    for (const Case& c : list_cases(CaseSet::quick, "softmax"))
      if (c.y == Shape{3, 33}) return c;
    return Case{};
  }();
  return kCase;
}

}  // namespace

TEST_CASE("the cpu passes every quick case in every dtype") {
  for (const DType dtype : kDTypes)
    for (const Case& c : list_cases(CaseSet::quick)) {
      if (!runs_in(c.operation, dtype, Accumulator::fp32)) continue;
      CheckOptions options;
      options.libm_ulps = 1;
      const CheckReport r = check_case(c, dtype, device_runner(Device::cpu), options);
      INFO(c.operation, ", ", name(dtype), ", ", c.text(), joined(r));
      CHECK(r.holds());
      CHECK(r.ratio <= 1);
      CHECK(r.gradient_ratio <= 1);
      CHECK(r.runs >= 5);
    }
}

TEST_CASE("the cpu passes with modelled accumulators, and is bit-equal to the model") {
  for (const Accumulator accumulator :
       {Accumulator::fp16, Accumulator::v100, Accumulator::a100, Accumulator::h100})
    for (const DType dtype : {DType::fp16, DType::bf16})
      for (const char* operation : {"matmul", "linear", "conv2d", "sum"})
        for (const Case& c : list_cases(CaseSet::quick, operation)) {
          if (!runs_in(operation, dtype, accumulator)) continue;
          CheckOptions options;
          options.accumulator = accumulator;
          options.libm_ulps = 1;
          const CheckReport r = check_case(
              c, dtype, device_runner(Device::cpu, {.accumulator = accumulator}), options);
          INFO(c.operation, ", ", name(dtype), ", ", std::string(name(accumulator)), ", ", c.text(),
               joined(r));
          CHECK(r.holds());
          if (c.text() == "a [17, 31], b [31, 23]") CHECK((r.rungs >> 3 & 1U) == 1);
        }
}

TEST_CASE("full: the kernels on the emulator pass the full set" * doctest::test_suite("full")) {
  const CallRunner runner = device_runner(Device::sim);
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
    for (const Case& c : list_cases(CaseSet::full)) {
      if (!runs_in(c.operation, dtype, Accumulator::fp32, Device::sim)) continue;
      CheckOptions options;
      options.schedules = {0, 1, 2, 3};
      const CheckReport r = check_case(c, dtype, runner, options);
      INFO(c.operation, ", ", std::string(name(dtype)), ", ", c.text(), joined(r));
      CHECK(r.holds());
    }
}

TEST_CASE("full: the cpu passes the full set" * doctest::test_suite("full")) {
  for (const DType dtype : {DType::fp32, DType::fp16})
    for (const Case& c : list_cases(CaseSet::full)) {
      if (!runs_in(c.operation, dtype, Accumulator::fp32)) continue;
      CheckOptions options;
      options.seed = 2;
      options.libm_ulps = 1;
      const CheckReport r = check_case(c, dtype, device_runner(Device::cpu), options);
      INFO(c.operation, ", ", name(dtype), ", ", c.text(), joined(r));
      CHECK(r.holds());
    }
}

TEST_CASE("cases: every operation has some, shapes are right, and the same draw is the same case") {
  std::set<std::string> listed;
  for (const Case& c : list_cases(CaseSet::quick)) {
    listed.insert(c.operation);
    CHECK(c.min_bytes(DType::fp32) >= 4 * static_cast<double>(c.y.numel()));
    CHECK(c.flops >= 0);
  }
  for (const OpSignature& s : op_signatures()) {
    CAPTURE(s.name);
    CHECK(listed.count(std::string(s.name)) == 1);
    CaseDraw first(7, 3), second(7, 3);
    for (int i = 0; i < 20; ++i) {
      const Case a = draw_case(s.name, first), b = draw_case(s.name, second);
      CHECK(a.operation == s.name);
      CHECK(a.text() == b.text());
    }
  }
  for (const OpInfo& op : kOps) CHECK(listed.count(std::string(op.name)) == 1);
  CHECK(list_cases(CaseSet::full).size() > list_cases(CaseSet::quick).size());
  CaseDraw draw(1);
  CHECK_THROWS_AS(draw_case("nothing", draw), Error);
}

TEST_CASE("gradients of the small cases agree with central differences") {
  std::set<std::string> tried;
  for (const Case& c : list_cases(CaseSet::quick)) {
    std::int64_t elements = c.y.numel();
    for (const CaseInput& i : c.inputs) elements += i.shape.numel();
    if (elements > 120 || op_signature(c.operation).numbered()) continue;
    const GradcheckReport r = gradcheck_case(c, 3);
    INFO(c.operation, ", ", c.text(), ": ", r.worst);
    CHECK(r.holds());
    tried.insert(c.operation);
  }
  CHECK(tried.size() == op_signatures().size() - 1);  // all but unscale_clip
}

TEST_CASE("fills: in range, of the format, and the same for the same seed") {
  const CaseInput real{"x", {40, 25}}, positive{"x", {1000}, Domain::positive},
      share{"x", {1000}, Domain::share}, label{"t", {1000}, Domain::label, 7};
  for (const DType dtype : kDTypes)
    for (const Fill fill : kFills) {
      if (dtype == DType::fp64 && (fill == Fill::subnormal || fill == Fill::huge)) continue;
      RandomStream a(5, RandomUse::checks, 1), b(5, RandomUse::checks, 1);
      const auto values = fill_values(real, fill, dtype, 9, a);
      const auto again = fill_values(real, fill, dtype, 9, b);
      const Format format = format_of(dtype);
      CAPTURE(name(fill));
      CAPTURE(name(dtype));
      bool same = true, of_format = true, finite = true, whole = true;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double v = values[i];
        same = same && (v == again[i] || (std::isnan(v) && std::isnan(again[i])));
        of_format = of_format && (std::isnan(v) || round_to_format(v, format).value == v);
        finite = finite && std::isfinite(v);
        whole = whole && v == std::round(v) && v != 0 && std::abs(v) <= 9;
      }
      CHECK(same);
      CHECK(of_format);
      CHECK(finite == is_finite(fill));
      CHECK((fill != Fill::integers || whole));
      if (!is_finite(fill)) continue;
      RandomStream c(6, RandomUse::checks, 1);
      for (const double v : fill_values(positive, fill, dtype, 9, c)) REQUIRE(v > 0);
      for (const double v : fill_values(share, fill, dtype, 9, c)) REQUIRE((v >= 0 && v <= 1));
    }
  RandomStream d(7, RandomUse::checks, 1);
  int ignored = 0;
  for (const double v : fill_values(label, Fill::normal, DType::fp16, 9, d)) {
    REQUIRE((v == -100 || (v >= 0 && v < 7 && v == std::round(v))));
    ignored += v == -100 ? 1 : 0;
  }
  CHECK(ignored > 60);
  CHECK(ignored < 200);
}

TEST_CASE("a wrong element is named, with its error, its bound and what came before it") {
  CheckOptions options;
  options.fills = {Fill::normal};
  const auto add = [](double error) {
    return [error](Tensor& t) { t.data<float>()[33 + 2] += static_cast<float>(error); };
  };
  const CheckReport r = check_case(small_softmax(), DType::fp32, spoilt("y", add(0.25)), options);
  REQUIRE(r.failures.size() == 1);
  const CheckFailure& f = r.failures[0];
  CHECK(f.array == "y");
  CHECK(f.rung == Rung::hard_bound);
  CHECK(f.ratio > 1000);
  CAPTURE(f.text);
  CHECK(f.text.find("y[1,2] is 0.") == 0);
  CHECK(f.text.find("off by 0.25") != std::string::npos);
  CHECK(f.text.find("times the bound (hard bound, derived); 1 of 99 elements are outside") !=
        std::string::npos);

  const CheckReport g = check_case(small_softmax(), DType::fp32, spoilt("dx", add(1)), options);
  REQUIRE(g.failures.size() == 1);
  CHECK(g.failures[0].array == "dx");
  CHECK(g.gradient_ratio > 1);
  CHECK(g.ratio <= 1);
}

TEST_CASE("an element that nothing writes, and a NaN, are told apart") {
  CheckOptions options;
  options.fills = {Fill::normal};
  const auto with = [&](unsigned bits) {
    const CheckReport r = check_case(
        small_softmax(), DType::fp32,
        spoilt("y", [=](Tensor& t) { std::memcpy(t.data<float>() + 5, &bits, sizeof bits); }),
        options);
    REQUIRE(r.failures.size() == 1);
    return r.failures[0].text;
  };
  CHECK(with(0xFFFFFFFF).find("never written") != std::string::npos);
  CHECK(with(0x7FC00000).find("never written") == std::string::npos);
}

TEST_CASE("whole numbers are bit-equal or wrong; results that change with the schedule are wrong") {
  std::vector<Case> sums = list_cases(CaseSet::quick, "sum");
  const Case& c = sums[3];  // 257 values
  CheckOptions options;
  options.fills = {Fill::integers};
  const CheckReport r = check_case(
      c, DType::fp32,
      spoilt("y",
             [](Tensor& t) { t.data<float>()[0] = std::nextafter(t.data<float>()[0], HUGE_VALF); }),
      options);
  REQUIRE(r.failures.size() == 1);
  CHECK(r.failures[0].rung == Rung::integers);

  options.fills = {Fill::normal};
  options.schedules = {4, 9};
  const CallRunner right = device_runner(Device::cpu);
  const CallRunner scheduled = [&](const CallRequest& request) {
    CallOutcome outcome = right(request);
    if (request.schedule == 9)
      outcome.outputs["y"].data<float>()[0] =
          std::nextafter(outcome.outputs["y"].data<float>()[0], 0.0F);
    return outcome;
  };
  const CheckReport s = check_case(c, DType::fp32, scheduled, options);
  REQUIRE(s.failures.size() == 1);
  CHECK(s.failures[0].schedule == 9);
  CHECK(s.failures[0].text == "y has other bits than under schedule 4");
  CHECK(s.schedules == 2);
}

TEST_CASE("a run that throws is a failure that says so") {
  CheckOptions options;
  options.fills = {Fill::normal};
  const CheckReport r = check_case(
      small_softmax(), DType::fp32,
      [](const CallRequest&) -> CallOutcome { fail("softmax", "warp 3 waits for ever"); }, options);
  REQUIRE(r.failures.size() == 1);
  CHECK(r.failures[0].text == "[softmax] warp 3 waits for ever");
}

TEST_CASE("sentinels: writes before and behind a buffer are found, told once, and named") {
  MemoryGuard guard(host_memory());  // outlives the blocks
  Allocator allocator;
  allocator.observe(&guard);
  allocator.set_node("softmax");
  {
    const Tensor y = Tensor::empty(allocator, {3}, DType::fp32);
    // Poisoned, and NaN as it is.
    CHECK(std::isnan(y.at(0)));
    guard.name_buffer(y.raw(), "y");
    y.data<float>()[2] = 1;
    CHECK(guard.overruns().empty());
    y.data<float>()[3] = 1;   // one beyond
    y.data<float>()[-2] = 1;  // two before
    const std::vector<std::string> lines = guard.overruns();
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].find("y (12 bytes") == 0);
    CHECK(lines[0].find("made in softmax") != std::string::npos);
    CAPTURE(lines[0]);
    CHECK(lines[0].find("before it were overwritten, from 5 bytes before its start on") !=
          std::string::npos);
    CHECK(lines[1].find("behind it were overwritten, from 0 bytes after its end on") !=
          std::string::npos);
    CHECK(guard.overruns().empty());
    y.data<std::byte>()[12 + 63] = std::byte{0};
  }
  // Found when the buffer was given back.
  const std::vector<std::string> lines = guard.overruns();
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("1 bytes behind it were overwritten, from 63 bytes after") !=
        std::string::npos);
}

TEST_CASE("sentinels: a copy that runs from one buffer's into another's is found") {
  MemoryGuard guard(host_memory());
  Allocator allocator;
  allocator.observe(&guard);
  const Storage x = allocator.allocate(132, MemoryCategory::workspace);
  const Storage y = allocator.allocate(132, MemoryCategory::workspace);
  CHECK(guard.overruns().empty());
  std::memcpy(y.data(), x.data(), 136);
  CHECK(guard.overruns().size() == 1);
}

TEST_CASE("an operand that changes is a fault") {
  CheckOptions options;
  options.fills = {Fill::normal};
  const Case c = list_cases(CaseSet::quick, "relu")[1];
  const CallRunner right = device_runner(Device::cpu);
  const CheckReport r = check_case(c, DType::fp32, right, options);
  CHECK(r.holds());
  CHECK(r.gradients == "dx");
  CHECK(r.rung_text().find('4') != std::string::npos);  // nothing is rounded
}
