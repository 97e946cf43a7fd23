// roundoff op: one operation, forward and backward, on a person's arrays, judged against the
// oracle within computed bounds.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "cli/command.h"
#include "cli/config.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "cli/op_arrays.h"
#include "cli/op_report.h"
#include "cli/train_options.h"
#include "engine/io/file.h"
#include "engine/io/npy.h"
#include "kernels/base/convert.h"
#include "verify/compare.h"
#include "verify/reference.h"

namespace roundoff::cli {

namespace fs = std::filesystem;

namespace {

struct Options {
  CommonOptions common;
  std::string name;
  std::vector<std::string> in;
  std::string grad;
  std::vector<std::string> parameters;
  std::string dtype;
  std::string out_dtype;
  std::string accumulator = "fp32";
  std::string device = "cpu";
  std::vector<std::string> compare;
  std::string compare_accumulator;
  std::string out;
  bool overwrite = false;
};

// Everything that was asked for, checked as far as it can be without running anything.
struct Request {
  OpParameters parameters;
  std::vector<FileArray> inputs = {};
  std::optional<FileArray> grad = {};
  std::vector<FileArray> compare = {};
  DType dtype = DType::fp32;       // of the operands
  DType y_dtype = DType::fp32;     // of the result
  DType grad_dtype = DType::fp32;  // of the gradients that go out
  DType stat_dtype = DType::fp32;  // of running statistics
  DType seed_dtype = DType::fp32;  // of the gradient that comes in
  std::optional<DType> output_dtype = {};
  Accumulator accumulator = Accumulator::fp32;
  Accumulator judged_accumulator = Accumulator::fp32;
  Device device = Device::cpu;

  const OpSignature& signature() const { return parameters.signature(); }
  std::string_view operation() const { return signature().name; }
};

std::map<std::string, std::string> parse_parameters(const std::vector<std::string>& texts) {
  std::map<std::string, std::string> given;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == text.size())
      throw UsageError(concat("[op] --param ", text, ": NAME=VALUE expected"));
    if (!given.emplace(text.substr(0, equals), text.substr(equals + 1)).second)
      throw UsageError(concat("[op] --param gives ", text.substr(0, equals), " twice"));
  }
  return given;
}

DType parse_floating(std::string_view flag, const std::string& text) {
  constexpr DType kAll[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};
  for (const DType dtype : kAll)
    if (name(dtype) == text) return dtype;
  throw UsageError(concat("[op] ", flag, " is '", text, "'; fp64, fp32, fp16 or bf16 expected"));
}

// The dtype that all operands' files fit in; fp64 where all of them hold integers.
DType natural_dtype(const Request& r) {
  std::optional<DType> dtype;
  for (const FileArray& a : r.inputs) {
    if (!is_floating(a.array.type) || input_role(r.signature(), a.name) == InputRole::statistic)
      continue;
    const DType own = *to_dtype(a.array.type);
    dtype = dtype ? widest(*dtype, own) : own;
  }
  return dtype.value_or(DType::fp64);
}

void check_accumulator(const Request& r, Accumulator a, std::string_view flag) {
  constexpr std::string_view kSums[] = {"matmul", "conv2d", "sum", "mean"};
  if (a == Accumulator::v100 && r.dtype == DType::bf16 &&
      std::find(std::begin(kSums), std::end(kSums), r.operation()) != std::end(kSums))
    throw UsageError(concat("[op] ", flag, " v100 takes fp16 operands, bf16 ones were given"));
}

