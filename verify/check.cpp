#include "verify/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "verify/bound.h"
#include "verify/cases.h"
#include "verify/reference.h"
#include "verify/rungs.h"

namespace roundoff {

namespace {

DType wide_of(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }

constexpr std::string_view kFunctions[] = {"gelu", "tanh", "sigmoid", "exp", "log"};
bool is_function(std::string_view op) {
  return std::find(std::begin(kFunctions), std::end(kFunctions), op) != std::end(kFunctions);
}

// The dtype that an input has when the operation runs in `dtype`.
DType dtype_of_input(InputRole role, Domain domain, DType dtype) {
  if (domain == Domain::label || domain == Domain::index) return DType::i64;
  return role == InputRole::statistic ? wide_of(dtype) : dtype;
}

// What an input of a fill is filled with.
Fill fill_of_input(const Case& c, bool numbered, InputRole role, bool first, Fill fill) {
  if (fill == Fill::integers || numbered) return fill;
  // Buffers and class weights are numbers of their own.
  if (role == InputRole::statistic || role == InputRole::constant) return Fill::normal;
  constexpr std::string_view kFactors[] = {"matmul", "linear", "conv2d", "batch_norm",
                                           "layer_norm"};
  const bool product =
      std::find(std::begin(kFactors), std::end(kFactors), c.operation) != std::end(kFactors);
  if (first || !product) return fill;
  // Products of two huge numbers are infinite, all of them.
  if (fill == Fill::huge) return Fill::uniform;
  // Whether a weight that stands over the border is multiplied by 0 or left out is nobody's
  // promise.
  if (c.operation == "conv2d" && !is_finite(fill)) return Fill::normal;
  return fill;
}

// What gradients of a fill are filled with.
Fill fill_of_gradient(Fill fill) {
  return fill == Fill::integers || fill == Fill::subnormal || fill == Fill::uniform ||
                 fill == Fill::positive
             ? fill
             : Fill::normal;
}

// A call with its data, and what it should give.
class Call {
 public:
  Call(const Case& c, DType dtype, Fill fill, GradientForm form, const CheckOptions& options)
      : c_(c), dtype_(dtype), options_(options), request_{.c = c, .dtype = dtype, .form = form} {
    if (!options.reference) {
      parameters_.emplace(op_signature(c.operation), c.parameters);
      request_.parameters = &*parameters_;
    }
    // Data depend on the case's text too, so that lists may grow without changing other cases.
    std::uint64_t step = 0;
    for (const char letter : c.operation + c.text())
      step = (step * 31 + static_cast<unsigned char>(letter)) % 0x7FFFFFFF;
    RandomStream random(options.seed, RandomUse::checks, step, static_cast<std::uint32_t>(fill));
    const Format format = format_of(dtype);
    const Format sums = dtype == DType::fp64 ? kFp64 : kFp32;
    const std::int64_t limit = exact_integer_limit(c.terms + 1, format, sums, sums);
    const bool numbered = parameters_ && parameters_->signature().numbered();
    const auto tensor = [&](const CaseInput& input, DType own, Fill with) {
      return Tensor::from(context_.allocator, fill_values(input, with, own, limit, random),
                          input.shape, own);
    };
    for (const CaseInput& input : c.inputs) {
      const InputRole role = role_of(input);
      request_.inputs[input.name] =
          tensor(input, dtype_of_input(role, input.domain, dtype),
                 fill_of_input(c, numbered, role, &input == &c.inputs.front(), fill));
    }
    if (!options.gradients || numbered) return;
    const DType seed = y_dtype();
    request_.dy = tensor({"dy", c.y}, seed, fill_of_gradient(fill));
    if (form != GradientForm::accumulated) return;
    for (const CaseInput& input : c.inputs)
      if (role_of(input) == InputRole::operand)
        request_.before[concat("d", input.name)] =
            tensor({input.name, input.shape}, wide_of(dtype),
                   fill == Fill::integers ? Fill::integers : Fill::normal);
  }

