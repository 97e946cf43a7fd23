#include "engine/parameters.h"

#include <algorithm>
#include <cmath>

#include "engine/data/random.h"
#include "kernels/base/convert.h"

namespace roundoff {

namespace {

// In elements: 128 bytes of the narrowest type that a block may have.
constexpr std::int64_t kAlignment = 64;

Tensor slice(const Tensor& flat, const ParameterEntry& entry) {
  // A slice of the block: the same storage at the parameter's offset.
  return flat.slice(entry.offset, entry.shape);
}

std::vector<float> initial_values(const ParameterEntry& entry, std::uint64_t seed,
                                  std::uint64_t number) {
  std::vector<float> values(static_cast<std::size_t>(entry.shape.numel()));
  RandomStream random(seed, RandomUse::initial_weights, number);
  const double fan_in = static_cast<double>(std::max<std::int64_t>(entry.fan_in, 1));
  const double bound = 1.0 / std::sqrt(fan_in);
  for (float& value : values) {
    switch (entry.init) {
      case Init::zeros:
        value = 0;
        break;
      case Init::ones:
        value = 1;
        break;
      case Init::uniform_fan_in:
        value = static_cast<float>(random.uniform(-bound, bound));
        break;
      case Init::normal:
        value = static_cast<float>(random.normal());
        break;
    }
  }
  return values;
}

// Rounds on the host, for every device.
void assign(const std::vector<float>& values, const Tensor& to) {
  std::vector<std::byte> bytes(to.bytes());
  narrow(values.data(), to.numel(), View{bytes.data(), to.dtype(), to.shape()}, 0);
  to.write(bytes.data());
}

}  // namespace

Parameter::operator const Tensor&() const { return tensor(); }

const Tensor& Parameter::tensor() const {
  ROUNDOFF_CHECK(arena_ != nullptr && arena_->allocated(), "parameters",
                 "a parameter is used before its arena is allocated");
  return arena_->entries()[index_].tensor;
}

Parameter ParameterArena::add(std::string name, const Shape& shape, Init init,
                              std::int64_t fan_in) {
  ROUNDOFF_CHECK(!allocated(), "parameters", "'", name, "' is added after allocation");
  for (const ParameterEntry& e : entries_)
    ROUNDOFF_CHECK(e.name != name, "parameters", "the name '", name, "' is taken");
  ParameterEntry& entry = entries_.emplace_back();
  entry.name = std::move(name);
  entry.shape = shape;
  entry.init = init;
  entry.fan_in = fan_in;
  entry.offset = flat_size_;
  flat_size_ += (shape.numel() + kAlignment - 1) / kAlignment * kAlignment;
  return {this, entries_.size() - 1};
}

Buffer& ParameterArena::add_buffer(std::string name, const Shape& shape, double initial,
                                   DType dtype) {
  ROUNDOFF_CHECK(!allocated(), "parameters", "buffer '", name, "' is added after allocation");
  for (const Buffer& b : buffers_)
    ROUNDOFF_CHECK(b.name != name, "parameters", "the buffer name '", name, "' is taken");
  Buffer& buffer = buffers_.emplace_back();
  buffer.name = std::move(name);
  buffer.shape = shape;
  buffer.initial = initial;
  buffer.dtype = dtype;
  return buffer;
}

void ParameterArena::allocate(Allocator& allocator, const ArenaSettings& settings) {
  ROUNDOFF_CHECK(!allocated(), "parameters", "the arena is allocated already");
  ROUNDOFF_CHECK(is_floating(settings.master), "parameters", "masters of type ",
                 name(settings.master), "; a floating type expected");
  const bool copies = settings.compute != DType::fp32;
  ROUNDOFF_CHECK(!copies || (settings.master == DType::fp32 && is_16bit(settings.compute)),
                 "parameters", "a compute copy of type ", name(settings.compute),
                 " beside masters of ", name(settings.master),
                 "; fp16 or bf16 beside fp32 expected");
  settings_ = settings;
  const Shape flat{flat_size_};
  const DType grad = settings.master == DType::fp64 ? DType::fp64 : DType::fp32;
  master_ = Tensor::zeros(allocator, flat, settings.master, MemoryCategory::parameters);
  gradient_ = Tensor::zeros(allocator, flat, grad, MemoryCategory::gradients);
  if (copies)
    compute_ = Tensor::zeros(allocator, flat, settings.compute, MemoryCategory::parameters);
  std::uint64_t number = 0;
  for (ParameterEntry& entry : entries_) {
    auto leaf = std::make_shared<Leaf>();
    leaf->name = entry.name;
    leaf->grad = slice(gradient_, entry);
    if (copies) leaf->compute_copy = slice(compute_, entry);
    entry.tensor = slice(master_, entry);
    entry.tensor.set_leaf(std::move(leaf));
    const std::vector<float> values = initial_values(entry, settings.seed, number++);
    assign(values, entry.tensor);
    if (!copies) continue;
    assign(values, entry.tensor.leaf()->compute_copy);
    entry.tensor.leaf()->compute_version = 0;
  }
  for (Buffer& buffer : buffers_) {
    buffer.value = Tensor::empty(allocator, buffer.shape, buffer.dtype, MemoryCategory::parameters);
    const std::vector<double> values(static_cast<std::size_t>(buffer.shape.numel()),
                                     buffer.initial);
    buffer.value.copy_from(Tensor::from(allocator, values, buffer.shape, buffer.dtype));
    buffer.staged =
        Tensor::empty(allocator, buffer.shape, buffer.dtype, MemoryCategory::parameters);
  }
  discard_buffers();
}

std::int64_t ParameterArena::numel() const {
  std::int64_t n = 0;
  for (const ParameterEntry& e : entries_) n += e.shape.numel();
  return n;
}

void ParameterArena::check_allocated() const {
  ROUNDOFF_CHECK(allocated(), "parameters", "the arena is not allocated");
}

void ParameterArena::zero_grad() {
  check_allocated();
  for (ParameterEntry& e : entries_) e.tensor.leaf()->zero_grad();
}

void ParameterArena::changed(bool copies_written) {
  check_allocated();
  for (ParameterEntry& e : entries_) {
    Leaf& leaf = *e.tensor.leaf();
    if (copies_written && !leaf.has_grad) continue;
    ++leaf.version;
    // A leaf may hold a copy of its own, in another type than the arena's.
    const bool own =
        copies_written && compute_.defined() && leaf.compute_copy.raw() == slice(compute_, e).raw();
    if (own) leaf.compute_version = leaf.version;
  }
}

void ParameterArena::commit_buffers() {
  check_allocated();
  for (Buffer& b : buffers_) b.value.copy_from(b.staged);
}

void ParameterArena::discard_buffers() {
  check_allocated();
  for (Buffer& b : buffers_) b.staged.copy_from(b.value);
}

}  // namespace roundoff
