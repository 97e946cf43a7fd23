// roundoff bench: kernels counted on the emulator, timed on a GPU, or the reference path timed on
// the processor; always verified first.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "bench/predict.h"
#include "bench/run.h"
#include "bench/steps.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "engine/io/file.h"
#include "kernels/simt/cuda_support.h"

namespace roundoff::cli {

namespace {

namespace fs = std::filesystem;
using bench::Problem;
using bench::Report;

struct Options {
  CommonOptions common;
  std::vector<std::string> operations;
  std::vector<std::string> dtypes{"bf16"};
  std::string out_dtype;
  std::vector<std::string> layouts{"nn"};
  std::vector<std::string> sizes;
  std::vector<std::string> convolutions;
  std::string pass = "forward";
  std::string device;
  std::string architecture = "sm_90a";
  std::string kernel;
  bool rungs = false;
  bool baseline = false;
  bool list = false;
  std::uint64_t seed = 1;
  std::uint64_t sample = 0;
  std::string roofline;
  std::string out;
  bool overwrite = false;
};

DType parse_floating_dtype(const char* flag, const std::string& text) {
  for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32, DType::fp64})
    if (name(dtype) == text) return dtype;
  throw UsageError(concat("[bench] ", flag, " is '", text, "'; bf16, fp16, fp32 or fp64 expected"));
}

int parse_capability(const std::string& text) {
  if (text == "sm_80") return 80;
  if (text == "sm_90a" || text == "sm_90") return 90;
  throw UsageError(concat("[bench] --arch is '", text, "'; sm_80 or sm_90a expected"));
}

// A GPU where there is one, else the emulator, else the processor.
Device device_of(const Options& o, Console& console) {
  if (!o.device.empty()) return parse_device(o.device);
  Device best = Device::cpu;
  std::string why;
  for (const DeviceStatus& status : device_status()) {
    if (status.name == "cuda" && status.available) return Device::cuda;
    if (status.name == "cuda") why = status.detail;
    if (status.name == "sim" && status.available) best = Device::sim;
  }
  console.note(concat(best == Device::sim ? "counting on sim, for there is no GPU: "
                                          : "timing the reference path: no sim, and no GPU: ",
                      why));
  return best;
}

struct Request {
  Device device = Device::sim;
  std::vector<Problem> problems;
  std::vector<bench::StepProblem> steps;
  bench::RunSettings settings;
  bench::SimSettings sim;
};

Request read_request(const Options& o, Console& console) {
  Request r;
  bench::ProblemRequest asked;
  for (const std::string& text : o.dtypes)
    asked.dtypes.push_back(parse_floating_dtype("--dtype", text));
  asked.dtypes.erase(asked.dtypes.begin());  // the request's own
  if (!o.out_dtype.empty()) asked.out_dtype = parse_floating_dtype("--out-dtype", o.out_dtype);
  asked.layouts = o.layouts;
  asked.sizes = o.sizes;
  asked.convolutions = o.convolutions;
  asked.pass = bench::parse_pass(o.pass);
  bool conv = false, step = false;
  for (const std::string& operation : o.operations) {
    conv = conv || operation == "conv2d";
    if (operation == "step")
      step = true;
    else
      asked.operations.push_back(operation);
  }
  if (o.operations.empty()) {
    for (const char* usual : {"matmul", "conv2d", "softmax", "cross_entropy", "layer_norm"})
      asked.operations.emplace_back(usual);
    conv = true;
  }
  if (!o.convolutions.empty() && !conv)
    throw UsageError("[bench] --conv is of conv2d, which is not among the operations");
  if (o.rungs && !o.kernel.empty())
    throw UsageError("[bench] --rungs and --kernel do not go together");
  if (!o.kernel.empty())
    r.settings.kernel = typed([&] { return parse_product_kernel("bench", o.kernel); });
  r.settings.rungs = o.rungs || (o.list && o.kernel.empty());
  r.settings.baseline = o.baseline;
  r.settings.seed = o.seed;
  r.sim.capability = parse_capability(o.architecture);
  r.sim.sample = static_cast<std::size_t>(o.sample);
  r.problems = bench::make_problems(asked);
  if (step) r.steps = bench::step_problems(asked.dtypes);
  const bool products = std::any_of(r.problems.begin(), r.problems.end(),
                                    [](const Problem& p) { return p.is_product(); });
  if ((o.rungs || !o.kernel.empty()) && !products)
    throw UsageError("[bench] --rungs and --kernel are of matmul, linear and conv2d");
  if (o.list) return r;
  r.device = device_of(o, console);
  if (r.device == Device::cpu && (o.rungs || !o.kernel.empty()))
    throw UsageError("[bench] --device cpu has one way to compute, and no kernels to choose from");
  if (o.baseline && r.device != Device::cuda)
    throw UsageError(
        "[bench] --baseline is measured, on --device cuda; nothing else is compared with a "
        "vendor's library");
  return r;
}

