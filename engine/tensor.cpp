#include "engine/tensor.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/device.h"
#include "kernels/base/convert.h"

namespace roundoff {

namespace {

// Integers are labels and counts: one that its type does not hold is an error, not another label.
template <class T>
void check_integers(std::span<const double> values, DType dtype) {
  const auto low = static_cast<double>(std::numeric_limits<T>::min());
  const double end = std::ldexp(1.0, std::numeric_limits<T>::digits);
  for (const double value : values)
    ROUNDOFF_CHECK(value >= low && value < end && value == std::trunc(value), "tensor", "value ",
                   value, " is not of type ", name(dtype));
}

template <class T>
void store_integers(std::span<const double> values, T* to) {
  for (const double value : values) *to++ = static_cast<T>(value);
}

void store(std::span<const double> values, const View& to) {
  if (is_floating(to.dtype)) narrow(values.data(), to.numel(), to, 0);
  if (to.dtype == DType::i64) store_integers(values, to.as<std::int64_t>());
  if (to.dtype == DType::i32) store_integers(values, to.as<std::int32_t>());
  if (to.dtype == DType::u8) store_integers(values, to.as<std::uint8_t>());
}

}  // namespace

Tensor Tensor::empty(Allocator& allocator, const Shape& shape, DType dtype,
                     MemoryCategory category) {
  const auto n = static_cast<std::size_t>(shape.numel());
  ROUNDOFF_CHECK(n <= std::numeric_limits<std::size_t>::max() / size_of(dtype), "tensor", "shape ",
                 shape, " of ", name(dtype), " leaves 64 bit");
  return {allocator.allocate(n * size_of(dtype), category), 0, shape, dtype};
}

Tensor Tensor::zeros(Allocator& allocator, const Shape& shape, DType dtype,
                     MemoryCategory category) {
  Tensor t = empty(allocator, shape, dtype, category);
  t.zero();
  return t;
}

Tensor Tensor::from(Allocator& allocator, std::span<const double> values, const Shape& shape,
                    DType dtype) {
  ROUNDOFF_CHECK(static_cast<std::int64_t>(values.size()) == shape.numel(), "tensor", values.size(),
                 " values for shape ", shape);
  if (dtype == DType::i64) check_integers<std::int64_t>(values, dtype);
  if (dtype == DType::i32) check_integers<std::int32_t>(values, dtype);
  if (dtype == DType::u8) check_integers<std::uint8_t>(values, dtype);
  Tensor t = empty(allocator, shape, dtype);
  if (t.device() == Device::cpu) {
    store(values, t.view());
  } else {
    std::vector<std::byte> bytes(t.bytes());
    store(values, {bytes.data(), dtype, shape});
    t.write(bytes.data());
  }
  return t;
}

Tensor Tensor::with_shape(const Shape& shape) const {
  ROUNDOFF_CHECK(defined(), "reshape", "the tensor is undefined");
  ROUNDOFF_CHECK(shape.numel() == numel(), "reshape", "shape ", shape_, " has ", numel(),
                 " elements, ", shape, " has ", shape.numel());
  return {storage_, offset_, shape, dtype_};
}

Tensor Tensor::slice(std::int64_t offset, const Shape& shape) const {
  ROUNDOFF_CHECK(defined(), "slice", "the tensor is undefined");
  ROUNDOFF_CHECK(offset >= 0 && shape.numel() <= numel() - offset, "slice", "shape ", shape, " at ",
                 offset, " is outside of ", numel(), " elements");
  return {storage_, offset_ + static_cast<std::size_t>(offset) * size_of(dtype_), shape, dtype_};
}

double Tensor::at(std::int64_t i) const {
  ROUNDOFF_CHECK(defined(), "tensor", "element ", i, " of an undefined tensor");
  ROUNDOFF_CHECK(i >= 0 && i < numel(), "tensor", "element ", i, " of shape ", shape_);
  double value = 0;
  if (DeviceQueue* queue = storage_.queue()) {
    std::array<std::byte, sizeof(double)> element;
    const std::size_t size = size_of(dtype_);
    const auto* from = static_cast<const std::byte*>(raw());
    queue->read(element.data(), from + static_cast<std::size_t>(i) * size, size);
    widen({element.data(), dtype_, Shape{}}, 0, 1, &value);
  } else {
    widen(view(), i, 1, &value);
  }
  return value;
}

std::vector<double> Tensor::to_vector() const {
  ROUNDOFF_CHECK(defined(), "tensor", "elements of an undefined tensor");
  std::vector<double> values(static_cast<std::size_t>(numel()));
  if (device() == Device::cpu) {
    widen(view(), 0, numel(), values.data());
  } else {
    std::vector<std::byte> held(bytes());
    read(held.data());
    widen({held.data(), dtype_, shape_}, 0, numel(), values.data());
  }
  return values;
}

double Tensor::item() const {
  ROUNDOFF_CHECK(defined(), "tensor", "the element of an undefined tensor");
  ROUNDOFF_CHECK(numel() == 1, "tensor", "one element expected, shape is ", shape_);
  return at(0);
}

Device Tensor::device() const {
  const DeviceQueue* queue = storage_.queue();
  return queue == nullptr ? Device::cpu : queue->device();
}

void Tensor::read(void* to) const {
  if (DeviceQueue* queue = storage_.queue())
    queue->read(to, raw(), bytes());
  else if (bytes() != 0)
    std::memcpy(to, raw(), bytes());
}

void Tensor::write(const void* from) const {
  if (DeviceQueue* queue = storage_.queue())
    queue->write(raw(), from, bytes());
  else if (bytes() != 0)
    std::memcpy(raw(), from, bytes());
}

void Tensor::copy_from(const Tensor& other) const {
  ROUNDOFF_CHECK(other.defined() && other.dtype_ == dtype_ && other.numel() == numel(), "copy",
                 "from ", name(other.dtype_), " of shape ", other.shape_, " to ", name(dtype_),
                 " of shape ", shape_);
  DeviceQueue* queue = storage_.queue();
  DeviceQueue* theirs = other.storage_.queue();
  if (theirs == nullptr) {
    write(other.raw());
  } else if (queue == theirs) {
    queue->copy(raw(), other.raw(), bytes());
  } else if (queue == nullptr) {
    other.read(raw());
  } else {
    std::vector<std::byte> held(bytes());
    other.read(held.data());
    write(held.data());
  }
}

void Tensor::zero() const {
  if (DeviceQueue* queue = storage_.queue())
    queue->zero(raw(), bytes());
  else if (bytes() != 0)
    std::memset(raw(), 0, bytes());
}

Tensor Tensor::to(Allocator& allocator, MemoryCategory category) const {
  ROUNDOFF_CHECK(defined(), "tensor", "an undefined tensor cannot be copied");
  Tensor copy = empty(allocator, shape_, dtype_, category);
  copy.copy_from(*this);
  return copy;
}

Tensor on_host(const Tensor& tensor) {
  if (!tensor.defined() || tensor.device() == Device::cpu) return tensor;
  Allocator host;  // its block outlives it
  return tensor.to(host);
}

Tensor make_leaf(Allocator& allocator, Tensor tensor, std::string name) {
  ROUNDOFF_CHECK(tensor.defined(), "leaf", "'", name, "' is undefined");
  ROUNDOFF_CHECK(is_floating(tensor.dtype()), "leaf", "a gradient needs a floating type, '", name,
                 "' is ", roundoff::name(tensor.dtype()));
  auto leaf = std::make_shared<Leaf>();
  leaf->name = std::move(name);
  const DType grad = tensor.dtype() == DType::fp64 ? DType::fp64 : DType::fp32;
  leaf->grad = Tensor::empty(allocator, tensor.shape(), grad, MemoryCategory::gradients);
  Tensor result = tensor.detached();
  result.set_leaf(std::move(leaf));
  return result;
}

}  // namespace roundoff
