// How an operation meets the tape. An operation is a struct with `name`, `Params`, and two static
// functions, forward and backward; record<Op>() runs and records it. docs/adding-an-operation.md
// walks through one.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <type_traits>

#include "engine/context.h"
#include "engine/tape.h"
#include "ops/list.h"

namespace roundoff {

namespace detail {

template <class Op>
constexpr unsigned cast_inputs_of() {
  if constexpr (requires { Op::cast_inputs; }) {
    return Op::cast_inputs;
  } else {
    return ~0U;
  }
}

template <class Op>
constexpr unsigned in_order_inputs_of() {
  if constexpr (requires { Op::in_order_inputs; }) {
    return Op::in_order_inputs;
  } else {
    return 0;
  }
}

template <class Op>
inline constexpr Operation kOperation{Op::name,
                                      Op::forward,
                                      Op::backward,
                                      cast_class_of(Op::name),
                                      cast_inputs_of<Op>(),
                                      in_order_inputs_of<Op>()};

}  // namespace detail

// An input: a tensor that stays where it is.
struct Input {
  const Tensor* tensor;
  Input(const Tensor& t) : tensor(&t) {}
};

// Runs Op on the inputs (cast as the table in ops/list.h and the context say) and records it. All
// outputs come back; most operations have one.
template <class Op>
std::array<Tensor, kMaxOutputs> record_all(Context& context, std::initializer_list<Input> inputs,
                                           const typename Op::Params& params = {}) {
  std::array<const Tensor*, kMaxInputs> pointers{};
  std::transform(inputs.begin(), inputs.end(), pointers.begin(),
                 [](const Input& input) { return input.tensor; });
  return apply(context, detail::kOperation<Op>, {pointers.data(), inputs.size()}, &params,
               sizeof(params));
}

template <class Op>
Tensor record(Context& context, std::initializer_list<Input> inputs,
              const typename Op::Params& params = {}) {
  return std::move(record_all<Op>(context, inputs, params)[0]);
}

}  // namespace roundoff