// `run` has found the operation and read nothing yet.
Request read_request(const Options& o, Console& console) {
  const OpSignature& signature = op_signature(o.name);
  Request r{.parameters = OpParameters(signature, parse_parameters(o.parameters))};
  std::optional<DType> dtype;
  if (!o.dtype.empty()) dtype = parse_floating("--dtype", o.dtype);
  if (!o.out_dtype.empty()) r.output_dtype = parse_floating("--out-dtype", o.out_dtype);
  r.accumulator = parse_accumulator("op", "--acc", o.accumulator);
  r.judged_accumulator = o.compare_accumulator.empty()
                             ? r.accumulator
                             : parse_accumulator("op", "--compare-acc", o.compare_accumulator);
  if (!o.compare_accumulator.empty() && o.compare.empty())
    throw UsageError("[op] --compare-acc goes with --compare");
  r.device = parse_device(o.device);
  if (signature.numbered() && !o.grad.empty())
    throw UsageError("[unscale_clip] has no backward pass; --grad does not go with it");

  r.inputs = read_arrays("--in", o.in);
  if (!o.grad.empty()) r.grad = read_array("--grad", "dy", o.grad);
  r.compare = read_arrays("--compare", o.compare);
  std::vector<std::string> names;
  for (const FileArray& a : r.inputs) names.push_back(a.name);
  check_inputs(signature, names);
  if (o.name == "batch_norm" && !r.parameters.flag("training"))
    for (const std::string_view statistic : {"running_mean", "running_var"})
      if (std::find(names.begin(), names.end(), statistic) == names.end())
        throw UsageError(concat("[batch_norm] input ", statistic,
                                " is missing; evaluation normalises by the running statistics"));

  r.dtype = dtype.value_or(natural_dtype(r));
  if (signature.numbered()) {
    if ((dtype && *dtype == DType::fp64) || (r.output_dtype && *r.output_dtype != DType::fp32))
      throw UsageError("[unscale_clip] takes fp32, fp16 or bf16 gradients and gives fp32 ones");
    if (r.dtype == DType::fp64) {
      console.note("gradients are rounded to fp32: unscale_clip has no wider ones");
      r.dtype = DType::fp32;
    }
  }
  check_accumulator(r, r.accumulator, "--acc");
  check_accumulator(r, r.judged_accumulator, "--compare-acc");
  const DType wide = r.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  r.stat_dtype = wide;
  r.seed_dtype = signature.loss ? wide : r.dtype;
  r.y_dtype = r.output_dtype.value_or(signature.loss || signature.numbered() ? wide : r.dtype);
  r.grad_dtype = r.output_dtype.value_or(r.dtype);
  return r;
}

Tensor converted(Context& context, const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  Tensor result = Tensor::empty(context.allocator, t.shape(), dtype);
  convert(Ref{}, t.view(), result.view());
  return result;
}

// ---- running and judging

struct Run {
  NamedTensors inputs;  // as the operation takes them
  Tensor dy;
  std::vector<std::pair<std::string, Tensor>> arrays;  // results, rounded, in the order to print
  bool found_inf = false;
};

// The names of what an operation gives, in the order to print them.
std::vector<std::string> result_names(const Request& r, const OpResult& result) {
  std::vector<std::string> names;
  if (r.signature().numbered()) {
    for (const auto& [name, tensor] : result.outputs)
      if (name[0] == 'g') names.push_back(name);
    std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    names.insert(names.end(), {"norm", "clip"});
    return names;
  }
  names.push_back("y");
  for (const auto& [name, tensor] : result.outputs)
    if (name != "y") names.push_back(name);
  for (const InputInfo& i : r.signature().inputs)
    if (result.gradients.count("d" + std::string(i.name)) != 0)
      names.push_back("d" + std::string(i.name));
  return names;
}

// On the device that was asked for: operands go there, and results come back to the host.
OpResult run_on_device(Context& host, const Request& r, const Run& run) {
  Context device(r.device);
  device.accumulator = r.accumulator;
  device.output_dtype = r.output_dtype;
  NamedTensors inputs;
  for (const auto& [name, t] : run.inputs) inputs[name] = t.to(device.allocator);
  const Tensor dy = run.dy.defined() ? run.dy.to(device.allocator) : Tensor();
  OpResult result = run_op(device, r.parameters, inputs, dy);
  device.synchronize();
  for (NamedTensors* tensors : {&result.outputs, &result.gradients})
    for (auto& [name, t] : *tensors) t = t.to(host.allocator);
  return result;
}

