// An array of any dtype for tests of kernels: values in and out as fp64, guarded memory, and an
// optional offset of the first element, so that it is aligned to its element only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "kernels/base/convert.h"
#include "kernels/base/view.h"

namespace roundoff::test {

class Array {
 public:
  // Not-a-number everywhere (-1 for integers), so that an element that nobody wrote shows.
  Array(DType dtype, const Shape& shape, std::int64_t offset = 0)
      : dtype_(dtype),
        shape_(shape),
        memory_(
            (kGuard + static_cast<std::size_t>(offset + shape.numel())) * size_of(dtype) + kGuard,
            std::byte{0xFF}),
        start_((kGuard + static_cast<std::size_t>(offset)) * size_of(dtype)) {}
  Array(DType dtype, const Shape& shape, std::span<const double> values, std::int64_t offset = 0)
      : Array(dtype, shape, offset) {
    ROUNDOFF_CHECK(static_cast<std::int64_t>(values.size()) == shape.numel(), "test", "values");
    const auto copy = [&](auto* to) {
      for (const double value : values) *to++ = static_cast<std::decay_t<decltype(*to)>>(value);
    };
    if (dtype == DType::i64) copy(view().as<std::int64_t>());
    if (dtype == DType::i32) copy(view().as<std::int32_t>());
    if (dtype == DType::u8) copy(view().as<std::uint8_t>());
    if (is_floating(dtype)) convert(Ref{}, {values.data(), DType::fp64, shape}, out());
  }
  Array(DType dtype, const Shape& shape, const std::vector<double>& values)
      : Array(dtype, shape, std::span<const double>(values)) {}
  Array(DType dtype, const Shape& shape, std::initializer_list<double> values)
      : Array(dtype, shape, std::span<const double>(values.begin(), values.size())) {}

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  View view() { return {memory_.data() + start_, dtype_, shape_}; }
  ConstView view() const { return {memory_.data() + start_, dtype_, shape_}; }
  ConstView operator*() const { return view(); }
  operator ConstView() const { return view(); }
  Out out(Write write = Write::overwrite) { return {view(), write}; }
  double operator[](std::int64_t i) const {
    double value = 0;
    widen(view(), i, 1, &value);
    return value;
  }
  std::int64_t size() const { return shape_.numel(); }
  std::vector<double> values() const {
    std::vector<double> v(static_cast<std::size_t>(shape_.numel()));
    widen(view(), 0, shape_.numel(), v.data());
    return v;
  }
  // All of it: guards, offset and values; first_byte() of them are before the first value.
  std::span<std::byte> memory() { return memory_; }
  std::span<const std::byte> memory() const { return memory_; }
  std::size_t first_byte() const { return start_; }
  bool guards_intact() const {
    const auto untouched = [](std::byte b) { return b == std::byte{0xFF}; };
    const auto end = start_ + static_cast<std::size_t>(shape_.numel()) * size_of(dtype_);
    return std::all_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(start_),
                       untouched) &&
           std::all_of(memory_.begin() + static_cast<std::ptrdiff_t>(end), memory_.end(),
                       untouched);
  }

 private:
  static constexpr std::size_t kGuard = 64;
  DType dtype_;
  Shape shape_;
  std::vector<std::byte> memory_;
  std::size_t start_;
};

inline std::vector<double> ones(std::int64_t n) {
  return std::vector<double>(static_cast<std::size_t>(n), 1.0);
}

// Standard normal values, already rounded to `dtype`.
inline std::vector<double> normal(std::int64_t n, DType dtype, std::mt19937& random) {
  std::normal_distribution<double> distribution;
  std::vector<double> v(static_cast<std::size_t>(n));
  for (double& x : v) x = distribution(random);
  return Array(dtype, {n}, v).values();
}

inline std::vector<double> absolute(std::vector<double> v) {
  for (double& x : v) x = x < 0 ? -x : x;
  return v;
}

}  // namespace roundoff::test
