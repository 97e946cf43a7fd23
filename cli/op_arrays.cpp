#include "cli/op_arrays.h"

#include <algorithm>
#include <limits>

#include "engine/io/npy.h"
#include "engine/io/safetensors.h"
#include "kernels/base/convert.h"
#include "kernels/base/format.h"

namespace roundoff::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kBf16 = ":bf16";

// Held in uint16 by convention, as NumPy has no bf16.
void reinterpret_bf16(std::string_view flag, FileArray& a) {
  ROUNDOFF_CHECK(a.array.type == ElementType::u16 || a.array.type == ElementType::bf16, "op", flag,
                 " ", a.name, kBf16, ": ", a.file.string(), " holds ", name(a.array.type),
                 ", uint16 expected");
  a.array.type = ElementType::bf16;
}

FileArray read_npy_array(std::string_view flag, std::string_view left, const std::string& file) {
  FileArray a{std::string(left), file, {}};
  const bool bf16 = left.size() > kBf16.size() && left.substr(left.size() - kBf16.size()) == kBf16;
  if (bf16) a.name.resize(a.name.size() - kBf16.size());
  if (a.name.empty() || file.empty() || a.name.find(':') != std::string::npos)
    throw UsageError(concat("[op] ", flag, " ", left, "=", file,
                            ": NAME=FILE.npy or NAME:bf16=FILE.npy expected"));
  a.array = read_npy(file);
  if (bf16) reinterpret_bf16(flag, a);
  return a;
}

template <class T, class F>
void for_each_as(const HostArray& array, F& f) {
  const auto values = array.as<T>();
  for (std::size_t i = 0; i < values.size(); ++i) f(i, values[i]);
}
// f(index, value) with the element type of an integer array.
template <class F>
void for_each_integer(const HostArray& array, F f) {
  switch (array.type) {
    case ElementType::i64:
      return for_each_as<std::int64_t>(array, f);
    case ElementType::i32:
      return for_each_as<std::int32_t>(array, f);
    case ElementType::i16:
      return for_each_as<std::int16_t>(array, f);
    case ElementType::i8:
      return for_each_as<std::int8_t>(array, f);
    case ElementType::u64:
      return for_each_as<std::uint64_t>(array, f);
    case ElementType::u32:
      return for_each_as<std::uint32_t>(array, f);
    case ElementType::u16:
      return for_each_as<std::uint16_t>(array, f);
    default:
      return for_each_as<std::uint8_t>(array, f);
  }
}

// Rounded once, from 64 bits too.
template <class T>
double rounded_integer(T value, const Format& format) {
  const bool negative = value < T(0);
  auto magnitude = static_cast<std::uint64_t>(value);
  if (negative) magnitude = std::uint64_t{0} - magnitude;
  return round_to_format(ExactValue{.negative = negative, .significand = magnitude}, format).value;
}

}  // namespace

std::vector<FileArray> read_arrays(std::string_view flag, const std::vector<std::string>& texts) {
  std::vector<FileArray> arrays;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) {
      arrays.push_back(
          read_npy_array(flag, std::string_view(text).substr(0, equals), text.substr(equals + 1)));
      continue;
    }
    if (fs::path(text).extension() != ".safetensors")
      throw UsageError(concat("[op] ", flag, " ", text,
                              ": NAME=FILE.npy, NAME:bf16=FILE.npy or FILE.safetensors expected"));
    for (auto& [name, array] : read_safetensors(text).tensors)
      arrays.push_back({name, text, std::move(array)});
  }
  for (std::size_t i = 0; i < arrays.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (arrays[i].name == arrays[j].name)
        throw UsageError(concat("[op] ", flag, " gives ", in_quotes(arrays[i].name), " twice: ",
                                arrays[j].file.string(), " and ", arrays[i].file.string()));
  return arrays;
}

FileArray read_array(std::string_view flag, std::string_view name, const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string_view left = std::string_view(text).substr(0, equals);
  if (equals == std::string::npos) return read_npy_array(flag, name, text);
  if (left != name && left != concat(name, kBf16))
    // A path may hold an equals sign itself.
    return read_npy_array(flag, name, text);
  return read_npy_array(flag, left, text.substr(equals + 1));
}

bool is_floating(ElementType type) {
  const auto dtype = to_dtype(type);
  return dtype && roundoff::is_floating(*dtype);
}

Tensor to_operand(Context& context, std::string_view operation, const FileArray& from,
                  DType dtype) {
  const HostArray& a = from.array;
  ROUNDOFF_CHECK(a.type != ElementType::u16, operation, from.name, " in ", from.file.string(),
                 " is uint16, a floating type expected; bf16 bits are given as ", from.name,
                 ":bf16=FILE");
  Tensor t = Tensor::empty(context.allocator, a.shape, dtype);
  if (is_floating(a.type)) {
    convert(Ref{}, a.view(), t.view());
    return t;
  }
  std::vector<double> values(static_cast<std::size_t>(a.numel()));
  const Format format = format_of(dtype);
  for_each_integer(a,
                   [&](std::size_t i, auto value) { values[i] = rounded_integer(value, format); });
  narrow(values.data(), a.numel(), t.view(), 0);
  return t;
}

Tensor to_labels(Context& context, std::string_view operation, const FileArray& from) {
  Tensor t = Tensor::empty(context.allocator, from.array.shape, DType::i64);
  auto* labels = t.data<std::int64_t>();
  for_each_integer(from.array, [&](std::size_t i, auto value) {
    ROUNDOFF_CHECK(std::in_range<std::int64_t>(value), operation, from.name, " holds the label ",
                   value, " at position ", i, ", beyond int64");
    labels[i] = static_cast<std::int64_t>(value);
  });
  return t;
}

}  // namespace roundoff::cli