Run run_operation(Context& context, const Request& r) {
  Run run;
  const std::string_view operation = r.operation();
  for (const FileArray& a : r.inputs) {
    const InputRole role = input_role(r.signature(), a.name);
    Tensor t;
    ROUNDOFF_CHECK(role != InputRole::index || !is_floating(a.array.type), operation, "--in ",
                   a.name, ": ", a.file.string(), " holds ", name(a.array.type),
                   ", integers expected");
    if (role == InputRole::index || (role == InputRole::target && !is_floating(a.array.type)))
      t = to_labels(context, operation, a);
    else
      t = to_operand(context, operation, a, role == InputRole::statistic ? r.stat_dtype : r.dtype);
    run.inputs[a.name] = from_layout(context, r.parameters, a.name, t);
  }
  if (r.grad)
    run.dy = from_layout(context, r.parameters, "dy",
                         to_operand(context, operation, *r.grad, r.seed_dtype));
  context.accumulator = r.accumulator;
  OpResult result;
  if (r.device != Device::cpu) {
    result = run_on_device(context, r, run);
  } else {
    const Scoped<std::optional<DType>> output(context.output_dtype, r.output_dtype);
    result = run_op(context, r.parameters, run.inputs, run.dy);
  }
  run.found_inf = result.found_inf;
  for (const std::string& name : result_names(r, result)) {
    const auto output = result.outputs.find(name);
    const bool gradient = output == result.outputs.end();
    Tensor t = gradient ? result.gradients.find(name)->second : output->second;
    if (gradient) t = converted(context, t, r.grad_dtype);
    if (name == "y") t = converted(context, t, r.y_dtype);
    run.arrays.emplace_back(name, std::move(t));
  }
  return run;
}

// The bounds of arrays of one dtype, formed when they are first asked for.
class Bounds {
 public:
  Bounds(const Request& r, const Run& run) : r_(r), run_(run) {}

  const Bound& of(const std::string& name, DType dtype) {
    const bool backward = name[0] == 'd';
    auto [found, fresh] = bounds_.try_emplace({dtype, backward});
    if (fresh) {
      const bool own = r_.compare.empty();
      constexpr std::string_view kUnary[] = {"relu", "gelu", "tanh", "sigmoid", "exp", "log"};
      const bool unary =
          std::find(std::begin(kUnary), std::end(kUnary), r_.operation()) != std::end(kUnary);
      const JudgedArithmetic judged{
          .accumulator = r_.judged_accumulator,
          .operands = r_.dtype,
          .output = dtype,
          .saved = own ? r_.y_dtype : saved(),
          // The C library's erfc errs by up to 4 ulp, and so do functions on devices.
          .libm_ulps = own && !unary && r_.device == Device::cpu ? 1.0 : 4.0,
          .gradients_in_fp32 = own && r_.accumulator == Accumulator::fp64,
          .device_core = own ? device_tensor_core(r_.device) : std::nullopt};
      found->second = op_bounds(r_.parameters, run_.inputs, run_.dy, judged,
                                backward ? Pass::backward : Pass::forward);
    }
    return found->second.find(name)->second;
  }

 private:
  // A person's backward pass may start from a result that was rounded to the operands' type.
  DType saved() const {
    return is_16bit(r_.dtype) || is_16bit(r_.y_dtype) ? (is_16bit(r_.dtype) ? r_.dtype : r_.y_dtype)
                                                      : r_.y_dtype;
  }

  const Request& r_;
  const Run& run_;
  std::map<std::pair<DType, bool>, NamedBounds> bounds_;
};

Judged judge_array(Context& context, const Request& r, const std::string& name,
                   const Tensor& actual, const Shape& native, const Bound& bound) {
  Judged j;
  j.name = name;
  j.actual = actual;
  const auto placed = [&](std::span<const double> values) {
    return to_layout(context, r.parameters, name,
                     Tensor::from(context.allocator, values, native, DType::fp64));
  };
  j.oracle = placed(bound.reference);
  j.tolerance = placed(bound.tolerance);
  j.kind = bound.kind_name();
  const std::size_t n = bound.reference.size();
  const std::span<const double> reference(j.oracle.data<double>(), n);
  j.comparison = compare(actual.view(), reference, {j.tolerance.data<double>(), n});
  const Format format = format_of(actual.dtype());
  const std::vector<double> values = actual.to_vector();
  long double ulps = 0, relative = 0;
  std::int64_t finite = 0, nonzero = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i]) || !std::isfinite(reference[i])) continue;
    const long double error = std::abs(static_cast<long double>(values[i]) - reference[i]);
    const long double in_ulps = error / ulp(reference[i], format);
    ulps += in_ulps * in_ulps;
    ++finite;
    if (reference[i] == 0) continue;
    const long double share = error / std::abs(reference[i]);
    relative += share * share;
    ++nonzero;
  }
  const auto root = [](long double sum, std::int64_t count) {
    return count == 0 ? 0.0 : static_cast<double>(std::sqrt(sum / static_cast<long double>(count)));
  };
  j.rms_ulp = root(ulps, finite);
  j.rms_rel = root(relative, nonzero);
  return j;
}