// What there is, without a word of any problem.
Table operations_table() {
  Table table("bench: operations", {{"operation"}, {"size"}, {"usual"}});
  for (const bench::OperationInfo& o : bench::operations())
    table.add_row({std::string(o.name), std::string(o.size), std::string(o.usual)});
  table.add_row({std::string("step"), std::string("-"), std::string("tiny-mlp and convnet")});
  std::string kernels;
  for (const ProductKernel k : kProductKernels)
    kernels += concat(kernels.empty() ? "" : ", ", name(k));
  table.add_note(concat("kernels of matmul, linear and conv2d (--kernel, --rungs): ", kernels));
  table.add_note(
      "what each of them takes: name operations, as in bench matmul --size 33x5x7 --list");
  return table;
}

// Which kernel takes which of the problems.
Table kernels_table(const Request& r) {
  Table table("bench: kernels",
              {{"operation"}, {"pass"}, {"problem"}, {"dtype"}, {"kernel"}, {"takes it"}});
  for (const Problem& p : r.problems)
    for (const ProductKernel k : r.settings.kernels(p)) {
      const std::string why = bench::refusal(p, k, r.sim.capability);
      table.add_row({p.operation(), std::string(name(p.pass)), p.text(), std::string(name(p.dtype)),
                     p.is_product() ? Cell(std::string(name(k))) : Cell(),
                     why.empty() ? std::string("yes") : concat("no: ", why)});
    }
  return table;
}

void append(Report& to, Report&& from) {
  for (bench::Row& row : from.rows) to.rows.push_back(std::move(row));
  for (std::string& note : from.notes)
    if (std::find(to.notes.begin(), to.notes.end(), note) == to.notes.end())
      to.notes.push_back(std::move(note));
}

Report run_problems(const Request& r) {
  if (r.device == Device::cpu) return bench::run_on_cpu(r.problems, r.settings);
  if (r.device == Device::sim) return bench::run_on_sim(r.problems, r.settings, r.sim);
#if defined(ROUNDOFF_BENCH_CUDA)
  return bench::run_on_cuda(r.problems, r.settings);
#else
  throw AbsentError("[bench] this build has no benchmarks for cuda");
#endif
}

Report run_steps(const Request& r) {
  if (r.device == Device::cpu) return bench::run_steps_on_cpu(r.steps, r.settings);
  if (r.device == Device::sim) return bench::run_steps_on_sim(r.steps, r.settings, r.sim);
#if defined(ROUNDOFF_BENCH_CUDA)
  return bench::run_steps_on_cuda(r.steps, r.settings);
#else
  throw AbsentError("[bench] this build has no benchmarks for cuda");
#endif
}

std::string title_of(const Request& r) {
  constexpr const char* kNames[] = {"cpu", "sim", "cuda"};
  std::string title = concat("bench on ", kNames[static_cast<int>(r.device)]);
  if (r.device == Device::sim) title += r.sim.capability == 80 ? ", sm_80" : ", sm_90a";
  return title;
}

bool can_draw(const Report& report) {
  return std::any_of(report.rows.begin(), report.rows.end(), [](const bench::Row& row) {
    return row.flops > 0 && row.min_bytes > 0 && !row.broken && row.refusal.empty();
  });
}

// Whose roofs are drawn: of the GPU that was measured, or of those that sim simulates.
int capability_of(const Request& r) {
  if (r.device == Device::cpu) return 0;
  if (r.device == Device::sim) return r.sim.capability;
  const int capability = simt::cuda_facts().capability;
  return capability == 80 || capability == 90 ? capability : 0;
}

std::string picture_of(const Request& r, const Report& report) {
  bench::Roofline picture = bench::roofline_of(report, capability_of(r));
  picture.title = concat("Roofline: ", title_of(r));
  picture.caption.push_back(version_line());
  return bench::roofline_svg(picture);
}

// Refused before anything runs.
void check_out(const Options& o) {
  if (o.out.empty() || !fs::exists(o.out)) return;
  if (!fs::is_directory(o.out)) throw UsageError(concat("[bench] --out ", o.out, " is no folder"));
  if (!o.overwrite && !fs::is_empty(o.out))
    throw UsageError(
        concat("[bench] --out ", o.out, " exists; --overwrite replaces the results in it"));
}

void write_out(const Options& o, const Request& r, const Report& report, const Table& table,
               const CLI::App& command, Console& console) {
  const fs::path out = o.out;
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail_file("bench", out.string(), error.message());
  write_file_atomically(out / "config.toml",
                        resolved_config(command, {"overwrite", "quiet", "json", "csv"}));
  write_file_atomically(out / "environment.json", environment_json(console.command_line(), {}));
  write_file_atomically(out / "bench.json", table.json());
  write_file_atomically(out / "bench.csv", table.csv());
  fs::remove(out / "roofline.svg", error);  // of an earlier run
  if (can_draw(report))
    write_file_atomically(out / "roofline.svg", picture_of(r, report));
  else
    console.note("no roofline: no row has operations, bytes and a rate");
  console.note(concat("the results lie in ", out.string()));
}

