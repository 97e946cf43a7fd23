#include "kernels/simt/emulator/tensor_box.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace roundoff::simt {

namespace {

template <class Map>
TensorMap common(const Map& map) {
  TensorMap encoded;
  encoded.magic = kTensorMapMagic;
  encoded.dtype = map.dtype;
  encoded.rank = static_cast<std::uint8_t>(map.rank);
  encoded.swizzle = map.swizzle;
  encoded.fill = map.fill;
  encoded.address = static_cast<const char*>(map.address);
  for (int i = 0; i < map.rank; ++i) {
    encoded.size[i] = map.size[i];
    if (i > 0) encoded.stride[i - 1] = map.stride_bytes[i];
    encoded.step[i] = static_cast<std::uint8_t>(map.step[i]);
  }
  return encoded;
}

// The row that starts at those coordinates.
BoxRow row_at(const TensorMap& map, const std::int64_t* at, int elements) {
  BoxRow row;
  row.elements = elements;
  const char* base = map.address;
  for (int i = 1; i < map.rank; ++i) {
    if (at[i] < 0 || static_cast<std::uint64_t>(at[i]) >= map.size[i]) return row;
    base += static_cast<std::uint64_t>(at[i]) * map.stride[i - 1];
  }
  const auto size = static_cast<std::int64_t>(map.size[0]);
  row.first = static_cast<int>(std::clamp<std::int64_t>(-at[0], 0, elements));
  row.last = static_cast<int>(std::clamp<std::int64_t>(size - at[0], row.first, elements));
  row.global = base + at[0] * static_cast<std::int64_t>(size_of(map.dtype));
  return row;
}

// A NaN of the type, in every element; all ones are one in each of them.
void fill_row(const TensorMap& map, char* to, std::size_t elements) {
  const std::size_t unit = size_of(map.dtype);
  std::memset(to, map.fill == Fill::nan ? 0xFF : 0, elements * unit);
  if (map.fill != Fill::nan) return;
  // With a clear sign.
  for (std::size_t i = 0; i < elements; ++i) to[i * unit + unit - 1] = 0x7F;
}

template <class T, class Add>
void add_elements(const char* from, char* to, std::size_t n, Add add) {
  for (std::size_t i = 0; i < n; ++i) {
    T a, b;
    std::memcpy(&a, to + i * sizeof(T), sizeof(T));
    std::memcpy(&b, from + i * sizeof(T), sizeof(T));
    a = add(a, b);
    std::memcpy(to + i * sizeof(T), &a, sizeof(T));
  }
}
void add_row(DType dtype, const char* from, char* to, std::size_t n) {
  const auto plain = [](auto a, auto b) { return a + b; };
  const auto wrapping = [](auto a, auto b) { return static_cast<decltype(a)>(a + b); };
  const auto narrow = [](auto a, auto b) {
    return decltype(a)(static_cast<float>(a) + static_cast<float>(b));
  };
  switch (dtype) {
    case DType::fp64:
      return add_elements<double>(from, to, n, plain);
    case DType::fp32:
      return add_elements<float>(from, to, n, plain);
    case DType::fp16:
      return add_elements<Half>(from, to, n, narrow);
    case DType::bf16:
      return add_elements<BFloat16>(from, to, n, narrow);
    case DType::i64:
      return add_elements<std::uint64_t>(from, to, n, wrapping);
    case DType::i32:
      return add_elements<std::uint32_t>(from, to, n, wrapping);
    case DType::u8:
      return add_elements<std::uint8_t>(from, to, n, wrapping);
  }
}

}  // namespace

TensorMap encode(const TiledMap& map) {
  check(map);
  TensorMap encoded = common(map);
  for (int i = 0; i < map.rank; ++i) encoded.box[i] = static_cast<std::uint16_t>(map.box[i]);
  return encoded;
}

TensorMap encode(const Im2colMap& map) {
  check(map);
  TensorMap encoded = common(map);
  encoded.im2col = true;
  encoded.box[0] = static_cast<std::uint16_t>(map.channels);
  encoded.box[1] = static_cast<std::uint16_t>(map.pixels);
  for (int i = 0; i < map.rank - 2; ++i) {
    encoded.lower[i] = static_cast<std::int16_t>(map.lower[i]);
    encoded.upper[i] = static_cast<std::int16_t>(map.upper[i]);
  }
  return encoded;
}