  CallRequest& request() { return request_; }

  // The dtype of y, as the operation gives it.
  DType y_dtype() const {
    if (!parameters_) return dtype_;
    const OpSignature& s = parameters_->signature();
    return s.loss || s.numbered() ? wide_of(dtype_) : dtype_;
  }

  JudgedArithmetic judged(DType output) const {
    return {.accumulator = options_.accumulator,
            .operands = dtype_,
            .output = output,
            .saved = y_dtype(),
            .libm_ulps =
                is_function(c_.operation) ? std::max(4.0, options_.libm_ulps) : options_.libm_ulps,
            .device_core = options_.device_core};
  }

  // The hard bounds of one pass's arrays.
  NamedBounds bounds(DType output, Pass pass) const {
    const JudgedArithmetic j = judged(output);
    NamedBounds all = parameters_ ? op_bounds(*parameters_, request_.inputs, request_.dy, j, pass)
                                  : options_.reference(request_, j, pass);
    add_before(all, output);
    return all;
  }
  NamedBounds running(DType output, Pass pass) const {
    if (!parameters_) return {};
    NamedBounds all =
        running_bounds(*parameters_, request_.inputs, request_.dy, judged(output), pass);
    add_before(all, output);
    return all;
  }
  NamedBounds model(DType output) const {
    if (!parameters_) return {};
    return host_model(*parameters_, request_.inputs, judged(output));
  }

 private:
  InputRole role_of(const CaseInput& input) const {
    if (parameters_) return input_role(parameters_->signature(), input.name);
    return input.domain == Domain::label || input.domain == Domain::index ? InputRole::index
                                                                          : InputRole::operand;
  }
  void add_before(NamedBounds& bounds, DType output) const {
    if (request_.before.empty()) return;
    std::map<std::string, std::int64_t> terms;
    if (parameters_) terms = accumulated_terms(*parameters_, request_.inputs, request_.dy.numel());
    for (const auto& [name, before] : request_.before)
      if (const auto found = bounds.find(name); found != bounds.end()) {
        const auto n = terms.find(name);
        found->second = accumulated(found->second, before.to_vector(), format_of(output),
                                    n == terms.end() ? 0 : n->second);
      }
  }

  Context context_;
  const Case& c_;
  std::optional<OpParameters> parameters_;
  DType dtype_;
  const CheckOptions& options_;
  CallRequest request_;
};

// Whole numbers: the exact result, rounded once.
Bound exact_version(const Bound& bound, DType output) {
  std::vector<double> values = bound.reference;
  for (double& v : values)
    if (std::isfinite(v)) v = round_to_format(v, format_of(output)).value;
  return exactly(std::move(values));
}

bool is_exact(const Bound& bound) {
  return std::all_of(bound.tolerance.begin(), bound.tolerance.end(),
                     [](double t) { return t == 0; });
}

// Whether the worst element still has the pattern that outputs start with.
bool is_poison(const Tensor& t, std::int64_t index) {
  const auto* bytes = static_cast<const unsigned char*>(t.raw()) +
                      static_cast<std::size_t>(index) * size_of(t.dtype());
  return std::all_of(bytes, bytes + size_of(t.dtype()), [](unsigned char b) { return b == 0xFF; });
}

std::string number(double value) {
  if (std::isnan(value)) return "nan";
  std::ostringstream out;
  out.precision(17);
  out << value;
  std::string shortest = std::move(out).str();
  for (int digits = 1; digits < 17; ++digits) {
    std::ostringstream shorter;
    shorter.precision(digits);
    shorter << value;
    if (std::strtod(shorter.str().c_str(), nullptr) == value) return std::move(shorter).str();
  }
  return shortest;
}

// "y[2,17] is 0.5, 0.25 +- 1e-05 expected: off by 0.25, 25000 times the bound (hard bound,
// derived); 12 of 93 elements are outside".
std::string failure_text(const std::string& array, const Tensor& actual, const Bound& bound,
                         const Comparison& c, Rung rung) {
  const double error = std::abs(c.worst_actual - c.worst_reference);
  std::string text =
      concat(array, element_text(c.worst, actual.shape()), " is ", number(c.worst_actual), ", ",
             number(c.worst_reference), " +- ", number(c.worst_tolerance), " expected");
  if (std::isnan(c.worst_actual) && is_poison(actual, c.worst))
    text += ": never written";
  else if (std::isfinite(error)) {
    text += concat(": off by ", error);
    if (std::isfinite(c.bound_ratio)) text += concat(", ", c.bound_ratio, " times the bound");
  }
  return concat(text, " (", name(rung), ", ", bound.kind_name(), "); ", c.outside, " of ",
                actual.numel(), " elements are outside");
}

// Where the accumulator may overflow in some order of summation, the tolerance is infinite and
// nothing is promised, not even that infinities of both signs do not meet in a NaN.
Comparison compare_promised(const Tensor& actual, const Bound& bound) {
  Bound promised = bound;
  for (std::size_t i = 0; i < bound.tolerance.size(); ++i)
    if (std::isinf(bound.tolerance[i]))
      promised.reference[i] = actual.at(static_cast<std::int64_t>(i));
  return compare(actual.const_view(), promised);
}

class Judge {
 public:
  Judge(const Call& call, Fill fill, std::uint64_t schedule, CheckReport& report)
      : call_(call), fill_(fill), schedule_(schedule), report_(report) {}