int run(Options& o, const CLI::App& command, Console& console) {
  console.check(o.common);
  if (!o.roofline.empty()) {
    CommonOptions picture;
    picture.json = o.roofline;
    console.check(picture);
  }
  check_out(o);
  Request r = read_request(o, console);
  if (o.list) {
    console.emit(o.operations.empty() ? operations_table() : kernels_table(r), o.common);
    return kDone;
  }
  Report report;
  {
    std::int64_t total = static_cast<std::int64_t>(r.steps.size()), done = 0;
    for (const Problem& p : r.problems)
      total += static_cast<std::int64_t>(r.settings.kernels(p).size());
    ProgressBar bar(console.err(), console.progress_terminal(), "bench", total, "rows");
    r.settings.progress = [&](const std::string& what) { bar.update(done++, what); };
    if (!r.problems.empty()) append(report, run_problems(r));
    if (!r.steps.empty()) append(report, run_steps(r));
  }
  const Table table = bench_table(title_of(r), report);
  if (!o.out.empty()) write_out(o, r, report, table, command, console);
  if (o.common.json == "-" || o.common.csv == "-") {
    console.emit(table, o.common);
  } else {
    // Files have all columns; people get a table for each kind of figure.
    console.emit_files(table, o.common);
    const int width = console.out_terminal().interactive ? console.out_terminal().width : 0;
    bool first = true;
    for (const Table& t : bench_text(title_of(r), report)) {
      if (!first) console.out() << '\n';
      first = false;
      t.print(console.out(), width);
    }
  }
  if (!o.roofline.empty()) write_file_atomically(o.roofline, picture_of(r, report));
  int status = kDone;
  bool any = false;
  for (const bench::Row& row : report.rows) {
    any = any || (!row.broken && row.refusal.empty());
    if (!row.broken) continue;
    console.error(concat("[", row.operation, "] ", row.problem, ", ", row.kernel,
                         ": the result is wrong, nothing is reported: ", row.verified));
    status = kNotHeld;
  }
  if (status == kDone && !any) {
    console.error(concat("[bench] no kernel took what was asked for: ",
                         report.rows.empty() ? "" : report.rows.front().refusal));
    return kFailed;
  }
  return status;
}

}  // namespace

Command add_bench(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench", "Count kernels on the emulator, or time them, beside their floor");
  auto o = std::make_shared<Options>();
  command->add_option("OP,--operations", o->operations,
                      "Operations, gemm (matmul) and step (training steps); --list names them");
  command->add_option("--dtype", o->dtypes, "Of the operands: bf16, fp16, fp32, fp64")
      ->delimiter(',')
      ->default_str("bf16");
  command->add_option("--out-dtype", o->out_dtype,
                      "Of the results; by default as the operands, fp32 for losses and wgrad");
  command->add_option("--layout", o->layouts, "Of matmul: nn, nt, tn, tt (t: held transposed)")
      ->delimiter(',')
      ->default_str("nn");
  command->add_option("--size", o->sizes, "Shapes such as 4096x4096x4096 (M x N x K)")
      ->delimiter(',');
  command->add_option("--conv", o->convolutions, "Convolutions: N,H,W,C,K,R,S,stride,pad");
  command->add_option("--pass", o->pass, "forward, dgrad, wgrad, or backward (all gradients)")
      ->capture_default_str();
  command->add_option("--device", o->device, "cuda, sim or cpu; by default a GPU, else sim");
  command->add_option("--arch", o->architecture, "What sim simulates: sm_80 or sm_90a")
      ->capture_default_str();
  command->add_option("--kernel", o->kernel, "Of a product: one kernel by name");
  command->add_flag("--rungs", o->rungs, "Of a product: every kernel of the ladder");
  command->add_flag("--baseline", o->baseline, "On cuda: beside cuBLAS and cuDNN");
  command->add_flag("--list", o->list, "What can be benchmarked, and what each kernel takes");
  command->add_option("--seed", o->seed, "Of the operands")->capture_default_str();
  command
      ->add_option("--sample", o->sample,
                   "On sim: so many blocks (clusters) of each large launch run; 0: as many as "
                   "take about a second")
      ->capture_default_str();
  command->add_option("--roofline", o->roofline, "Draw a roofline to this SVG")->type_name("FILE");
  command->add_option("--out", o->out, "Folder for results, roofline and settings")
      ->type_name("DIR");
  command->add_flag("--overwrite", o->overwrite, "Replace the results that lie in --out");
  add_common_options(*command, o->common, true);
  add_examples(*command, {"roundoff bench matmul --size 4096x4096x4096 --dtype bf16 --rungs",
                          "roundoff bench conv2d --conv 32,56,56,64,64,3,3,1,1 --pass wgrad",
                          "roundoff bench softmax layer_norm --size 4096x4096 --json -",
                          "roundoff bench matmul --rungs --roofline roofline.svg",
                          "roundoff bench matmul --list --size 4097x33x15 --dtype bf16,fp32"});
  return {command, [o, command](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, *command, console);
          }};
}

}  // namespace roundoff::cli
