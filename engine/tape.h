// The tape: nodes in the order in which they ran. The loop over them in reverse is the backward
// pass. A node keeps its forward function as well, so that a step can be replayed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/autocast.h"
#include "engine/tensor.h"
#include "kernels/base/target.h"

namespace roundoff {

class Context;
class ForwardFrame;
class BackwardFrame;
class ParameterArena;

inline constexpr int kMaxInputs = 6;
inline constexpr int kMaxOutputs = 3;
inline constexpr int kMaxSaved = 6;
inline constexpr std::size_t kMaxParams = 128;

// What an operation is to the tape: two functions and how autocast treats it.
struct Operation {
  std::string_view name;
  void (*forward)(ForwardFrame&);
  void (*backward)(BackwardFrame&);
  CastClass cast_class = CastClass::none;
  // Bit i: input i may be cast.
  unsigned cast_inputs = ~0U;
  // Bit i: where the context is reproducible, the gradient of a parameter that is input i is summed
  // in the order of the samples, straight onto what the gradient holds.
  unsigned in_order_inputs = 0;
};

struct Node {
  const Operation* operation = nullptr;
  int inputs = 0;
  int outputs = 0;
  // Indices into the tape's values; -1 where no gradient is wanted.
  std::array<std::int32_t, kMaxInputs> input{};
  std::array<std::int32_t, kMaxOutputs> output{};
  std::array<Tensor, kMaxSaved> saved;
  // The dtype that the operation computed in, for people who look.
  DType input_dtype = DType::fp32;
  DType output_dtype = DType::fp32;
  // Settings of the context when the node ran.
  Accumulator accumulator = Accumulator::fp32;
  bool tf32 = false;
  bool reproducible = false;
  alignas(std::max_align_t) std::array<std::byte, kMaxParams> params{};
};

// A value that has a gradient.
struct Value {
  Shape shape;
  DType dtype = DType::fp32;
  // How many inputs of nodes it is. Gradients of a 16-bit value with several uses are added in fp32
  // and rounded once.
  int uses = 0;
  Tensor grad;
  bool has_grad = false;
  // The gradient is the seed of the pass, which keeps its own dtype: 65536 is infinite in fp16.
  bool seeded = false;
  // The pass that runs needs it.
  bool needed = false;
  std::shared_ptr<Leaf> leaf;
  std::uint64_t leaf_version = 0;  // of the value that nodes have used
};

// Watches a context's nodes as they run: for probes, self tests and people who look.
class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  // After a node ran forward; `index` is its place on the tape, -1 where nothing was recorded.
  virtual void ran_forward(std::int64_t index, const Operation& operation,
                           std::span<const Tensor> inputs, std::span<const Tensor> outputs) = 0;
  // Before a node runs backward: the gradient of its first output.
  virtual void runs_backward(std::int64_t index, const Node& node, const Tensor& gradient) = 0;
  // After it: what it wrote stands in the tape's values, or in their leaves.
  virtual void ran_backward(std::int64_t /*index*/, const Node& /*node*/) {}
  // The gradients of a whole window are complete, and nothing has unscaled or used them yet.
  virtual void has_gradients(const ParameterArena& /*parameters*/) {}
};

class Tape {
 public:
  Tape();

  // Adds grad(root) = seed to every leaf's gradient that root depends on. A root of one element
  // takes the number `seed`: the loss scale, and a window's normalisation, enter here, in fp32.
  // Frees what nodes saved, unless `retain`; a second pass without it is an error, and so is a leaf
  // whose version has changed since a node used it. Where an operation throws in the middle, the
  // leaves' gradients are incomplete.
  void backward(Context& context, const Tensor& root, double seed = 1.0, bool retain = false);
  // The same with a gradient for every element of root.
  void backward(Context& context, const Tensor& root, const Tensor& seed, bool retain = false);

  // Forgets the recording (the memory for its nodes stays).
  void clear();

  std::span<const Node> nodes() const { return {nodes_.data(), node_count_}; }
  const Value& value(std::int32_t index) const { return values_[static_cast<std::size_t>(index)]; }
  bool empty() const { return node_count_ == 0; }

 private:
  friend class ForwardFrame;
  friend class BackwardFrame;
  friend std::array<Tensor, kMaxOutputs> apply(Context&, const Operation&,
                                               std::span<const Tensor* const>, const void*,
                                               std::size_t);

