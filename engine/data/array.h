// Arrays as files hold them: every element type of the .npy and safetensors formats, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/view.h"

namespace roundoff {

// Wider than DType on purpose: these are only stored, shown and converted, never computed with.
enum class ElementType : unsigned char {
  fp64,
  fp32,
  fp16,
  bf16,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean
};
inline constexpr int kElementTypes = 13;

constexpr std::size_t size_of(ElementType type) {
  switch (type) {
    case ElementType::fp64:
    case ElementType::i64:
    case ElementType::u64:
      return 8;
    case ElementType::fp32:
    case ElementType::i32:
    case ElementType::u32:
      return 4;
    case ElementType::fp16:
    case ElementType::bf16:
    case ElementType::i16:
    case ElementType::u16:
      return 2;
    case ElementType::i8:
    case ElementType::u8:
    case ElementType::boolean:
      return 1;
  }
  return 0;
}

constexpr std::string_view name(ElementType type) {
  constexpr std::string_view kNames[kElementTypes] = {"fp64",   "fp32",  "fp16", "bf16",   "int64",
                                                      "int32",  "int16", "int8", "uint64", "uint32",
                                                      "uint16", "uint8", "bool"};
  return kNames[static_cast<int>(type)];
}

constexpr ElementType element_type(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return ElementType::fp64;
    case DType::fp32:
      return ElementType::fp32;
    case DType::fp16:
      return ElementType::fp16;
    case DType::bf16:
      return ElementType::bf16;
    case DType::i64:
      return ElementType::i64;
    case DType::i32:
      return ElementType::i32;
    case DType::u8:
      break;
  }
  return ElementType::u8;
}

// The DType with the same storage, where there is one; bool has none.
constexpr std::optional<DType> to_dtype(ElementType type) {
  switch (type) {
    case ElementType::fp64:
      return DType::fp64;
    case ElementType::fp32:
      return DType::fp32;
    case ElementType::fp16:
      return DType::fp16;
    case ElementType::bf16:
      return DType::bf16;
    case ElementType::i64:
      return DType::i64;
    case ElementType::i32:
      return DType::i32;
    case ElementType::u8:
      return DType::u8;
    default:
      return std::nullopt;
  }
}

// numel * size_of(type), or nothing where that leaves 63 bit or an extent is negative. Zero extents
// make zero, however large the others are.
constexpr std::optional<std::uint64_t> byte_count(ElementType type,
                                                  std::span<const std::int64_t> extents) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 63;
  std::uint64_t count = size_of(type);
  bool empty = false;
  for (const std::int64_t extent : extents) {
    if (extent < 0) return std::nullopt;
    const auto n = static_cast<std::uint64_t>(extent);
    if (n == 0) {
      empty = true;
      continue;
    }
    if (count > (kMost - 1) / n) return std::nullopt;
    count *= n;
  }
  return empty ? 0 : count;
}

// An owning, row-major array; elements in the machine's byte order (little endian).
struct HostArray {
  ElementType type = ElementType::fp32;
  Shape shape;
  std::vector<std::byte> bytes;

  HostArray() = default;
  HostArray(ElementType t, const Shape& s)
      : type(t), shape(s), bytes(static_cast<std::size_t>(s.numel()) * size_of(t)) {}

  std::int64_t numel() const { return shape.numel(); }
  // T must be of the element's size; nothing is converted.
  template <class T>
  std::span<T> as() {
    ROUNDOFF_CHECK(sizeof(T) == size_of(type), "array", name(type), " read as ", sizeof(T),
                   " byte elements");
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <class T>
  std::span<const T> as() const {
    ROUNDOFF_CHECK(sizeof(T) == size_of(type), "array", name(type), " read as ", sizeof(T),
                   " byte elements");
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // Throws for a type that no DType has.
  ConstView view() const {
    const auto dtype = to_dtype(type);
    ROUNDOFF_CHECK(dtype.has_value(), "array", "nothing computes with ", name(type));
    return {bytes.data(), *dtype, shape};
  }
};

}  // namespace roundoff
