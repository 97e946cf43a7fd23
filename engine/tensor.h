// A tensor: a shape and a dtype over counted storage; row-major, contiguous. A cheap value to copy:
// copies share storage. Where it was made on a tape, or which leaf it is, travels with it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/storage.h"
#include "kernels/base/view.h"

namespace roundoff {

struct Leaf;

// Where on a tape a value stands. Tapes give each recording its own generation, so that a value of
// an earlier recording is never mistaken for one of this.
struct ValueRef {
  std::uint64_t generation = 0;
  std::int32_t index = -1;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: an absent optional operand
  Tensor(Storage storage, std::size_t offset_bytes, const Shape& shape, DType dtype)
      : storage_(std::move(storage)), offset_(offset_bytes), shape_(shape), dtype_(dtype) {}

  // Not initialised.
  static Tensor empty(Allocator& allocator, const Shape& shape, DType dtype,
                      MemoryCategory category = MemoryCategory::workspace);
  static Tensor zeros(Allocator& allocator, const Shape& shape, DType dtype,
                      MemoryCategory category = MemoryCategory::workspace);
  // Values in row-major order, rounded to a floating `dtype` (RNE); an integer dtype takes whole
  // numbers in its range. Throws otherwise, and where their number is wrong.
  static Tensor from(Allocator& allocator, std::span<const double> values, const Shape& shape,
                     DType dtype);

  bool defined() const { return static_cast<bool>(storage_); }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  std::int64_t numel() const { return shape_.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }

  Device device() const;
  // Where the elements are: the host can dereference it for a tensor of cpu only.
  void* raw() const { return storage_.data() + offset_; }
  template <class T>
  T* data() const {
    return static_cast<T*>(raw());
  }
  View view() const { return {raw(), dtype_, shape_}; }
  // An undefined tensor gives an absent view.
  ConstView const_view() const { return defined() ? ConstView(view()) : ConstView::absent(); }

  // The same elements under another shape, without a tape: ops::reshape is the recorded one.
  Tensor with_shape(const Shape& shape) const;
  // shape.numel() elements from element `offset` on, sharing the storage; a constant.
  Tensor slice(std::int64_t offset, const Shape& shape) const;
  // The same storage without its place on the tape: a constant.
  Tensor detached() const { return {storage_, offset_, shape_, dtype_}; }

  // What follows brings elements to the host or takes them from it, whatever the device. Reading a
  // device's tensor waits for all work that its stream has; writing does not.

  // Element i in row-major order, widened.
  double at(std::int64_t i) const;
  std::vector<double> to_vector() const;
  // The one element; throws where there are more.
  double item() const;
  // All bytes(), in the tensor's dtype and row-major order.
  void read(void* to) const;
  void write(const void* from) const;
  // The elements of a tensor of the same dtype and size, of any device.
  void copy_from(const Tensor& other) const;
  void zero() const;
  // A constant with the same elements, in the allocator's memory.
  Tensor to(Allocator& allocator, MemoryCategory category = MemoryCategory::workspace) const;

  const std::shared_ptr<Leaf>& leaf() const { return leaf_; }
  void set_leaf(std::shared_ptr<Leaf> leaf) { leaf_ = std::move(leaf); }
  const ValueRef& value() const { return value_; }
  void set_value(ValueRef value) { value_ = value; }

 private:
  Storage storage_;
  std::size_t offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::fp32;
  ValueRef value_;
  std::shared_ptr<Leaf> leaf_;
};

// The tensor itself where the host holds it, else a copy of its elements that the host can read.
Tensor on_host(const Tensor& tensor);

// What a gradient belongs to: a parameter, or a person's own tensor.
struct Leaf {
  std::string name;
  // The gradient's sum since the last zeroing: fp32 (fp64 for fp64 values), never 16 bit.
  Tensor grad;
  // False until a backward pass reaches the leaf: absent is not zero.
  bool has_grad = false;
  // Counts changes of the value; what was computed from an older one is stale.
  std::uint64_t version = 0;
  // The value rounded to 16 bit, and the version that it was rounded from.
  Tensor compute_copy;
  std::uint64_t compute_version = ~std::uint64_t{0};
  // Where the leaf stands on the tape that saw it last.
  ValueRef value;

  void zero_grad() { has_grad = false; }
};

// Makes `tensor` a leaf, whose gradient backward passes add up in leaf()->grad.
Tensor make_leaf(Allocator& allocator, Tensor tensor, std::string name = "leaf");

}  // namespace roundoff