  // The value index of a tensor on this recording, registering leaves; -1 for a constant.
  std::int32_t index_of(const Tensor& tensor, std::string_view operation);
  std::int32_t new_value(const Shape& shape, DType dtype);
  Node& new_node();
  void check_versions(std::int32_t root);
  void run_backward(Context& context, bool retain);
  void forget_gradients();

  std::vector<Node> nodes_;
  std::vector<Value> values_;
  std::size_t node_count_ = 0;
  std::size_t value_count_ = 0;
  std::uint64_t generation_ = 0;
  bool consumed_ = false;
};

// What an operation's forward function sees.
class ForwardFrame {
 public:
  Context& context() const { return context_; }
  bool has(int i) const { return i < inputs_ && in_[static_cast<std::size_t>(i)].defined(); }
  const Tensor& in(int i) const { return in_[static_cast<std::size_t>(i)]; }
  // Allocates output i.
  Tensor& out(int i, const Shape& shape, DType dtype);
  // Output i shares the storage of `tensor`.
  void out_alias(int i, const Tensor& tensor);
  // Keeps a tensor for backward, in slot i.
  void save(int i, const Tensor& tensor);
  // Whether backward will be able to ask for anything; nothing needs saving otherwise.
  bool recording() const { return recording_; }
  // Whether input i will want a gradient.
  bool wants_grad(int i) const {
    return recording_ && i < inputs_ && index_[static_cast<std::size_t>(i)] >= 0;
  }
  template <class P>
  const P& params() const {
    static_assert(std::is_trivially_copyable_v<P> && sizeof(P) <= kMaxParams);
    return *static_cast<const P*>(params_);
  }
  // A parameter that only forward can know (a shape, a count) may be added for backward.
  template <class P>
  P& mutable_params() {
    return *static_cast<P*>(params_);
  }
  // Calls f with the target tag of the context's device.
  template <class F>
  void run(F&& f) const;

 private:
  friend std::array<Tensor, kMaxOutputs> apply(Context&, const Operation&,
                                               std::span<const Tensor* const>, const void*,
                                               std::size_t);
  explicit ForwardFrame(Context& context) : context_(context) {}

  Context& context_;
  std::array<Tensor, kMaxInputs> in_;
  std::array<std::int32_t, kMaxInputs> index_{};
  std::array<Tensor, kMaxOutputs> out_;
  std::array<Tensor, kMaxSaved> saved_;
  int inputs_ = 0;
  int outputs_ = 0;
  bool recording_ = false;
  void* params_ = nullptr;
};

// What an operation's backward function sees.
class BackwardFrame {
 public:
  Context& context() const { return context_; }
  const Tensor& saved(int i) const { return node_.saved[static_cast<std::size_t>(i)]; }
  bool has_grad_out(int i) const;
  // The gradient of output i, in the output's dtype (a seed of the pass keeps its own). Throws
  // where there is none.
  const Tensor& grad_out(int i);
  // Whether input i wants a gradient.
  bool wants(int i) const { return node_.input[static_cast<std::size_t>(i)] >= 0; }
  // Whether input i is a leaf: a parameter.
  bool is_leaf(int i) const;
  // Where the gradient of input i goes: not wanted, overwrite or accumulate. Calling it promises
  // that it will be written. dtype: fp32 for leaves and for values with several uses, else the
  // value's.
  Out grad_in(int i);
  // Shape of input i's value, where it wants a gradient.
  const Shape& input_shape(int i) const;
  template <class P>
  const P& params() const {
    static_assert(std::is_trivially_copyable_v<P> && sizeof(P) <= kMaxParams);
    return *reinterpret_cast<const P*>(node_.params.data());
  }
  Accumulator accumulator() const { return node_.accumulator; }
  bool tf32() const { return node_.tf32; }
  bool reproducible() const { return node_.reproducible; }
  template <class F>
  void run(F&& f) const;

 private:
  friend class Tape;
  BackwardFrame(Context& context, Tape& tape, const Node& node)
      : context_(context), tape_(tape), node_(node) {}

  Context& context_;
  Tape& tape_;
  const Node& node_;
  std::array<Tensor, kMaxOutputs> rounded_;
};

// Casts the inputs as autocast says, runs forward, and records a node if any input wants a gradient
// and gradients are on. Undefined inputs stand for absent ones.
std::array<Tensor, kMaxOutputs> apply(Context& context, const Operation& operation,
                                      std::span<const Tensor* const> inputs, const void* params,
                                      std::size_t params_size);

}  // namespace roundoff
