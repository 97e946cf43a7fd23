// Where the operands of a product come from, as kernels see them: a source gives values of a matrix
// [rows, depth], the sum running over depth, four (fp64: two) at a time along the axis that is
// contiguous in memory. Storage types are a run-time switch, the same for every thread, so that a
// kernel exists once and not for each pair of types; values travel as they are stored and are
// widened where they arrive.
//
//   contiguous_depth()      whether values lie side by side along the sum's axis, or along rows
//   select(i)               what follows is matrix i of a batch, or group i
//   load(row, depth, v)     v[j] = the bits at (row, depth + j) or (row + j, depth), 0 outside
//   dtype, tf32             what the bits mean: widen_bits()
//   value(row, depth)       one value as fp32, which must be inside
//
// Tensor-core kernels fetch chunks of 16 bytes instead, in place, with what a thread must know to
// find them kept from one step to the next (kernels/gemm/mma_loop.cuh):
//
//   chunked                 whether chunk() may be called: it need not be, load() serves then
//   Row, row_at(row)        what is kept of a row, or of the run of rows that begins there
//   Depth, depth_at(depth)  the same of a place (or a run of places) along the sum
//   advance(depth, by)      makes it depth_at() of a place `by` further on
//   further_row(row, by), further_depth(depth, by)   row_at() and depth_at() of what is `by`
//   further
//                           on; only where they are cheap: without them each place is kept
//   chunk<T>(row, depth)    where the 16 bytes begin that are T at (row, depth + j), or at
//                           (row + j, depth), and how many of them, from the first on, are inside;
//                           0 for places beyond the matrix, with any address
#pragma once

#include <cstdint>

#include "kernels/base/view.h"
#include "kernels/simt/convert.cuh"
#include "kernels/simt/simt.h"

namespace roundoff {

// n / divisor for n < 2^31, as a multiplication (Granlund and Montgomery, PLDI 1994).
struct FastDivide {
  unsigned divisor = 1, multiplier = 1, shift = 0;