  void pass(const NamedTensors& arrays, Pass pass) {
    // y first: what follows from it comes after it.
    std::vector<std::string> order;
    for (const auto& [name, tensor] : arrays) order.push_back(name);
    std::stable_partition(order.begin(), order.end(),
                          [](const std::string& name) { return name == "y"; });
    for (const std::string& name : order) array(name, arrays.find(name)->second, pass);
  }

 private:
  const Bound* find(std::map<DType, NamedBounds>& cache, const std::string& array, DType dtype,
                    const std::function<NamedBounds()>& make) {
    const auto [entry, fresh] = cache.try_emplace(dtype);
    if (fresh) entry->second = make();
    const auto found = entry->second.find(array);
    return found == entry->second.end() ? nullptr : &found->second;
  }

  void array(const std::string& array, const Tensor& actual, Pass pass) {
    const std::size_t p = pass == Pass::backward ? 1 : 0;
    const DType dtype = actual.dtype();
    const Bound* hard = find(hard_[p], array, dtype, [&] { return call_.bounds(dtype, pass); });
    if (hard == nullptr) return fail(array, Rung::hard_bound, 0, array + " has no bound");
    if (fill_ == Fill::integers) {
      (void)compared(array, actual, exact_version(*hard, dtype), Rung::integers);
      return;
    }
    const Comparison c = compared(array, actual, *hard, Rung::hard_bound);
    double& worst = pass == Pass::forward ? report_.ratio : report_.gradient_ratio;
    worst = std::max(worst, c.bound_ratio);
    if (!c.holds) return;
    if (pass == Pass::forward)
      if (const Bound* b = find(model_, array, dtype, [&] { return call_.model(dtype); }))
        (void)compared(array, actual, *b, Rung::host_model);
    if (!is_random(fill_)) return;
    if (is_exact(*hard) && actual.numel() != 0) climbed(Rung::host_model);
    if (const Bound* b =
            find(running_[p], array, dtype, [&] { return call_.running(dtype, pass); }))
      (void)compared(array, actual, *b, Rung::running_bound);
  }

