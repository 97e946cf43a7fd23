// Watches one training step from inside: the exponents of every node's output and gradient and of
// every parameter's gradient, where the first infinity or NaN arose, and which loss scale would
// have fitted. Set it as a context's observer for the windows that are to be seen; unset, nothing
// of it runs, and what a step computes has the same bits either way.
//
// On cpu each tensor is read once, as its node runs. A device's tensors are copied to the host one
// by one: probing a device waits at every node, and is for looking, not for training.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/context.h"
#include "engine/parameters.h"
#include "engine/tensor_stats.h"

namespace roundoff {

struct ProbedTensor {
  enum class Kind : unsigned char {
    output,    // a node's first output
    gradient,  // of a node's first output, in the type that the backward pass stores it in
    parameter  // a parameter's gradient of the whole window, as stored: scaled
  };
  Kind kind = Kind::output;
  // The node's place in the forward pass of a micro-batch, from 0; a parameter's in its arena.
  int index = 0;
  // The operation; a parameter has none.
  std::string_view operation;
  // The parameters that the node read, or the parameter.
  std::string name;
  TensorStats stats = {};     // over the window's micro-batches
  TensorStats unscaled = {};  // parameters: of the gradient divided by the scale, in fp32
};
std::string_view name(ProbedTensor::Kind kind);

// Where the first value that is not finite arose.
struct NonFinite {
  enum class Pass : unsigned char { none, forward, backward, unscale };
  Pass pass = Pass::none;
  int node = -1;  // as ProbedTensor::index; -1 where no node made it
  std::string_view operation;
  std::string node_name;  // the parameters that the node reads
  std::string tensor;     // "output", "input 0", "gradient of fc1.weight", "gradient of input 0"
  DType dtype = DType::fp32;
  std::int64_t micro_batch = 0;  // of the window, from 0
  explicit operator bool() const { return pass != Pass::none; }
  // One sentence; empty where there is none.
  std::string text() const;
};
std::string_view name(NonFinite::Pass pass);

// Which loss scales a step's gradients allow, judged from one run of it. Powers of two.
struct FittedScale {
  // The largest with which no stored gradient of the step overflows, at most kMaxLossScale, which
  // is the largest that a loss scaler takes; 0 where the run held infinities or NaN, so that the
  // true magnitudes are not known: run it again with a smaller scale. Exact for operations that are
  // linear in the gradient, up to what the run's own scale lost to underflow; accumulators inside
  // an operation are not seen.
  double largest = 0;
  std::string limit;  // the tensor that overflows first, or that none does
  // The smallest with which at most 1 - `kept` of the non-zero elements of the 16-bit gradients
  // lie below their format's smallest subnormal; 0 where no gradient is 16-bit. Elements that the
  // run's own scale flushed to zero are not seen.
  double smallest = 0;
  double kept = 0;
};

class Probe : public NodeObserver {
 public:
  explicit Probe(Context& context) : context_(context) {}

  // Forgets the last window. `scale`: the loss scale of the one to come.
  void begin(double scale);
  double scale() const { return scale_; }

  void ran_forward(std::int64_t index, const Operation& operation, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs) override;
  void runs_backward(std::int64_t index, const Node& node, const Tensor& gradient) override;
  void ran_backward(std::int64_t index, const Node& node) override;
  void has_gradients(const ParameterArena& parameters) override;

  // Outputs in the order of the forward pass, gradients in that of the backward pass, parameters in
  // the arena's. What the window did not reach is left out.
  std::vector<const ProbedTensor*> tensors() const;
  const NonFinite& first_nonfinite() const { return first_; }
  // kept: the share that `smallest` keeps, in (0, 1].
  FittedScale fitted_scale(double kept = 0.99) const;

 private:
  struct Seen {
    ProbedTensor output;
    ProbedTensor gradient;
  };
  Seen* node_at(std::int64_t index);
  void note_gradient(Seen& seen, const Tensor& gradient);
  void found(NonFinite::Pass pass, const Seen* seen, std::string tensor, DType dtype);

  Context& context_;
  double scale_ = 1;
  std::int64_t micro_batch_ = 0;
  bool backward_began_ = false;  // the next forward is of another micro-batch
  std::size_t forward_count_ = 0;
  std::deque<Seen> nodes_;
  std::vector<int> node_of_tape_;       // place in nodes_ by index on the tape; -1
  std::vector<int> node_of_value_;      // that made a value of the tape; -1
  std::vector<std::uint8_t> measured_;  // by place in nodes_: its gradient of this micro-batch
  std::vector<ProbedTensor> parameters_;
  NonFinite first_;
};

}  // namespace roundoff
