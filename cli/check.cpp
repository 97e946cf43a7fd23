// roundoff check: every operation, forward and backward, on a device against the fp64 oracle within
// computed bounds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <set>

#include "cli/check_report.h"
#include "cli/command.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "cli/interrupt.h"
#include "cli/train_options.h"
#include "kernels/gemm/kernel.h"
#include "verify/cases.h"
#include "verify/chain.h"
#include "verify/check.h"

namespace roundoff::cli {

namespace {

struct Options {
  CommonOptions common;
  std::vector<std::string> operations;
  std::string device;
  std::vector<std::string> dtypes{"fp32", "fp16", "bf16"};
  std::string cases = "quick";
  std::string accumulator = "fp32";
  std::string kernel = "automatic";
  std::uint64_t seed = 1;
  std::int64_t schedules = 4;
  bool sanitize = false;
  bool replay_given = false;
  std::uint64_t replay = 0;
  bool long_run = false;
  std::int64_t seeds = 1000;
};

struct Request {
  std::vector<std::string> operations;  // all of them where none was named
  std::vector<Chain> chains;            // the same
  Device device = Device::cpu;
  std::vector<DType> dtypes;
  CaseSet set = CaseSet::quick;
  CheckOptions check;
};

DType parse_dtype_of(const std::string& text) {
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16, DType::fp64})
    if (name(dtype) == text) return dtype;
  throw UsageError(concat("[check] --dtype is '", text, "'; fp64, fp32, fp16 or bf16 expected"));
}

// sim where this build has it: its kernels are what is to be checked.
Device device_of(const Options& o, Console& console) {
  if (!o.device.empty()) return parse_device(o.device);
  for (const DeviceStatus& status : device_status())
    if (status.name == "sim" && status.available) return Device::sim;
  console.note("checking on cpu: sim is not in this build");
  return Device::cpu;
}

// Whether the operation has products whose kernel may be named.
bool names_kernel(const OpSignature& s) {
  return std::any_of(s.parameters.begin(), s.parameters.end(), [](const ParameterInfo& p) {
    return p.name == "kernel" && p.kind == ParameterKind::word;
  });
}

// Leaves in the request what --kernel is a choice for.
void read_kernel(const Options& o, Request& r) {
  const bool known = std::any_of(std::begin(kProductKernels), std::end(kProductKernels),
                                 [&](ProductKernel k) { return name(k) == o.kernel; });
  if (!known)
    throw UsageError(concat("[check] --kernel is '", o.kernel,
                            "'; naive, tiles, mma, sm80, wgmma, sm90 or ping_pong expected"));
  if (o.kernel == name(ProductKernel::automatic)) return;
  if (r.device == Device::cpu) throw UsageError("[check] --kernel: cpu has no kernels to choose");
  if (o.long_run) throw UsageError("[check] --kernel does not go with --long");
  if (!o.operations.empty() && !r.chains.empty())
    throw UsageError(concat("[check] --kernel is for matmul, linear and conv2d, not for the chain ",
                            r.chains.front().name));
  r.chains.clear();
  std::vector<std::string> with;
  for (const std::string& operation : r.operations) {
    if (names_kernel(op_signature(operation)))
      with.push_back(operation);
    else if (!o.operations.empty())
      throw UsageError(
          concat("[check] --kernel is for matmul, linear and conv2d, not for ", operation));
  }
  r.operations = std::move(with);
}

// The reason why the named kernel did not take the case's products; empty where something else
// failed, or nothing.
std::string refusal_of(const CheckReport& report) {
  constexpr std::string_view kRefused = " does not take this product: ";
  std::string reason;
  for (const CheckFailure& f : report.failures) {
    const std::size_t at = f.text.find(kRefused);
    if (at == std::string::npos) return {};
    reason = f.text.substr(at + kRefused.size());
  }
  return reason;
}

Request read_request(const Options& o, Console& console) {
  Request r;
  std::vector<Chain> chains = list_chains();
  for (const std::string& operation : o.operations) {
    const auto chain = std::find_if(chains.begin(), chains.end(),
                                    [&](const Chain& c) { return c.name == operation; });
    if (chain != chains.end() && !o.long_run) {
      r.chains.push_back(*chain);
      continue;
    }
    (void)op_signature(operation);
    if (std::find(r.operations.begin(), r.operations.end(), operation) == r.operations.end())
      r.operations.push_back(operation);
  }
  if (o.operations.empty()) {
    for (const OpSignature& s : op_signatures()) r.operations.emplace_back(s.name);
    r.chains = std::move(chains);
  }
  for (const std::string& text : o.dtypes) r.dtypes.push_back(parse_dtype_of(text));
  if (o.cases != "quick" && o.cases != "full")
    throw UsageError(concat("[check] --cases is '", o.cases, "'; quick or full expected"));
  r.set = o.cases == "full" ? CaseSet::full : CaseSet::quick;
  r.check.accumulator = parse_accumulator("check", "--acc", o.accumulator);
  if (o.schedules < 1)
    throw UsageError(concat("[check] --schedules is ", o.schedules, "; at least 1 expected"));
  if (o.seeds < 1)
    throw UsageError(concat("[check] --seeds is ", o.seeds, "; at least 1 expected"));
  r.device = device_of(o, console);
  read_kernel(o, r);
  if (o.sanitize && r.device != Device::sim)
    throw UsageError("[check] --sanitize sees kernels on --device sim only");
  r.check.seed = o.seed;
  r.check.device_core = device_tensor_core(r.device);
  // The reference's exp and log are the C library's, or as good.
  r.check.libm_ulps = r.device == Device::cpu ? 1 : 2;
  if (!o.long_run) {
    r.check.schedules.clear();
    // Only the emulator has schedules.
    const std::int64_t n = r.device == Device::sim && !o.replay_given ? o.schedules : 1;
    for (std::int64_t k = 0; k < n; ++k)
      r.check.schedules.push_back(o.replay_given ? o.replay : static_cast<std::uint64_t>(k));
  }
  return r;
}