  Comparison compared(const std::string& array, const Tensor& actual, const Bound& bound,
                      Rung rung) {
    const auto size = static_cast<std::int64_t>(bound.reference.size());
    if (actual.numel() != size) {
      fail(array, rung, 0,
           concat(array, " has shape ", actual.shape(), ", ", size, " elements expected"));
      Comparison none;
      none.holds = false;
      return none;
    }
    const Comparison c = compare_promised(actual, bound);
    climbed(rung);
    if (!c.holds) fail(array, rung, c.bound_ratio, failure_text(array, actual, bound, c, rung));
    return c;
  }
  void climbed(Rung rung) { report_.rungs |= 1U << static_cast<unsigned>(rung); }
  void fail(const std::string& array, Rung rung, double ratio, std::string text) {
    report_.failures.push_back({array, rung, fill_, schedule_, ratio, std::move(text)});
  }

  const Call& call_;
  Fill fill_;
  std::uint64_t schedule_;
  CheckReport& report_;
  std::map<DType, NamedBounds> hard_[2], running_[2], model_;
};

// The first array whose bits differ; empty where none does.
std::string differing(const NamedTensors& a, const NamedTensors& b) {
  for (const auto& [name, t] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.bytes() != t.bytes() ||
        (t.bytes() != 0 && std::memcmp(t.raw(), other->second.raw(), t.bytes()) != 0))
      return name;
  }
  return a.size() == b.size() ? "" : "the set of arrays";
}

// Names of the gradients that a case has.
std::string gradient_names(const Case& c, const CheckOptions& options) {
  if (!options.gradients || options.reference) return "";
  const OpSignature& signature = op_signature(c.operation);
  if (signature.numbered()) return "";
  std::string names;
  for (const InputInfo& info : signature.inputs)
    for (const CaseInput& input : c.inputs)
      if (input.name == info.name && info.role == InputRole::operand)
        names += concat(names.empty() ? "d" : " d", input.name);
  return names;
}

}  // namespace

void merge_report(CheckReport& into, CheckReport&& from) {
  into.ratio = std::max(into.ratio, from.ratio);
  into.gradient_ratio = std::max(into.gradient_ratio, from.gradient_ratio);
  into.rungs |= from.rungs;
  into.runs += from.runs;
  into.schedules += from.schedules;
  if (into.gradients.empty()) into.gradients = from.gradients;
  for (CheckFailure& f : from.failures) into.failures.push_back(std::move(f));
}

std::string_view name(GradientForm form) {
  constexpr std::string_view kNames[] = {"leaf", "activation", "accumulated"};
  return kNames[static_cast<std::size_t>(form)];
}

std::string CheckReport::rung_text() const {
  std::string text;
  for (unsigned i = 0; i < 4; ++i)
    if ((rungs >> i & 1U) != 0) text += concat(text.empty() ? "" : " ", i + 1);
  return text;
}

bool runs_in(std::string_view op, DType dtype, Accumulator accumulator, Device device) {
  const bool gpu = accumulator == Accumulator::v100 || accumulator == Accumulator::a100 ||
                   accumulator == Accumulator::h100;
  if (device != Device::cpu && gpu && (op == "sum" || op == "mean")) return false;
  constexpr std::string_view kSums[] = {"matmul", "linear", "conv2d", "sum", "mean"};
  if (op == "unscale_clip" && dtype == DType::fp64) return false;
  return accumulator != Accumulator::v100 || dtype != DType::bf16 ||
         std::find(std::begin(kSums), std::end(kSums), op) == std::end(kSums);
}

DrawnCase draw_check(std::uint64_t seed, std::span<const std::string> operations,
                     std::span<const DType> dtypes, Accumulator accumulator, Device device) {
  CaseDraw draw(seed);
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(draw.integer(0, static_cast<std::int64_t>(n) - 1));
  };
  for (;;) {
    const std::string operation =
        operations.empty() ? std::string(op_signatures()[below(op_signatures().size())].name)
                           : operations[below(operations.size())];
    const DType dtype = dtypes[below(dtypes.size())];
    if (runs_in(operation, dtype, accumulator, device)) return {draw_case(operation, draw), dtype};
  }
}