std::vector<Judged> judge_own(Context& context, const Request& r, const Run& run) {
  Bounds bounds(r, run);
  std::vector<Judged> judged;
  for (const auto& [name, tensor] : run.arrays)
    judged.push_back(judge_array(context, r, name, to_layout(context, r.parameters, name, tensor),
                                 tensor.shape(), bounds.of(name, tensor.dtype())));
  return judged;
}

std::vector<Judged> judge_compared(Context& context, const Request& r, const Run& run) {
  std::vector<Judged> judged;
  Bounds bounds(r, run);
  for (const FileArray& a : r.compare) {
    const auto known = std::find_if(run.arrays.begin(), run.arrays.end(),
                                    [&](const auto& array) { return array.first == a.name; });
    if (known == run.arrays.end() || a.name == "norm" || a.name == "clip") {
      std::string names;
      for (const auto& [name, tensor] : run.arrays)
        if (name != "norm" && name != "clip") names += (names.empty() ? "" : ", ") + name;
      throw UsageError(concat("[op] --compare ", a.name, ": ", r.operation(), " gives ", names,
                              r.grad || r.signature().numbered() ? "" : "; gradients with --grad"));
    }
    ROUNDOFF_CHECK(is_floating(a.array.type), "op", "--compare ", a.name, ": ", a.file.string(),
                   " holds ", name(a.array.type), ", a floating type expected",
                   a.array.type == ElementType::u16
                       ? concat("; bf16 bits are given as ", a.name, ":bf16=FILE")
                       : std::string());
    const Shape& native = known->second.shape();
    const Shape expected = to_layout(context, r.parameters, a.name, known->second).shape();
    ROUNDOFF_CHECK(a.array.shape == expected, "op", "--compare ", a.name, ": ", a.file.string(),
                   " has shape ", a.array.shape, ", ", expected, " expected");
    const DType dtype = *to_dtype(a.array.type);
    judged.push_back(judge_array(context, r, a.name, to_operand(context, "op", a, dtype), native,
                                 bounds.of(a.name, dtype)));
  }
  return judged;
}

// ---- the results on disk

std::vector<fs::path> files_of(const Request& r) {
  std::vector<fs::path> files;
  for (const auto* arrays : {&r.inputs, &r.compare})
    for (const FileArray& a : *arrays) files.push_back(a.file);
  if (r.grad) files.push_back(r.grad->file);
  return files;
}

void write_results(const Options& o, const Request& r, const Run& run, Context& context,
                   const std::vector<Judged>& judged, const CLI::App& command, Console& console) {
  const fs::path out = o.out;
  const ResultFolder folder(out, o.overwrite, files_of(r));
  const auto is_array = [](const std::string& name) { return name != "norm" && name != "clip"; };
  std::vector<std::pair<std::string, Tensor>> files;
  for (const auto& [name, tensor] : run.arrays)
    if (is_array(name))
      files.emplace_back(name + ".npy", to_layout(context, r.parameters, name, tensor));
  for (const Judged& j : judged)
    if (is_array(j.name)) {
      files.emplace_back(j.name + ".oracle.npy", j.oracle);
      files.emplace_back(j.name + ".bound.npy", j.tolerance);
    }
  std::vector<std::string> names{"config.toml", "environment.json", "report.json", "status.json"};
  for (const auto& [file, tensor] : files) names.push_back(file);
  folder.check(names);
  const std::string environment = environment_json(console.command_line(), folder.sources());
  folder.open();
  write_file_atomically(out / "config.toml",
                        resolved_config(command, {"overwrite", "quiet", "json", "csv"}));
  write_file_atomically(out / "environment.json", environment);
  for (const auto& [file, tensor] : files) write_npy(out / file, ConstView(tensor.view()));
  if (r.signature().numbered()) {
    const auto value = [&](const char* name) {
      return std::find_if(run.arrays.begin(), run.arrays.end(),
                          [&](const auto& array) { return array.first == name; })
          ->second.item();
    };
    write_file_atomically(out / "status.json",
                          status_json(run.found_inf, value("norm"), value("clip")));
  }
  write_file_atomically(out / "report.json", report_json(judged));
  console.note(concat("the results lie in ", out.string()));
}