// What to type to see a failure again.
std::string again(const Options& o, const Request& r, const std::string& operation, DType dtype,
                  std::uint64_t replay) {
  std::string text = concat("roundoff check ", operation);
  const char* const devices[] = {"cpu", "sim", "cuda"};
  text += concat(" --device ", devices[static_cast<int>(r.device)], " --dtype ", name(dtype));
  if (o.accumulator != "fp32") text += concat(" --acc ", o.accumulator);
  if (o.kernel != "automatic") text += concat(" --kernel ", o.kernel);
  if (o.sanitize) text += " --sanitize";
  if (o.long_run) return concat(text, " --long --seed ", replay, " --seeds 1");
  if (r.set == CaseSet::full) text += " --cases full";
  if (o.seed != 1) text += concat(" --seed ", o.seed);
  return r.device == Device::sim ? concat(text, " --replay ", replay) : text;
}

// Says what failed: the first failure of a case, which the others mostly follow from.
void tell(const Options& o, const Request& r, const Case& c, DType dtype, const CheckReport& report,
          std::uint64_t replay, Console& console) {
  const CheckFailure& f = report.failures.front();
  std::string more;
  if (report.failures.size() > 1) more = concat(" (and ", report.failures.size() - 1, " more)");
  console.error(concat("[", c.operation, "] ", name(dtype), ", ", c.text(), ", ", name(f.fill),
                       " operands, schedule ", f.schedule, ": ", f.text, more,
                       "; again with: ", again(o, r, c.operation, dtype, replay)));
}

int run_cases(const Options& o, const Request& r, const CallRunner& runner, Console& console) {
  struct Job {
    Case c;
    DType dtype;
  };
  std::vector<Job> jobs;
  std::set<std::string> left_out;
  for (const std::string& operation : r.operations)
    for (Case& c : list_cases(r.set, operation)) {
      if (o.kernel != "automatic") c.parameters["kernel"] = o.kernel;
      for (const DType dtype : r.dtypes)
        if (runs_in(operation, dtype, r.check.accumulator, r.device))
          jobs.push_back({c, dtype});
        else
          left_out.insert(concat(operation, " in ", name(dtype)));
    }
  std::set<std::string> refused;

  Table table = case_table(r.device);
  std::int64_t runs = 0, broken = 0, done = 0;
  {
    ProgressBar bar(console.err(), console.progress_terminal(), "check",
                    static_cast<std::int64_t>(jobs.size() + r.chains.size()), "cases");
    for (const Job& job : jobs) {
      const CheckReport report = check_case(job.c, job.dtype, runner, r.check);
      if (const std::string reason = refusal_of(report); !reason.empty()) {
        refused.insert(concat(job.c.operation, " in ", name(job.dtype), ": ", reason));
        bar.update(++done, job.c.operation);
        continue;
      }
      add_case(table, job.c, job.dtype, report);
      runs += report.runs;
      if (!report.holds()) {
        ++broken;
        bar.clear();
        tell(o, r, job.c, job.dtype, report, report.failures.front().schedule, console);
      }
      bar.update(++done, job.c.operation);
    }
    for (const Chain& chain : r.chains) {
      for (const DType dtype : r.dtypes) {
        if (!runs_in("matmul", dtype, r.check.accumulator)) continue;
        CheckReport report;
        for (const std::uint64_t schedule : r.check.schedules)
          merge_report(report,
                       check_chain(chain, dtype, r.device,
                                   {.accumulator = r.check.accumulator, .sanitize = o.sanitize},
                                   r.check.seed, schedule));
        add_chain(table, chain, dtype, report);
        runs += report.runs;
        if (report.holds()) continue;
        ++broken;
        bar.clear();
        const CheckFailure& f = report.failures.front();
        console.error(concat("[", chain.name, "] ", name(dtype), ", schedule ", f.schedule, ": ",
                             f.text, "; again with: ", again(o, r, chain.name, dtype, f.schedule)));
      }
      bar.update(++done, chain.name);
    }
  }
  add_case_notes(table, r.device, static_cast<std::int64_t>(r.check.schedules.size()), o.sanitize);
  for (const std::string& what : left_out)
    table.add_note(concat("not checked, it does not exist with --acc ", o.accumulator, ": ", what));
  for (const std::string& what : refused)
    table.add_note(concat("cases not taken by kernel ", o.kernel, ", of ", what));
  console.emit(table, o.common);
  if (runs == 0) {
    console.error(
        refused.empty()
            ? std::string("nothing was checked: none of these operations exists in these types "
                          "with this accumulator on this device")
            : concat("nothing was checked: kernel ", o.kernel, " takes none of these cases"));
    return kAbsent;
  }
  console.note(concat(table.rows().size(), " cases, ", runs, " runs, ", broken,
                      broken == 0 ? " broken: every bound holds" : " broken"));
  return broken == 0 ? kDone : kNotHeld;
}

