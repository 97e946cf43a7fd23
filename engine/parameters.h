// The parameters of a model in flat arenas: masters, gradients and the 16-bit compute copy are one
// allocation each; a parameter is a view into them. Declare everything first (add, add_buffer),
// then allocate once.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/tensor.h"

namespace roundoff {

class ParameterArena;

// How a parameter starts. Values are drawn in fp32 and are the same for every dtype.
enum class Init : unsigned char {
  zeros,
  ones,
  // Uniform in +-1/sqrt(fan_in), PyTorch's default for linear and convolution layers.
  uniform_fan_in,
  // Standard normal, as PyTorch starts embeddings.
  normal
};

// A handle that stays valid while the arena lives; usable as a tensor after allocate().
class Parameter {
 public:
  Parameter() = default;
  operator const Tensor&() const;
  const Tensor& tensor() const;
  bool declared() const { return arena_ != nullptr; }

 private:
  friend class ParameterArena;
  Parameter(const ParameterArena* arena, std::size_t index) : arena_(arena), index_(index) {}
  const ParameterArena* arena_ = nullptr;
  std::size_t index_ = 0;
};

// State that is not trained (BatchNorm's running statistics). A training step reads and writes
// `staged`; what it wrote becomes `value` only when the step commits, and is dropped when the step
// is skipped.
struct Buffer {
  std::string name;
  Shape shape;
  double initial = 0;
  DType dtype = DType::fp32;
  Tensor value;
  Tensor staged;
};

struct ParameterEntry {
  std::string name;
  Shape shape;
  Init init = Init::zeros;
  std::int64_t fan_in = 1;
  std::int64_t offset = 0;  // elements from the start of every flat block
  Tensor tensor;            // a leaf
  std::int64_t steps = 0;   // updates so far
};

struct ArenaSettings {
  // fp32 masters; fp16 or bf16 for training without masters; fp64 for the oracle.
  DType master = DType::fp32;
  // The type of the compute copy, fp32 for none. Only with fp32 masters.
  DType compute = DType::fp32;
  std::uint64_t seed = 0;
};

class ParameterArena {
 public:
  ParameterArena() = default;
  ParameterArena(const ParameterArena&) = delete;
  ParameterArena& operator=(const ParameterArena&) = delete;

  // Names are unique; throws otherwise, and after allocate().
  Parameter add(std::string name, const Shape& shape, Init init, std::int64_t fan_in = 1);
  Buffer& add_buffer(std::string name, const Shape& shape, double initial,
                     DType dtype = DType::fp32);

  // Allocates and initialises. Masters are drawn from Philox keyed by (seed, parameter).
  void allocate(Allocator& allocator, const ArenaSettings& settings);

  const std::deque<ParameterEntry>& entries() const { return entries_; }
  std::deque<ParameterEntry>& entries() { return entries_; }
  const std::deque<Buffer>& buffers() const { return buffers_; }
  std::deque<Buffer>& buffers() { return buffers_; }
  const ArenaSettings& settings() const { return settings_; }
  bool allocated() const { return master_.defined(); }
  // Number of trained elements.
  std::int64_t numel() const;
  // Elements of a flat block, padding included: in every block, whatever its type, parameters start
  // at multiples of 128 bytes from the block's start.
  std::int64_t flat_size() const { return flat_size_; }
  const Tensor& flat_master() const { return master_; }
  const Tensor& flat_gradient() const { return gradient_; }
  const Tensor& flat_compute() const { return compute_; }

  // What follows throws before allocate().

  // Marks every gradient absent.
  void zero_grad();
  // Says that the masters changed: cached roundings of them are stale. `copies_written`: by an
  // update, which left parameters without a gradient alone and wrote the others' compute copies.
  void changed(bool copies_written);
  // Staged buffers become the values, or the other way about.
  void commit_buffers();
  void discard_buffers();

 private:
  void check_allocated() const;

  std::deque<ParameterEntry> entries_;
  std::deque<Buffer> buffers_;
  ArenaSettings settings_;
  std::int64_t flat_size_ = 0;
  Tensor master_;
  Tensor gradient_;
  Tensor compute_;
};

}  // namespace roundoff
