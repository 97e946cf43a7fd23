// Products on sm_90a: operands by TMA, multiplied by wgmma. Three rungs of the ladder (kernel.h)
// over one description of a product (product.cuh); host declarations.
#pragma once

#include <string>

#include "kernels/gemm/product.cuh"

namespace roundoff {

// Tiles of a result that the kernels are made for.
enum class Sm90Tile : unsigned char {
  automatic,  // by the sizes
  large,      // 128 x 256, clusters of two blocks that share B's columns
  medium,     // 128 x 128
  small       // 64 x 64
};

// What tests and studies choose; results do not depend on it, but for where a sum that may be cut
// is (product_parts).
struct Sm90Options {
  Sm90Tile tile = Sm90Tile::automatic;  // of launch_sm90; the others have one
  unsigned multiprocessors = 0;         // that tiles are dealt to; 0: the device's
};

// Why these kernels do not take a product; empty where they do.
inline std::string sm90_refuses(const ProductProblem& p, const MatrixSource& a,
                                const MatrixSource& b, const ProductOutput& out);

// They throw where sm90_refuses() has something to say. Every sum is one chain over k in order, 16
// products (tf32: 8) a block, that begins with what begin_sum() says.
template <DeviceTarget T>
void launch_wgmma(T target, const ProductProblem& p, const MatrixSource& a, const MatrixSource& b,
                  const ProductOutput& out, Scratch& scratch, const Sm90Options& options = {});
template <DeviceTarget T>
void launch_sm90(T target, const ProductProblem& p, const MatrixSource& a, const MatrixSource& b,
                 const ProductOutput& out, Scratch& scratch, const Sm90Options& options = {});
template <DeviceTarget T>
void launch_ping_pong(T target, const ProductProblem& p, const MatrixSource& a,
                      const MatrixSource& b, const ProductOutput& out, Scratch& scratch,
                      const Sm90Options& options = {});

namespace sm90_detail {

inline std::string refuses_types(const ProductProblem& p, DType a, DType b, bool tf32) {
  if (p.wide) return "sums in fp64 are not for tensor cores of this kind";
  if (a != b)
    return std::string("operands are ") + std::string(name(a)) + " and " + std::string(name(b)) +
           ", wgmma takes two of one type";
  if (a == DType::fp32 && !tf32) return "operands are fp32 and not to be rounded to tf32";
  if (a != DType::fp32 && !is_16bit(a))
    return std::string("operands are ") + std::string(name(a)) + ", fp16, bf16 or tf32 expected";
  if (p.arithmetic.modelled && p.arithmetic.accumulator != Accumulator::h100)
    return std::string("sums as accumulator ") + name(p.arithmetic.accumulator) +
           " has them are not wgmma's, which adds as an H100";
  return {};
}

inline std::string refuses_operand(const char* which, const MatrixSource& s, unsigned batch) {
  const std::string name = std::string("operand ") + which;
  if (s.all_ones) return name + " lies nowhere in memory";
  if (s.dtype == DType::fp32 && !s.depth_contiguous)
    return name +
           " is not contiguous along k, and wgmma transposes 16-bit operands only: tf32 ones are "
           "K-major";
  const auto bytes = static_cast<std::int64_t>(size_of(s.dtype));
  const unsigned lines = s.depth_contiguous ? s.rows : s.depth;
  if (reinterpret_cast<std::uintptr_t>(s.data) % 16 != 0)
    return name + " does not begin at a multiple of 16 bytes, as TMA asks";
  if (lines > 1 && s.pitch * bytes % 16 != 0)
    return name + " has lines of " + std::to_string(s.pitch * bytes) +
           " bytes, no multiple of 16, as TMA asks";
  if (batch > 1 && s.stride != 0) {
    if (s.stride * bytes % 16 != 0)
      return name + " has matrices of " + std::to_string(s.stride * bytes) +
             " bytes, no multiple of 16, as TMA asks";
    if (s.stride < s.pitch)
      return name + " has matrices that overlap: TMA asks for a stride of a line or more";
  }
  return {};
}

}  // namespace sm90_detail

inline std::string sm90_refuses(const ProductProblem& p, const MatrixSource& a,
                                const MatrixSource& b, const ProductOutput&) {
  if (std::string why = sm90_detail::refuses_types(p, a.dtype, b.dtype, a.tf32 && b.tf32);
      !why.empty())
    return why;
  if (p.size.depth == 0) return {};
  const unsigned batch = p.size.terms > p.size.results ? p.size.terms : p.size.results;
  if (std::string why = sm90_detail::refuses_operand("A", a, batch); !why.empty()) return why;
  return sm90_detail::refuses_operand("B", b, batch);
}

}  // namespace roundoff