int run_long(const Options& o, const Request& r, const CallRunner& runner, Console& console) {
  std::map<std::string, LongRow> rows;
  std::int64_t failures = 0, done = 0;
  const GracefulInterrupt interrupt;
  {
    ProgressBar bar(console.err(), console.progress_terminal(), "check", o.seeds, "seeds");
    for (; done < o.seeds && !interrupt.requested(); ++done) {
      const std::uint64_t seed = o.seed + static_cast<std::uint64_t>(done);
      // Everything about the run follows from its seed.
      const DrawnCase drawn =
          draw_check(seed, r.operations, r.dtypes, r.check.accumulator, r.device);
      const Case& c = drawn.c;
      CheckOptions options = r.check;
      options.seed = seed;
      options.schedules = {seed};
      const CheckReport report = check_case(c, drawn.dtype, runner, options);
      LongRow& row = rows[c.operation];
      ++row.draws;
      row.runs += report.runs;
      row.ratio = std::max(row.ratio, report.ratio);
      row.gradient_ratio = std::max(row.gradient_ratio, report.gradient_ratio);
      if (!report.holds()) {
        ++row.failures;
        ++failures;
        bar.clear();
        tell(o, r, c, drawn.dtype, report, seed, console);
      }
      bar.update(done + 1, c.operation);
    }
  }
  if (done == 0) throw Interrupted("[check] interrupted before the first seed was done");
  Table table = long_table(rows, r.device);
  table.add_note(long_statement(failures, done, r.device));
  console.emit(table, o.common);
  if (done < o.seeds) throw Interrupted(concat("[check] interrupted after ", done, " seeds"));
  return failures == 0 ? kDone : kNotHeld;
}

int run(Options& o, Console& console) {
  console.check(o.common);
  const Request r = read_request(o, console);
  const CallRunner runner =
      device_runner(r.device, {.accumulator = r.check.accumulator, .sanitize = o.sanitize});
  return o.long_run ? run_long(o, r, runner, console) : run_cases(o, r, runner, console);
}

}  // namespace

Command add_check(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "check", "Check every operation on a device against the oracle, within computed bounds");
  auto o = std::make_shared<Options>();
  command->add_option("OP", o->operations,
                      "Only these operations, or the chains mlp, conv and attention");
  command->add_option("--device", o->device, "sim, cuda or cpu; by default sim");
  command->add_option("--dtype", o->dtypes, "Dtypes of the operands: fp32, fp16, bf16, fp64")
      ->delimiter(',')
      ->default_str("fp32,fp16,bf16");
  command->add_option("--cases", o->cases, "quick or full")->capture_default_str();
  command
      ->add_option("--acc", o->accumulator,
                   "Accumulator of products and sums: fp32, fp64, fp16, v100, a100, h100")
      ->capture_default_str();
  command
      ->add_option("--kernel", o->kernel,
                   "Of the products of matmul, linear and conv2d on a device: naive, tiles, mma, "
                   "sm80, wgmma, sm90 or ping_pong; cases that it does not take are listed")
      ->capture_default_str();
  command->add_option("--seed", o->seed, "Of the operands")->capture_default_str();
  command
      ->add_option("--schedules", o->schedules,
                   "Schedules of the emulator that each case is tried under")
      ->capture_default_str();
  command->add_flag("--sanitize", o->sanitize,
                    "Run the instrumented kernels under the emulator's sanitizer");
  CLI::Option* replay =
      command->add_option("--replay", o->replay, "Only the schedule of this number");
  command->add_flag("--long", o->long_run,
                    "Draw one operation, dtype and shape a seed, for --seeds seeds");
  command->add_option("--seeds", o->seeds, "With --long: how many, from --seed on")
      ->capture_default_str();
  add_common_options(*command, o->common, true);
  add_examples(
      *command,
      {"roundoff check", "roundoff check softmax matmul --dtype fp16 --cases full",
       "roundoff check conv2d --replay 3 --sanitize", "roundoff check --long --seeds 1000"});
  return {command, [o, replay](Console& console) {
            console.set_quiet(o->common.quiet);
            o->replay_given = replay->count() != 0;
            if (o->replay_given && o->long_run)
              throw UsageError(
                  "[check] --replay does not go with --long: repeat one of its seeds "
                  "with --seed N --seeds 1");
            return run(*o, console);
          }};
}

}  // namespace roundoff::cli
