// .npy, NumPy's file for one array: "\x93NUMPY", version, header length (2 bytes in version 1, 4 in
// versions 2 and 3, little endian), a Python dictionary {'descr', 'fortran_order', 'shape'} padded
// with spaces and ended by a newline, then the elements.
// Source: NumPy's numpy.lib.format, NEP 1.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "engine/data/array.h"
#include "engine/io/file.h"

namespace roundoff {

// Takes versions 1.0, 2.0 and 3.0, both byte orders, both array orders, and elements f2 f4 f8, i1
// to i8, u1 to u8 and b1; what comes back is row-major in the machine's byte order. The file must
// hold exactly what its header says. Throws FileError, before the array is allocated. bfloat16 has
// no type of its own in this format; by convention it travels as uint16 bits.
HostArray parse_npy(std::span<const std::byte> bytes, std::string_view origin);
HostArray read_npy(const std::filesystem::path& path);

struct NpyOptions {
  int version = 1;  // 1, 2 or 3, each .0
  bool big_endian = false;
  bool fortran_order = false;
};

// The file's bytes. The header is the same in every locale. bf16 is written as uint16 bits.
Bytes serialize_npy(ElementType type, const Shape& shape, std::span<const std::byte> data,
                    const NpyOptions& options = {});
void write_npy(const std::filesystem::path& path, const HostArray& array,
               const NpyOptions& options = {});
void write_npy(const std::filesystem::path& path, const ConstView& array,
               const NpyOptions& options = {});

}  // namespace roundoff
