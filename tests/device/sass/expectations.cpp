#include "tests/device/sass/expectations.h"

#include <algorithm>

namespace roundoff::testing {
namespace {

using evidence::Census;
using evidence::KernelCode;
using evidence::Sass;
using enum Needs;

constexpr std::size_t kHollow = 8;  // instructions
constexpr int kLargestBlock = 1024;

// Registers: what launch bounds and design leave; a kernel that comes to need more loses a block.
// "without" names instantiations for values at any address or of any type, which go one by one.
constexpr Expectation kExpectations[] = {
    // Products on sm_90a.
    {.kernel = "product_wgmma",
     .architecture = 90,
     .registers = 128,
     .needs = wgmma | tensor_copies | no_global_loads},
    {.kernel = "product_sm90",
     .architecture = 90,
     .registers = 168,
     .needs = wgmma | tensor_copies | tensor_stores | no_global_loads},
    {.kernel = "conv2d_sm90",
     .architecture = 90,
     .registers = 168,
     .needs = wgmma | tensor_copies | no_global_loads},
    // Products by mma.sync and by fused multiply-adds. Along 2: operands at any address.
    {.kernel = "product_sm80", .needs = mma},
    {.kernel = "product_sm80",
     .with = "MatrixSource, MatrixSource",
     .without = "(Along)2",
     .needs = mma | async_copies | no_global_loads},
    {.kernel = "product_sm80",
     .with = "<Half",
     .also = "MatrixSource, MatrixSource",
     .without = "(Along)2",
     .needs = ldmatrix},
    {.kernel = "product_sm80",
     .with = "<BFloat16",
     .also = "MatrixSource, MatrixSource",
     .without = "(Along)2",
     .needs = ldmatrix},
    {.kernel = "product_mma", .needs = mma},
    {.kernel = "product_half_sums", .needs = mma},
    {.kernel = "product_tiles", .without = "double", .needs = wide_loads},
    // Rows: softmax, norms, losses.
    {.kernel = "softmax_rows", .needs = wide_loads | wide_stores},
    {.kernel = "softmax_rows_backward", .needs = wide_loads | wide_stores},
    {.kernel = "cross_entropy_rows", .needs = wide_loads},
    {.kernel = "cross_entropy_gradient", .needs = wide_loads | wide_stores},
    {.kernel = "layer_norm_rows", .needs = wide_loads | wide_stores},
    {.kernel = "layer_norm_gradients", .needs = wide_loads | wide_stores},
    {.kernel = "norms::map_columns", .without = "AnyOperand", .needs = wide_loads},
    // Elementwise.
    {.kernel = "copy_kernel", .registers = 40, .needs = wide_loads | wide_stores},
    {.kernel = "map2", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "map1", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "permute_rows", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "embedding_gather", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "embedding_sum", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "dropout_kernel", .registers = 64, .needs = wide_loads | wide_stores},
    // Pooling, and the step.
    {.kernel = "max_of_windows", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "max_gradient_of_pixels", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "mean_of_windows", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "mean_gradient_of_pixels", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "update_window_kernel", .registers = 64, .needs = wide_loads | wide_stores},
    {.kernel = "update_window_kernel", .with = "<Adam", .needs = whole_stores},
    {.kernel = "inspect_window_kernel", .registers = 64, .needs = wide_loads},
    {.kernel = "inspect_gradients_kernel", .registers = 64, .needs = wide_loads},
    {.kernel = "all_finite_kernel", .registers = 64, .needs = wide_loads},
    {.kernel = "multiply_kernel", .registers = 64, .needs = wide_loads | wide_stores},
};

void need(std::vector<std::string>& missing, bool met, std::string what) {
  if (!met) missing.push_back(std::move(what));
}

}  // namespace

bool Expectation::covers(const KernelCode& code) const {
  return evidence::base_name(code.name) == kernel &&
         (architecture == 0 || architecture == code.architecture) &&
         code.name.find(with) != std::string::npos && code.name.find(also) != std::string::npos &&
         (without.empty() || code.name.find(without) == std::string::npos) && !is_hollow(code);
}

std::span<const Expectation> expectations() { return kExpectations; }

bool is_hollow(const KernelCode& code) { return code.census.instructions <= kHollow; }

std::vector<std::string> failures_of_any(const KernelCode& code) {
  std::vector<std::string> missing;
  need(missing, code.stack == 0, "a stack frame of " + std::to_string(code.stack) + " bytes");
  need(missing, code.local_accesses() == 0,
       std::to_string(code.local_accesses()) + " accesses of local memory");
  need(missing, code.registers > 0, "no count of registers");
  // Without launch bounds a block may be as large as any.
  const int threads = code.max_threads > 0 ? code.max_threads : kLargestBlock;
  need(missing, code.occupancy(threads).blocks > 0,
       "a block of " + std::to_string(threads) + " threads does not fit on a multiprocessor");
  return missing;
}

std::vector<std::string> failures(const Expectation& expected, const KernelCode& code) {
  std::vector<std::string> missing;
  const Census& all = code.census;
  const Needs needs = expected.needs;
  need(missing, code.registers <= expected.registers,
       std::to_string(code.registers) + " registers, at most " +
           std::to_string(expected.registers) + " expected");
  if (has(needs, wide_loads))
    need(missing, all.of(Sass::ldg).of_128() + all.of(Sass::ld).of_128() > 0,
         "no global load of 128 bits");
  if (has(needs, wide_stores))
    need(missing, all.of(Sass::stg).of_128() + all.of(Sass::st).of_128() > 0,
         "no global store of 128 bits");
  if (has(needs, tensor_copies)) need(missing, all.of(Sass::utmaldg).total > 0, "no UTMALDG");
  if (has(needs, tensor_stores)) need(missing, all.of(Sass::utmastg).total > 0, "no UTMASTG");
  const auto in_loop = [&](Sass kind) {
    return code.main_loop ? code.main_loop->of(kind) : evidence::SassCount{};
  };
  if (has(needs, mma)) need(missing, in_loop(Sass::hmma).total > 0, "no HMMA in a loop");
  if (has(needs, wgmma)) need(missing, in_loop(Sass::hgmma).total > 0, "no HGMMA in a loop");
  if (has(needs, async_copies))
    need(missing, in_loop(Sass::ldgsts).of_128() > 0, "no cp.async of 16 bytes in its main loop");
  if (has(needs, ldmatrix))
    need(missing, in_loop(Sass::ldsm).of_128() > 0, "no ldmatrix of four in its main loop");
  if (has(needs, whole_stores)) {
    const evidence::SassCount global = in_loop(Sass::stg), generic = in_loop(Sass::st);
    const std::size_t pieces =
        global.narrow() + global.of_32() + generic.narrow() + generic.of_32();
    need(missing, pieces == 0 && global.total + generic.total > 0,
         std::to_string(pieces) + " stores of 32 bits or fewer in its main loop");
  }
  if (has(needs, no_global_loads))
    need(missing, in_loop(Sass::ldg).total == 0,
         std::to_string(in_loop(Sass::ldg).total) + " global loads in its main loop");
  return missing;
}

}  // namespace roundoff::testing