CheckReport check_fill(const Case& c, DType dtype, Fill fill, GradientForm form,
                       const CallRunner& runner, const CheckOptions& options) {
  CheckReport report;
  report.gradients = gradient_names(c, options);
  Call call(c, dtype, fill, form, options);
  CallOutcome first;
  for (const std::uint64_t schedule : options.schedules) {
    call.request().schedule = schedule;
    ++report.runs;
    ++report.schedules;
    const auto failed = [&](const std::string& text) {
      report.failures.push_back({"", Rung::hard_bound, fill, schedule, 0, text});
    };
    CallOutcome outcome;
    try {
      outcome = runner(call.request());
    } catch (const Error& error) {
      failed(error.what());
      continue;
    }
    for (const std::string& fault : outcome.faults) failed(fault);
    if (options.reference && report.gradients.empty())
      for (const auto& gradient : outcome.gradients)
        report.gradients += concat(report.gradients.empty() ? "" : " ", gradient.first);
    if (report.runs == 1) {
      Judge judge(call, fill, schedule, report);
      judge.pass(outcome.outputs, Pass::forward);
      judge.pass(outcome.gradients, Pass::backward);
      first = std::move(outcome);
      continue;
    }
    for (const auto* sets : {&first.outputs, &first.gradients}) {
      const std::string array =
          differing(*sets, sets == &first.outputs ? outcome.outputs : outcome.gradients);
      if (!array.empty())
        failed(concat(array, " has other bits than under schedule ", options.schedules.front()));
    }
  }
  return report;
}

CheckReport check_case(const Case& c, DType dtype, const CallRunner& runner,
                       const CheckOptions& options) {
  CheckReport report;
  report.gradients = gradient_names(c, options);
  bool all_tried = false;
  std::size_t turn = 0;
  for (const Fill fill : options.fills) {
    if (!takes(c, fill, dtype, wide_of(dtype))) continue;
    if (fill == Fill::integers && options.accumulator != Accumulator::fp32 &&
        options.accumulator != Accumulator::fp64)
      continue;  // narrower sums are exact for fewer of them
    const auto form = options.form.value_or(static_cast<GradientForm>((turn + options.seed) % 3));
    CheckOptions o = options;
    if (all_tried || !is_random(fill))
      o.schedules = {options.schedules[turn % options.schedules.size()]};
    else
      all_tried = true;
    merge_report(report, check_fill(c, dtype, fill, form, runner, o));
    ++turn;
  }
  report.schedules = static_cast<std::int64_t>(options.schedules.size());
  return report;
}

GradcheckReport gradcheck_case(const Case& c, std::uint64_t seed) {
  const OpParameters parameters(op_signature(c.operation), c.parameters);
  RandomStream random(seed, RandomUse::checks, 0);
  std::vector<GradcheckInput> inputs;
  std::vector<std::string> names;
  std::vector<std::pair<CaseInput, std::vector<double>>> constants;
  for (const CaseInput& input : c.inputs) {
    std::vector<double> values = fill_values(input, Fill::normal, DType::fp64, 0, random);
    if (input_role(parameters.signature(), input.name) == InputRole::operand) {
      inputs.push_back({input.shape, std::move(values)});
      names.push_back(input.name);
    } else {
      constants.emplace_back(input, std::move(values));
    }
  }
  const TensorFunction f = [&](Context& context, std::span<const Tensor> operands) {
    NamedTensors named;
    for (std::size_t i = 0; i < names.size(); ++i) named[names[i]] = operands[i];
    for (const auto& [input, values] : constants) {
      const bool whole = input.domain == Domain::label || input.domain == Domain::index;
      named[input.name] =
          Tensor::from(context.allocator, values, input.shape, whole ? DType::i64 : DType::fp64);
    }
    return apply_op(context, parameters, named);
  };
  return gradcheck(f, inputs, {.seed = seed});
}

}  // namespace roundoff
