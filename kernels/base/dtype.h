// The closed list of storage types, and one visitor over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "kernels/base/bfloat16.h"
#include "kernels/base/check.h"
#include "kernels/base/half.h"

namespace roundoff {

enum class DType : unsigned char { fp64, fp32, fp16, bf16, i64, i32, u8 };

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
    case DType::i64:
      return 8;
    case DType::fp32:
    case DType::i32:
      return 4;
    case DType::fp16:
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return "fp64";
    case DType::fp32:
      return "fp32";
    case DType::fp16:
      return "fp16";
    case DType::bf16:
      return "bf16";
    case DType::i64:
      return "int64";
    case DType::i32:
      return "int32";
    case DType::u8:
      return "uint8";
  }
  return "?";
}

constexpr bool is_floating(DType dtype) {
  return dtype == DType::fp64 || dtype == DType::fp32 || dtype == DType::fp16 ||
         dtype == DType::bf16;
}
constexpr bool is_16bit(DType dtype) { return dtype == DType::fp16 || dtype == DType::bf16; }

// The wider of two floating types; fp16 with bf16 gives fp32, which holds both exactly.
constexpr DType widest(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::fp64 || b == DType::fp64) return DType::fp64;
  return DType::fp32;
}

// Reads "fp16" and so on; throws an Error that names `text` and the list otherwise.
DType parse_dtype(std::string_view text);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::fp64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::fp32;
};
template <>
struct DTypeOf<Half> {
  static constexpr DType value = DType::fp16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = DTypeOf<T>::value;

// Calls f.template operator()<T>() with the storage type of `dtype`; throws, naming the operation,
// for a type that is not floating.
template <class F>
decltype(auto) visit_floating(DType dtype, std::string_view operation, F&& f) {
  switch (dtype) {
    case DType::fp64:
      return std::forward<F>(f).template operator()<double>();
    case DType::fp32:
      return std::forward<F>(f).template operator()<float>();
    case DType::fp16:
      return std::forward<F>(f).template operator()<Half>();
    case DType::bf16:
      return std::forward<F>(f).template operator()<BFloat16>();
    default:
      fail(operation, "does not take ", name(dtype), "; fp64, fp32, fp16 or bf16 expected");
  }
}

}  // namespace roundoff
