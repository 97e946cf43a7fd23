// Bulk conversions between storage types and the type that arithmetic happens in.
// Bit-equal to the scalar conversions of Half and BFloat16 (a test compares every pattern); vector
// instructions are used where the build's target has them.
#pragma once

#include <cstdint>

#include "kernels/base/target.h"
#include "kernels/base/view.h"

namespace roundoff {

// to[i] = from[offset + i] for i in [0, n). Exact, except that fp64 -> float rounds (RNE).
// Integer types are converted as C++ does. Elements, not bytes.
void widen(const ConstView& from, std::int64_t offset, std::int64_t n, float* to);
void widen(const ConstView& from, std::int64_t offset, std::int64_t n, double* to);

// to[offset + i] (= or +=) from[i], rounded once to the type of `to` (RNE).
void narrow(const float* from, std::int64_t n, const Out& to, std::int64_t offset);
void narrow(const double* from, std::int64_t n, const Out& to, std::int64_t offset);

// Whole-view conversion to = from (RNE from the source type, directly: fp64 -> fp16 rounds once).
void convert(Ref, const ConstView& from, const Out& to);
template <DeviceTarget T>
void convert(T target, const ConstView& from, const Out& to);

// Every element = value, rounded once to the view's type (RNE; integers as C++ converts them).
void fill(Ref, double value, const View& to);
template <DeviceTarget T>
void fill(T target, double value, const View& to);

namespace detail {
// What convert() throws for.
void check_convert(const ConstView& from, const Out& to);
}  // namespace detail

// Rounds n fp32 values in place to tf32 (11 significant bits, RNE, integer-only).
void round_to_tf32(float* values, std::int64_t n);

}  // namespace roundoff
