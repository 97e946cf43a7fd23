// Operations by name, on named arrays and named parameters: what `roundoff op` and checks run.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/context.h"

namespace roundoff {

// What an input is to its operation.
enum class InputRole : unsigned char {
  operand,    // floating, in the dtype that the operation runs in; has a gradient
  constant,   // the same without a gradient: class weights
  target,     // int64 labels, or floating as `constant`
  statistic,  // running statistics: fp32, or fp64 where the operation runs in fp64; no gradient
  index,      // int64; no gradient
};

struct InputInfo {
  std::string_view name;
  InputRole role = InputRole::operand;
  bool optional = false;
};

enum class ParameterKind : unsigned char {
  number,   // a decimal number, "inf" where the operation takes it
  integer,  // in int64
  natural,  // an integer in uint64
  flag,     // true or false
  pair,     // one integer for both axes, or "vertical,horizontal"
  axes,     // integers with commas between them, at least one
  word,     // one of `words`
};

struct ParameterInfo {
  std::string_view name;
  ParameterKind kind = ParameterKind::number;
  std::string_view fallback;  // as a person would write it; may be empty for pair and axes
  std::string_view words{};   // "mean sum none"
};

struct OpSignature {
  std::string_view name;
  // In the order of the operation's function. Of unscale_clip only g0 is listed: it takes g0, g1
  // and so on, and a number that is left out is an absent gradient.
  std::span<const InputInfo> inputs;
  std::span<const ParameterInfo> parameters;
  // The result is a loss: fp32 (fp64) whatever the operands, and so is the gradient that comes in.
  bool loss = false;

  bool numbered() const { return name == "unscale_clip"; }
};

// In the order of the documentation.
std::span<const OpSignature> op_signatures();
// Throws UsageError, with every name, for a name that is not there.
const OpSignature& op_signature(std::string_view name);

// The parameters of one call, checked, with the defaults of those that were not given.
class OpParameters {
 public:
  // Throws UsageError for a name that the operation does not have (naming those that it has) and
  // for a value of another form.
  OpParameters(const OpSignature& signature, const std::map<std::string, std::string>& given);

  const OpSignature& signature() const { return *signature_; }
  double number(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  std::uint64_t natural(std::string_view name) const;
  bool flag(std::string_view name) const;
  // `otherwise` where nothing was given and there is no default.
  std::array<std::int64_t, 2> pair(std::string_view name,
                                   std::array<std::int64_t, 2> otherwise = {}) const;
  std::vector<std::int64_t> axes(std::string_view name) const;  // empty: all
  const std::string& word(std::string_view name) const;

 private:
  const std::string& text(std::string_view name) const;

  const OpSignature* signature_;
  std::map<std::string, std::string, std::less<>> values_;
};

using NamedTensors = std::map<std::string, Tensor, std::less<>>;

// The role of an input of this name; throws UsageError, naming the inputs that there are, for a
// name that the operation does not take.
InputRole input_role(const OpSignature& signature, std::string_view input);
// Throws UsageError for names that are missing, or that the operation does not take.
void check_inputs(const OpSignature& signature, std::span<const std::string> names);

struct OpResult {
  // y; batch_norm in training also running_mean and running_var, where they came in. Of
  // unscale_clip the unscaled, clipped gradients g0, g1, ..., norm (fp64) and clip (fp32), each of
  // one element.
  NamedTensors outputs;
  // Where a gradient was given: d<input> for each operand, in fp32, or fp64 for fp64 operands.
  NamedTensors gradients;
  bool found_inf = false;  // unscale_clip
};

// Runs forward and, where `dy` is defined, backward through the context's tape. Operands of one
// dtype; convolutions NHWC and KRSC, whatever the parameter `layout` says (see from_layout). The
// context's accumulator, output_dtype and training are taken as they are, but for the operation's
// own parameters. Throws UsageError for inputs that are missing or superfluous, Error for dtypes
// and shapes that do not fit.
OpResult run_op(Context& context, const OpParameters& parameters, const NamedTensors& inputs,
                const Tensor& dy = {});

// Forward alone: y, on the tape where an input is, so that calls by name can follow one another.
// `others` receives what else run_op() gives. Not for unscale_clip.
Tensor apply_op(Context& context, const OpParameters& parameters, const NamedTensors& inputs,
                NamedTensors* others = nullptr);

// A copy of an array of the call ("x", "dx", "w", "dw", "y", "dy") from the layout that the
// parameter `layout` names to NHWC or KRSC, and back. The same tensor where there is nothing to
// move. Throws where layout=nchw and the array has not four axes.
Tensor from_layout(Context& context, const OpParameters& parameters, std::string_view array,
                   const Tensor& tensor);
Tensor to_layout(Context& context, const OpParameters& parameters, std::string_view array,
                 const Tensor& tensor);

}  // namespace roundoff
