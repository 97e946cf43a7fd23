// A small owning operand for kernel tests, filled from and read back as doubles, and the pieces
// that tolerances are computed from (docs/numerics.md).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/base/convert.h"
#include "kernels/base/view.h"

namespace roundoff::test {

inline constexpr DType kFloating[] = {DType::fp64, DType::fp32, DType::fp16, DType::bf16};

class Operand {
 public:
  Operand(const Shape& shape, DType dtype)
      : bytes_(static_cast<std::size_t>(shape.numel()) * size_of(dtype) + 1, std::byte{0xA5}),
        view_{bytes_.data(), dtype, shape} {}
  Operand(const Shape& shape, DType dtype, const std::vector<double>& values)
      : Operand(shape, dtype) {
    REQUIRE(static_cast<std::int64_t>(values.size()) == shape.numel());
    for (std::size_t i = 0; i < values.size(); ++i) set(static_cast<std::int64_t>(i), values[i]);
  }
  Operand(const Operand& other) : bytes_(other.bytes_), view_(other.view_) {
    view_.data = bytes_.data();
  }
  Operand& operator=(const Operand&) = delete;

  void set(std::int64_t i, double value) {
    switch (view_.dtype) {
      case DType::i64:
        view_.as<std::int64_t>()[i] = static_cast<std::int64_t>(value);
        return;
      case DType::i32:
        view_.as<std::int32_t>()[i] = static_cast<std::int32_t>(value);
        return;
      case DType::u8:
        view_.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(value);
        return;
      default:
        narrow(&value, 1, view_, i);
    }
  }
  double operator[](std::int64_t i) const {
    double value = 0;
    widen(view_, i, 1, &value);
    return value;
  }
  std::vector<double> values() const {
    std::vector<double> v(static_cast<std::size_t>(view_.numel()));
    widen(view_, 0, view_.numel(), v.data());
    return v;
  }
  std::int64_t size() const { return view_.numel(); }
  const View& view() const { return view_; }
  operator ConstView() const { return view_; }
  Out out(Write write = Write::overwrite) const { return {view_, write}; }

 private:
  std::vector<std::byte> bytes_;
  View view_;
};

// Deterministic values in (-1, 1) without a random library.
class Values {
 public:
  explicit Values(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15U + 1) {}
  double next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<double>(static_cast<std::int64_t>(state_ >> 11)) * 0x1p-52 - 1;
  }
  std::vector<double> take(std::int64_t n, double scale = 1) {
    std::vector<double> v(static_cast<std::size_t>(n));
    for (double& x : v) x = scale * next();
    return v;
  }

 private:
  std::uint64_t state_;
};

// u = 2^-p of a type, and half its smallest subnormal.
constexpr double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return 0x1p-53;
    case DType::fp32:
      return 0x1p-24;
    case DType::fp16:
      return 0x1p-11;
    default:
      return 0x1p-8;
  }
}
constexpr double half_subnormal(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return 0;
    case DType::fp32:
      return 0x1p-150;
    case DType::fp16:
      return 0x1p-25;
    default:
      return 0x1p-134;
  }
}
// The type that a kernel computes in.
constexpr double arithmetic_roundoff(DType dtype) {
  return dtype == DType::fp64 ? 0x1p-53 : 0x1p-24;
}

constexpr double gamma(double k, double u) { return k * u / (1 - k * u); }

// Tolerance of a result that was computed within `error` of `value` and rounded once to `dtype`.
inline double rounded_tolerance(double value, double error, DType dtype) {
  return error + unit_roundoff(dtype) * (std::abs(value) + error) + half_subnormal(dtype);
}

}  // namespace roundoff::test
