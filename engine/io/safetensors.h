// safetensors: an 8-byte little-endian header length, a JSON object of names to {dtype, shape,
// data_offsets} with an optional "__metadata__" map of strings, then the tensors' bytes.
// Source: the format's description in the safetensors library.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "engine/data/array.h"
#include "engine/io/file.h"

namespace roundoff {

using Metadata = std::map<std::string, std::string>;

// The metadata key under which a file carries its own checksum: the SHA-256 of all that it means,
// that is its other metadata, every name, type, shape and the data.
inline constexpr std::string_view kChecksumKey = "roundoff.sha256";
// The specification's limit on the header, bytes.
inline constexpr std::uint64_t kMostSafetensorsHeader = 100'000'000;

struct SafetensorsFile {
  std::map<std::string, HostArray> tensors;
  Metadata metadata;         // without the checksum
  bool checksummed = false;  // the file carried a checksum, and it holds
};

// Reads the whole file or throws FileError. Refused before any tensor is allocated: a header length
// that the file or the specification does not allow; JSON of any other form; duplicate names; a
// dtype other than F64 F32 F16 BF16 I64 I32 I16 I8 U64 U32 U16 U8 BOOL; a size that is not
// shape x dtype; offsets out of range, overlapping or leaving a gap; more than kMaxRank axes.
SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, std::string_view origin);
SafetensorsFile read_safetensors(const std::filesystem::path& path);

// A tensor to be written; the bytes stay the caller's.
struct TensorBytes {
  std::string name;
  ElementType type = ElementType::fp32;
  Shape shape;
  std::span<const std::byte> bytes;

  TensorBytes(std::string n, ElementType t, const Shape& s, std::span<const std::byte> b)
      : name(std::move(n)), type(t), shape(s), bytes(b) {}
  TensorBytes(std::string n, const HostArray& a)
      : TensorBytes(std::move(n), a.type, a.shape, a.bytes) {}
  TensorBytes(std::string n, const ConstView& v)
      : TensorBytes(std::move(n), element_type(v.dtype), v.shape,
                    {v.as<std::byte>(), static_cast<std::size_t>(v.numel()) * size_of(v.dtype)}) {}
};

// The same bytes for the same contents, whatever their order here: widest elements first, then by
// name, so that every tensor is aligned to its element. A checksum is added to the metadata. Throws
// for duplicate names, names or metadata that are not UTF-8, and sizes that do not match.
Bytes serialize_safetensors(std::span<const TensorBytes> tensors, const Metadata& metadata = {});
// Written atomically (AtomicFile), without a copy of the tensors in memory.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const Metadata& metadata = {});

}  // namespace roundoff
