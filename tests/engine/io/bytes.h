// Small files, built in memory byte by byte.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string_view>

#include "engine/io/file.h"

namespace roundoff::testing {

inline Bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

inline void append(Bytes& to, std::span<const std::byte> more) {
  to.insert(to.end(), more.begin(), more.end());
}

inline void append_big_endian(Bytes& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8)
    to.push_back(static_cast<std::byte>(value >> shift & 0xFF));
}

// An IDX file whose data is 0, 1, 2, ... modulo `modulus`.
inline Bytes idx_file(std::uint32_t magic, std::initializer_list<std::uint32_t> extents,
                      std::size_t data, unsigned modulus = 256) {
  Bytes bytes;
  append_big_endian(bytes, magic);
  for (const std::uint32_t extent : extents) append_big_endian(bytes, extent);
  for (std::size_t i = 0; i < data; ++i) bytes.push_back(static_cast<std::byte>(i % modulus));
  return bytes;
}

inline Bytes gzip_of(std::span<const std::byte> bytes) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("zlib");
  Bytes out(deflateBound(&stream, static_cast<uLong>(bytes.size())));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw std::runtime_error("zlib");
  return out;
}

}  // namespace roundoff::testing
