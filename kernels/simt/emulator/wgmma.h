// wgmma on the emulator (kernels/simt/wgmma.h says what it does).
#pragma once

#include <cstdint>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/emulator/operand.h"
#include "kernels/simt/emulator/shared.h"
#include "kernels/simt/site.h"
#include "kernels/simt/tensor_map.h"

namespace roundoff::simt {

struct WgmmaKind {
  Operand operand;
  int n;
  bool transpose_a;  // MN-major in shared memory
  bool transpose_b;
  bool half = false;  // fp16 accumulators, two in a register
  friend constexpr bool operator==(const WgmmaKind&, const WgmmaKind&) = default;
};

// d: the registers of a thread.
ROUNDOFF_SIMT_API void wgmma(void* d, WgmmaKind kind, std::uint64_t a, std::uint64_t b,
                             bool accumulate, Site site);
ROUNDOFF_SIMT_API void wgmma(void* d, WgmmaKind kind, const std::uint32_t* a, std::uint64_t b,
                             bool accumulate, Site site);
ROUNDOFF_SIMT_API void wgmma_fence(Site site);
ROUNDOFF_SIMT_API void wgmma_commit(Site site);
ROUNDOFF_SIMT_API void wgmma_wait(unsigned pending, Site site);
ROUNDOFF_SIMT_API void set_registers(unsigned count, bool increase, Site site);

// A matrix descriptor's fields, in bytes.
struct WgmmaDescriptor {
  std::uint32_t start = 0;
  std::uint32_t leading = 0;
  std::uint32_t stride = 0;
  std::uint32_t base_offset = 0;
  Swizzle swizzle = Swizzle::none;
};
constexpr WgmmaDescriptor decode_descriptor(std::uint64_t bits) {
  WgmmaDescriptor d;
  d.start = static_cast<std::uint32_t>(bits & 0x3FFFU) << 4;
  d.leading = static_cast<std::uint32_t>((bits >> 16) & 0x3FFFU) << 4;
  d.stride = static_cast<std::uint32_t>((bits >> 32) & 0x3FFFU) << 4;
  d.base_offset = static_cast<std::uint32_t>((bits >> 49) & 7U);
  const auto layout = static_cast<unsigned>(bits >> 62);
  d.swizzle = layout == 0 ? Swizzle::none : static_cast<Swizzle>(4U - layout);
  return d;
}

// The address of 16 bytes of an operand: k-major, elements [chunk 16 bytes, + 16 bytes) of k of row
// `line`; MN-major, rows [8 chunk, 8 chunk + 8) of k `line`.
constexpr std::uint32_t operand_address(const WgmmaDescriptor& d, bool mn_major, unsigned line,
                                        unsigned chunk) {
  const std::uint32_t group = line / 8, within = line % 8;
  if (d.swizzle == Swizzle::none) {
    const std::uint32_t by_line = mn_major ? d.leading : d.stride;
    const std::uint32_t by_chunk = mn_major ? d.stride : d.leading;
    return d.start + group * by_line + within * 16 + chunk * by_chunk;
  }
  const std::uint32_t span = span_bytes(d.swizzle);
  const std::uint32_t chunks = span / 16;
  const std::uint32_t column =
      mn_major ? chunk / chunks * d.leading + chunk % chunks * 16 : chunk * 16;
  return swizzled(d.start + group * d.stride + within * span + column, d.swizzle);
}

}  // namespace roundoff::simt
