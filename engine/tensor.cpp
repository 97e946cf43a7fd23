#include "engine/tensor.h"

#include <cstring>

#include "kernels/base/convert.h"

namespace roundoff {

Tensor Tensor::empty(Allocator& allocator, const Shape& shape, DType dtype,
                     MemoryCategory category) {
  const auto n = static_cast<std::size_t>(shape.numel());
  return {allocator.allocate(n * size_of(dtype), category), 0, shape, dtype};
}

Tensor Tensor::zeros(Allocator& allocator, const Shape& shape, DType dtype,
                     MemoryCategory category) {
  Tensor t = empty(allocator, shape, dtype, category);
  std::memset(t.raw(), 0, t.bytes());
  return t;
}

Tensor Tensor::from(Allocator& allocator, std::span<const double> values, const Shape& shape,
                    DType dtype) {
  ROUNDOFF_CHECK(static_cast<std::int64_t>(values.size()) == shape.numel(), "tensor", values.size(),
                 " values for shape ", shape);
  Tensor t = empty(allocator, shape, dtype);
  if (is_floating(dtype)) {
    narrow(values.data(), t.numel(), t.view(), 0);
    return t;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::i64) t.data<std::int64_t>()[i] = static_cast<std::int64_t>(values[i]);
    if (dtype == DType::i32) t.data<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
    if (dtype == DType::u8) t.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(values[i]);
  }
  return t;
}

Tensor Tensor::with_shape(const Shape& shape) const {
  ROUNDOFF_CHECK(shape.numel() == numel(), "reshape", "shape ", shape_, " has ", numel(),
                 " elements, ", shape, " has ", shape.numel());
  return {storage_, offset_, shape, dtype_};
}

Tensor Tensor::slice(std::int64_t offset, const Shape& shape) const {
  ROUNDOFF_CHECK(offset >= 0 && shape.numel() <= numel() - offset, "slice", "shape ", shape, " at ",
                 offset, " is outside of ", numel(), " elements");
  return {storage_, offset_ + static_cast<std::size_t>(offset) * size_of(dtype_), shape, dtype_};
}

double Tensor::at(std::int64_t i) const {
  ROUNDOFF_CHECK(i >= 0 && i < numel(), "tensor", "element ", i, " of shape ", shape_);
  double value = 0;
  widen(view(), i, 1, &value);
  return value;
}

std::vector<double> Tensor::to_vector() const {
  std::vector<double> values(static_cast<std::size_t>(numel()));
  widen(view(), 0, numel(), values.data());
  return values;
}

double Tensor::item() const {
  ROUNDOFF_CHECK(defined() && numel() == 1, "tensor", "one element expected, shape is ", shape_);
  return at(0);
}

Tensor make_leaf(Allocator& allocator, Tensor tensor, std::string name) {
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