std::size_t row_bytes(const TensorMap& map) { return map.box[0] * size_of(map.dtype); }

std::size_t box_bytes(const TensorMap& map) {
  std::size_t bytes = row_bytes(map);
  if (map.im2col) return bytes * map.box[1];
  for (int i = 1; i < map.rank; ++i)
    bytes *= (map.box[i] + std::size_t{map.step[i]} - 1) / map.step[i];
  return bytes;
}

std::uint64_t extent_bytes(const TensorMap& map) {
  std::uint64_t bytes = map.size[0] * size_of(map.dtype);
  for (int i = 1; i < map.rank; ++i) bytes += (map.size[i] - 1) * map.stride[i - 1];
  return bytes;
}

bool starts_in_bounds(const TensorMap& map, const int* at) {
  for (int i = 1; i + 1 < map.rank; ++i)
    if (at[i] < map.lower[i - 1] ||
        at[i] > static_cast<std::int64_t>(map.size[i]) - 1 + map.upper[i - 1])
      return false;
  return true;
}

std::vector<BoxRow> rows_of_box(const TensorMap& map, const int* at, const std::uint16_t* offset) {
  std::vector<BoxRow> rows;
  std::int64_t place[kMaxTensorRank] = {};
  if (map.im2col) {
    std::int64_t base[kMaxTensorRank] = {};
    for (int i = 0; i < map.rank; ++i) base[i] = at[i];
    for (int p = 0; p < map.box[1]; ++p) {
      for (int i = 0; i < map.rank; ++i)
        place[i] = base[i] + (i > 0 && i + 1 < map.rank ? offset[i - 1] : 0);
      rows.push_back(row_at(map, place, map.box[0]));
      // The next base pixel: W fastest; each dimension starts over at its lower corner.
      int i = 1;
      for (; i + 1 < map.rank; ++i) {
        base[i] += map.step[i];
        if (base[i] <= static_cast<std::int64_t>(map.size[i]) - 1 + map.upper[i - 1]) break;
        base[i] = map.lower[i - 1];
      }
      if (i + 1 == map.rank) base[i] += map.step[i];
    }
    return rows;
  }
  int count[kMaxTensorRank] = {};
  for (int i = 0; i < map.rank; ++i) {
    count[i] = (map.box[i] + map.step[i] - 1) / map.step[i];
    place[i] = at[i];
  }
  int index[kMaxTensorRank] = {};
  for (;;) {
    rows.push_back(row_at(map, place, map.box[0]));
    int i = 1;
    for (; i < map.rank; ++i) {
      if (++index[i] < count[i]) {
        place[i] += map.step[i];
        break;
      }
      index[i] = 0;
      place[i] = at[i];
    }
    if (i >= map.rank) return rows;
  }
}

void read_box(const TensorMap& map, const std::vector<BoxRow>& rows, char* dense) {
  const std::size_t unit = size_of(map.dtype);
  for (const BoxRow& row : rows) {
    const auto first = static_cast<std::size_t>(row.first),
               last = static_cast<std::size_t>(row.last);
    const auto elements = static_cast<std::size_t>(row.elements);
    fill_row(map, dense, first);
    if (last > first)
      std::memcpy(dense + first * unit, row.global + first * unit, (last - first) * unit);
    fill_row(map, dense + last * unit, elements - last);
    dense += elements * unit;
  }
}

void write_box(const TensorMap& map, const std::vector<BoxRow>& rows, const char* dense, bool add) {
  const std::size_t unit = size_of(map.dtype);
  for (const BoxRow& row : rows) {
    const auto first = static_cast<std::size_t>(row.first),
               last = static_cast<std::size_t>(row.last);
    if (last > first) {
      char* to = const_cast<char*>(row.global) + first * unit;
      if (add) {
        add_row(map.dtype, dense + first * unit, to, last - first);
      } else {
        std::memcpy(to, dense + first * unit, (last - first) * unit);
      }
    }
    dense += static_cast<std::size_t>(row.elements) * unit;
  }
}

}  // namespace roundoff::simt