int run(const Options& o, const CLI::App& command, Console& console) {
  console.check(o.common);
  const Request r = read_request(o, console);
  if (!o.out.empty())
    (void)ResultFolder(o.out, o.overwrite, files_of(r));  // refused before anything is computed
  Context context;
  const Run done = run_operation(context, r);
  const std::vector<Judged> judged =
      r.compare.empty() ? judge_own(context, r, done) : judge_compared(context, r, done);
  if (o.out.empty())
    console.note("without --out no array is kept");
  else
    write_results(o, r, done, context, judged, command, console);
  console.emit(report_table(r.operation(), judged), o.common);
  bool holds = true;
  for (const Judged& j : judged) {
    holds = holds && j.comparison.holds;
    if (!j.comparison.holds)
      console.error(
          concat("[", r.operation(), "] ", j.name, worst_element(j), " is ",
                 shortest(j.comparison.worst_actual), ", ", shortest(j.comparison.worst_reference),
                 " +- ", shortest(j.comparison.worst_tolerance), " expected (", j.kind, " bound)"));
  }
  return holds ? kDone : kNotHeld;
}

}  // namespace

Command add_op(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("op", "Run one operation on your arrays, or judge your own result of it");
  auto o = std::make_shared<Options>();
  std::string names;
  for (const OpSignature& s : op_signatures())
    names.append(names.empty() ? "" : ", ").append(s.name);
  command->add_option("NAME", o->name, "The operation: " + names)->required();
  const auto list = [&](const char* flag, std::vector<std::string>& values, const char* what) {
    return command->add_option(flag, values, what)->allow_extra_args(false);
  };
  list("--in", o->in,
       "An input: NAME=FILE.npy, NAME:bf16=FILE.npy for bf16 bits in uint16, or a FILE.safetensors "
       "with all of them; repeat for each")
      ->type_name("NAME=FILE");
  command
      ->add_option("--grad", o->grad,
                   "Gradient of the result: also runs backward (dy.npy, or dy:bf16=dy.npy)")
      ->type_name("FILE");
  list("--param", o->parameters, "A parameter of the operation: NAME=VALUE, lists as 2,1")
      ->type_name("NAME=VALUE");
  command->add_option(
      "--dtype", o->dtype,
      "Operands are rounded to fp64, fp32, fp16 or bf16; by default the widest type "
      "among the files");
  command->add_option("--out-dtype", o->out_dtype,
                      "Results and gradients are rounded to this; by default as the operands, "
                      "losses to fp32");
  command
      ->add_option("--acc", o->accumulator,
                   "Accumulator of products and sums: fp32, fp64, fp16, v100, a100, h100")
      ->capture_default_str();
  command->add_option("--device", o->device, "cpu, sim or cuda")->capture_default_str();
  list("--compare", o->compare,
       "Judge this array in place of our own: y=mine.npy, dx=mine_dx.npy, y:bf16=mine.npy")
      ->type_name("NAME=FILE");
  command->add_option("--compare-acc", o->compare_accumulator,
                      "The accumulator of the kernel that gave it: its bound applies; by default "
                      "--acc");
  command->add_option("--out", o->out, "Folder for arrays and report")->type_name("DIR");
  command->add_flag("--overwrite", o->overwrite, "Replace the results that lie in --out");
  add_common_options(*command, o->common, true);
  add_examples(
      *command,
      {"roundoff op softmax --in x=x.npy --grad dy.npy --dtype fp16 --out result",
       "roundoff op conv2d --in x=x.npy --in w=w.npy --param stride=2 --param layout=nchw --out r",
       "roundoff op matmul --in a=a.npy --in b=b.npy --dtype fp16 --compare y=mine.npy "
       "--compare-acc h100"});
  return {command, [o, command](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, *command, console);
          }};
}

}  // namespace roundoff::cli
