// The equivalence check: one case (verify/case.h) run forward and backward on a device, or by a
// person's own kernels, and every result compared with the fp64 oracle within its computed bound.
//
// Every array climbs the ladder (verify/ladder.h) as far as it goes: whole numbers must be
// bit-equal; random and adversarial operands stay within the hard bound, random ones also within
// the running bound where one exists; and results are bit-equal to a model on the host where there
// is one. Beside the values: sentinels around every buffer (verify/guard.h), outputs that start as
// NaN, operands that must not change, and the same bits under every schedule.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/target.h"
#include "ops/run.h"
#include "verify/case.h"
#include "verify/compare.h"
#include "verify/gradcheck.h"
#include "verify/ladder.h"
#include "verify/reference.h"

namespace roundoff {

// Where a gradient goes.
enum class GradientForm : unsigned char {
  leaf,         // fp32 (fp64 for fp64), overwritten
  activation,   // in the operands' dtype
  accumulated,  // fp32 (fp64), added to what is there
};
std::string_view name(GradientForm form);

// One run of what is checked. All tensors are on the cpu.
struct CallRequest {
  const Case& c;
  const OpParameters* parameters = nullptr;  // null for a reference of a person's own
  DType dtype = DType::fp32;
  NamedTensors inputs{};
  Tensor dy{};  // undefined: forward only
  GradientForm form = GradientForm::leaf;
  NamedTensors before{};  // accumulated: what each gradient holds
  std::uint64_t schedule = 0;
};

struct CallOutcome {
  // By the names of OpResult, on the cpu. Gradients widened from the dtype that `form` gives them.
  NamedTensors outputs, gradients;
  // Sentinels that were overwritten, operands that changed, what a sanitizer said.
  std::vector<std::string> faults;
};

// Throws Error where the run itself fails: that is a failure of the check, too.
using CallRunner = std::function<CallOutcome(const CallRequest&)>;

// What a call should give: a bound for each array ("y", "dx") of the pass.
using Expectation = std::function<NamedBounds(const CallRequest&, const JudgedArithmetic&, Pass)>;

struct CheckOptions {
  std::uint64_t seed = 1;
  Accumulator accumulator = Accumulator::fp32;
  // Of the device that runs the calls (device_tensor_core).
  std::optional<Accumulator> device_core{};
  // Seeds of the schedules that are tried; results must have the same bits under all of them.
  std::vector<std::uint64_t> schedules{0};
  std::vector<Fill> fills{std::begin(kFills), std::end(kFills)};
  // exp, log and the like are within so many ulp; by default 4 for operations that are such a
  // function, 2 for those that use one.
  double libm_ulps = 2;
  bool gradients = true;
  // Gradients have this form; otherwise the forms take turns.
  std::optional<GradientForm> form{};
  // In place of the oracle of the operation that the case names. All inputs are operands, or labels
  // where their domain says so, and y has their dtype.
  Expectation reference{};
};

struct CheckFailure {
  std::string array;  // "y", "dx"; empty where the run itself failed
  Rung rung = Rung::hard_bound;
  Fill fill = Fill::normal;
  std::uint64_t schedule = 0;
  double ratio = 0;  // error over bound
  std::string text;  // one line, without the operation's name
};

struct CheckReport {
  double ratio = 0;           // largest error over hard bound of the results
  double gradient_ratio = 0;  // of the gradients
  std::string gradients;      // "dx dw"
  unsigned rungs = 0;         // bit i: Rung i was climbed
  std::int64_t runs = 0;
  std::int64_t schedules = 0;  // that were tried
  std::vector<CheckFailure> failures;

  bool holds() const { return failures.empty(); }
  // "1 2 3": the rungs that were climbed, as numerics counts them.
  std::string rung_text() const;
};

// Adds what another run of the same case gave.
void merge_report(CheckReport& into, CheckReport&& from);

// All fills that the case takes. The first random fill runs under every schedule, each of the
// others under one of them, in turn.
CheckReport check_case(const Case& c, DType dtype, const CallRunner& runner,
                       const CheckOptions& options);
// One fill and gradient form.
CheckReport check_fill(const Case& c, DType dtype, Fill fill, GradientForm form,
                       const CallRunner& runner, const CheckOptions& options);

// A case and a dtype that follow from the seed alone, among these operations (all where none is
// named) and dtypes, for which the accumulator exists.
struct DrawnCase {
  Case c;
  DType dtype = DType::fp32;
};
DrawnCase draw_check(std::uint64_t seed, std::span<const std::string> operations,
                     std::span<const DType> dtypes, Accumulator accumulator,
                     Device device = Device::cpu);

// Whether the operation's arithmetic exists: a V100 multiplies no bf16, unscale_clip takes no fp64,
// and kernels model a GPU's tensor cores in products, not in sum and mean.
bool runs_in(std::string_view operation, DType dtype, Accumulator accumulator,
             Device device = Device::cpu);

struct RunnerOptions {
  Accumulator accumulator = Accumulator::fp32;
  // The instrumented kernels under the emulator's sanitizer; sim only.
  bool sanitize = false;
  // The instrumented kernels, counted by the emulator's profiler; sim only.
  bool profile = false;

  bool checked() const { return sanitize || profile; }
};
// Runs calls by name on a device. CallRequest::schedule is the number of a schedule of the emulator
// (simt::with_schedule), and means nothing on other devices. Throws where the device is absent.
CallRunner device_runner(Device device, const RunnerOptions& options = {});

// The case's gradients against central differences, in fp64 on the cpu.
GradcheckReport gradcheck_case(const Case& c, std::uint64_t seed);

}  // namespace roundoff