  FastDivide() = default;
  explicit FastDivide(std::int64_t d) : divisor(static_cast<unsigned>(d)) {
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    const std::uint64_t rest = (std::uint64_t{1} << shift) - divisor;
    multiplier = static_cast<unsigned>((rest << 32) / divisor + 1);
  }
};

// As unsigned, or an error that names what is too large.
inline unsigned device_extent(const char* operation, const char* what, std::int64_t extent) {
  constexpr std::int64_t kLargest = (std::int64_t{1} << 31) - 256;
  ROUNDOFF_CHECK(extent < kLargest, operation, what, " ", extent,
                 " is too large for a device, less than ", kLargest, " expected");
  return static_cast<unsigned>(extent);
}

ROUNDOFF_DEVICE_NAMESPACE {
  ROUNDOFF_DEVICE unsigned divide(unsigned n, const FastDivide& by) {
    return (__umulhi(n, by.multiplier) + n) >> by.shift;
  }

  // Values side by side that one shared-memory access moves: 16 bytes.
  template <class C>
  inline constexpr int kLanes = static_cast<int>(16 / sizeof(C));

  // A stored value on its way: the type that has room for it.
  template <class C>
  using Bits = std::conditional_t<sizeof(C) == 8, std::uint64_t, std::uint32_t>;

  // An fp32 value rounded to 11 significant bits (RNE, by integers); NaN stays NaN.
  ROUNDOFF_DEVICE float rounded_to_tf32(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return value;
    return __uint_as_float((bits + 0xFFFU + ((bits >> 13) & 1U)) & 0xFFFFE000U);
  }

  // An fp16 pattern as fp32, exactly; a few instructions, where every product has many. (A
  // subnormal is the difference of two normal numbers, so that DAZ does not reach it.)
  ROUNDOFF_DEVICE float half_bits_to_float(unsigned bits) {
    const unsigned magnitude = (bits & 0x7FFFU) << 13;
    const unsigned field = magnitude & 0x0F800000U;
    const float subnormal = __uint_as_float(magnitude + 0x38800000U) - __uint_as_float(0x38800000U);
    const unsigned normal = magnitude + (field == 0x0F800000U ? 0x70000000U : 0x38000000U);
    const unsigned value = field == 0 ? __float_as_uint(subnormal) : normal;
    return __uint_as_float(value | ((bits & 0x8000U) << 16));
  }

  template <class C>
  ROUNDOFF_DEVICE C widen_bits(Bits<C> bits, DType dtype, bool tf32) {
    if constexpr (sizeof(C) == 8) {
      if (dtype == DType::fp64) return std::bit_cast<double>(bits);
    }
    const auto word = static_cast<std::uint32_t>(bits);
    if (dtype == DType::fp16) return static_cast<C>(half_bits_to_float(word));
    if (dtype == DType::bf16) return static_cast<C>(__uint_as_float(word << 16));
    const float value = __uint_as_float(word);
    return static_cast<C>(tf32 ? rounded_to_tf32(value) : value);
  }

  // v[j] = the bits of p[offset + j] for j < count, 0 beyond. `aligned`: p + offset is, to
  // kLanes<C> values.
  template <class T, class C>
  ROUNDOFF_DEVICE void load_bits_as(const void* p, std::int64_t offset, int count, bool aligned,
                                    Bits<C>(&v)[kLanes<C>]) {
    const T* from = static_cast<const T*>(p) + offset;
    if (aligned && count == kLanes<C>) {
      const auto lanes = load_lanes<T, kLanes<C>>(from);
      ROUNDOFF_UNROLL
      for (int i = 0; i < kLanes<C>; ++i) v[i] = lanes.lane[i];
    } else {
      ROUNDOFF_UNROLL
      for (int i = 0; i < kLanes<C>; ++i) v[i] = i < count ? from[i] : T(0);
    }
  }

  template <class C>
  ROUNDOFF_DEVICE void load_bits(const void* p, DType dtype, std::int64_t offset, int count,
                                 bool aligned, Bits<C>(&v)[kLanes<C>]) {
    if (dtype == DType::fp16 || dtype == DType::bf16)
      return load_bits_as<std::uint16_t, C>(p, offset, count, aligned, v);
    if constexpr (sizeof(C) == 8) {
      if (dtype == DType::fp64) return load_bits_as<std::uint64_t, C>(p, offset, count, aligned, v);
    }
    load_bits_as<std::uint32_t, C>(p, offset, count, aligned, v);
  }

  // The bits of p[i]. (Where sums are in fp32 an fp64 view is an output only.)
  template <class C>
  ROUNDOFF_DEVICE Bits<C> load_pattern(const void* p, DType dtype, std::int64_t i) {
    if (dtype == DType::fp16 || dtype == DType::bf16)
      return static_cast<const std::uint16_t*>(p)[i];
    if constexpr (sizeof(C) == 8) {
      if (dtype == DType::fp64) return static_cast<const std::uint64_t*>(p)[i];
    }
    return static_cast<const std::uint32_t*>(p)[i];
  }
  template <class C>
  ROUNDOFF_DEVICE C load_one(const void* p, DType dtype, std::int64_t i, bool tf32) {
    return widen_bits<C>(load_pattern<C>(p, dtype, i), dtype, tf32);
  }

  // Of 1, in a type of 32 bit or less.
  ROUNDOFF_DEVICE std::uint32_t pattern_of_one(DType dtype) {
    return dtype == DType::fp16 ? 0x3C00U : dtype == DType::bf16 ? 0x3F80U : 0x3F800000U;
  }

  // 16 bytes of global memory, the first `bytes` of which are inside a source.
  struct Chunk {
    const void* from;
    int bytes;
  };

  // A matrix as it lies in memory: element (row, depth) at row * pitch + depth, or at
  // depth * pitch + row.
  struct MatrixSource {
    const void* data = nullptr;
    DType dtype = DType::fp32;
    bool tf32 = false;
    bool depth_contiguous = true;
    bool aligned = false;   // every run of lanes that begins at a multiple of them
    bool chunked = false;   // every run of 16 bytes that begins at a multiple of them
    bool all_ones = false;  // no memory: every element is 1
    unsigned rows = 0, depth = 0;
    std::int64_t pitch = 0;
    std::int64_t stride = 0;  // elements from one matrix of a batch to the next
    std::int64_t offset = 0;

    ROUNDOFF_DEVICE bool contiguous_depth() const { return depth_contiguous; }
    ROUNDOFF_DEVICE void select(unsigned i) { offset = static_cast<std::int64_t>(i) * stride; }

    template <class C>
    ROUNDOFF_DEVICE void load(unsigned row, unsigned at, Bits<C> (&v)[kLanes<C>]) const {
      const unsigned line = depth_contiguous ? row : at, lines = depth_contiguous ? rows : depth;
      const unsigned first = depth_contiguous ? at : row, width = depth_contiguous ? depth : rows;
      int count = 0;
      if (line < lines && first < width)
        count = static_cast<int>(width - first < kLanes<C> ? width - first : kLanes<C>);
      if (all_ones) {
        ROUNDOFF_UNROLL
        for (int i = 0; i < kLanes<C>; ++i) v[i] = i < count ? pattern_of_one(dtype) : 0U;
        return;
      }
      load_bits<C>(data, dtype, offset + static_cast<std::int64_t>(line) * pitch + first, count,
                   aligned, v);
    }
    ROUNDOFF_DEVICE float value(unsigned row, unsigned at) const {
      if (all_ones) return 1.0F;
      const std::int64_t line = depth_contiguous ? row : at, first = depth_contiguous ? at : row;
      return load_one<float>(data, dtype, offset + line * pitch + first, tf32);
    }

    // A row's line of memory, or a place in each line.
    struct Row {
      std::int64_t at;
      unsigned row;
    };
    using Depth = unsigned;
    ROUNDOFF_DEVICE Row row_at(unsigned row) const {
      return {depth_contiguous ? row * pitch : row, row};
    }
    ROUNDOFF_DEVICE Row further_row(const Row& row, unsigned by) const {
      return {row.at + (depth_contiguous ? by * pitch : by), row.row + by};
    }
    ROUNDOFF_DEVICE Depth depth_at(unsigned at) const { return at; }
    ROUNDOFF_DEVICE Depth further_depth(Depth at, unsigned by) const { return at + by; }
    ROUNDOFF_DEVICE void advance(Depth& at, unsigned by) const { at += by; }
    template <class T>
    ROUNDOFF_DEVICE Chunk chunk(const Row& row, Depth at) const {
      constexpr unsigned kFull = 16 / sizeof(T);
      unsigned count = 0;
      if (row.row < rows && at < depth) count = depth_contiguous ? depth - at : rows - row.row;
      const std::int64_t first = offset + row.at + (depth_contiguous ? at : at * pitch);
      count = count < kFull ? count : kFull;
      return {static_cast<const T*>(data) + (count == 0 ? 0 : first),
              static_cast<int>(count * sizeof(T))};
    }
  };

}  // namespace

// Whether runs of `lanes` values that begin at multiples of them are aligned, rows and batches
// included.
inline bool lanes_aligned(const void* data, DType dtype, int lanes, std::int64_t pitch,
                          std::int64_t stride) {
  const auto bytes = static_cast<std::uintptr_t>(size_of(dtype)) * static_cast<unsigned>(lanes);
  return reinterpret_cast<std::uintptr_t>(data) % (bytes < 16 ? bytes : 16) == 0 &&
         pitch % lanes == 0 && stride % lanes == 0;
}

}  // namespace roundoff
