// Shapes, and the views that kernels take: a pointer, a dtype and a shape; row-major, contiguous.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>
#include <span>

#include "kernels/base/check.h"
#include "kernels/base/dtype.h"

namespace roundoff {

inline constexpr int kMaxRank = 8;

// Up to kMaxRank extents, each >= 0; rank 0 is a scalar with one element.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents)
      : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}
  // Throws for a negative extent, too many axes, or a product that leaves int64.
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  // axis in [0, rank), or negative and counted from the end.
  std::int64_t operator[](int axis) const {
    return extents_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)];
  }
  void set(int axis, std::int64_t extent) {
    extents_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)] = extent;
  }
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= extents_[static_cast<std::size_t>(i)];
    return n;
  }
  std::span<const std::int64_t> extents() const {
    return {extents_.data(), static_cast<std::size_t>(rank_)};
  }
  // Turns a possibly negative axis into one in [0, rank); throws, naming the operation.
  int normalize_axis(std::int64_t axis, std::string_view operation) const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
  // Prints as [2, 3, 4].
  friend std::ostream& operator<<(std::ostream& out, const Shape& shape);

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

struct ConstView {
  const void* data = nullptr;
  DType dtype = DType::fp32;
  Shape shape;

  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  std::int64_t numel() const { return shape.numel(); }
  // An absent optional operand is a view without data and without a shape's meaning.
  bool present = true;
  static ConstView absent() {
    ConstView v;
    v.present = false;
    return v;
  }
};

struct View {
  void* data = nullptr;
  DType dtype = DType::fp32;
  Shape shape;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  std::int64_t numel() const { return shape.numel(); }
  operator ConstView() const { return {data, dtype, shape}; }
};

// What a kernel does with what its output already holds.
enum class Write : unsigned char { overwrite, accumulate };

// An output. `accumulate` (y += result) is only asked of fp32 and fp64, so that no sum is ever
// held in 16 bit. An output with `wanted == false` is not computed.
struct Out {
  View view;
  Write write = Write::overwrite;
  bool wanted = true;

  Out() : wanted(false) {}
  Out(const View& v, Write w = Write::overwrite) : view(v), write(w) {}
};

}  // namespace roundoff
