// Convolutions under the sanitizer and the profiler: every kernel, pass, shape, type, arithmetic
// and schedule meets every other; accesses are whole and free of bank conflicts.
#include <doctest/doctest.h>

#include "kernels/simt/emulator/profiler/profile.h"
#include "tests/covering.h"
#include "tests/simt_kernels/conv2d_cases.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

std::vector<double> whole(const Shape& shape, std::mt19937& random) {
  std::vector<double> v(static_cast<std::size_t>(shape.numel()));
  for (double& x : v) x = static_cast<double>(random() % 5) - 2;
  return v;
}

struct Arithmetics {
  DType dtype;
  bool tf32;
  Accumulator accumulator;
};
constexpr Arithmetics kArithmetics[] = {
    {DType::fp16, false, Accumulator::fp32}, {DType::fp16, false, Accumulator::v100},
    {DType::fp16, false, Accumulator::a100}, {DType::fp16, false, Accumulator::h100},
    {DType::bf16, false, Accumulator::fp32}, {DType::bf16, false, Accumulator::a100},
    {DType::bf16, false, Accumulator::h100}, {DType::fp32, true, Accumulator::fp32},
    {DType::fp32, true, Accumulator::a100},  {DType::fp32, true, Accumulator::h100},
    {DType::fp32, false, Accumulator::fp32}};

}  // namespace

TEST_SUITE("full") {
  TEST_CASE("conv2d in a pairwise design: exact, and no fault diagnosed") {
    constexpr ProductKernel kKernels[] = {ProductKernel::automatic, ProductKernel::tiles,
                                          ProductKernel::sm80,      ProductKernel::sm90,
                                          ProductKernel::mma,       ProductKernel::naive};
    const std::vector<int> levels{6, 3, kConvCaseCount, 11, 16, 2, 2, 3};
    const std::vector<std::vector<int>> rows = covering_array(levels);
    REQUIRE(covers_pairs(rows, levels));
    std::mt19937 random(1);
    int ran = 0, refused = 0;
    for (const std::vector<int>& row : rows) {
      const ConvPass pass{row[1]};
      const ConvCase& c = kConvCases[row[2]];
      const Arithmetics& arithmetic = kArithmetics[row[3]];
      Conv2dParams p = c.params();
      p.kernel = kKernels[row[0]];
      p.tf32 = arithmetic.tf32;
      p.accumulator = arithmetic.accumulator;
      // What a kernel refuses runs on the one that is chosen.
      const bool modelled = p.accumulator != Accumulator::fp32;
      const bool plain = arithmetic.dtype == DType::fp32 && !p.tf32;
      const bool no_tensor_cores =
          p.kernel == ProductKernel::tiles || p.kernel == ProductKernel::naive;
      if ((no_tensor_cores && modelled) || (!no_tensor_cores && plain))
        p.kernel = ProductKernel::automatic;
      const std::int64_t offset = row[5];
      const bool forward = pass == ConvPass::forward;
      const DType out = row[6] == 0 ? DType::fp32 : arithmetic.dtype;
      const bool accumulate = row[7] == 1 && out == DType::fp32;
      const bool ends = row[7] == 2 && forward;  // bias and relu
      if (ends) p.activation = Activation::relu;
      // The orders of reproducible training, on the kernels that have them.
      p.in_order = offset == 1 && !modelled &&
                   (p.kernel == ProductKernel::automatic || p.kernel == ProductKernel::tiles ||
                    p.kernel == ProductKernel::naive);
      CAPTURE(c.what);
      CAPTURE(name(p.kernel));
      CAPTURE(row[1]);
      CAPTURE(row[3]);
      CAPTURE(row[4]);
      const Shape left = left_shape(c, pass), right = right_shape(c, pass),
                  result = result_shape(c, pass), channels{c.k_group * c.groups};
      const std::vector<double> a = whole(left, random), b = whole(right, random),
                                offsets = whole(channels, random);
      const Array bias(DType::fp32, channels, offsets);
      std::vector<double> want = exact_pass(c, pass, a, b, ends ? offsets : std::vector<double>{});
      for (double& v : want) {
        if (accumulate) v += 1;
        if (ends && v < 0) v = 0;
      }
      const auto run = [&] {
        SimDevice device(static_cast<std::uint64_t>(row[4]));
        return device_pass(device, pass, p, Array(arithmetic.dtype, left, a, offset),
                           Array(arithmetic.dtype, right, b, offset), ends ? &bias : nullptr,
                           accumulate ? Array(out, result, ones(result.numel()), offset)
                                      : Array(out, result, offset),
                           accumulate ? Write::accumulate : Write::overwrite);
      };
      const Array y = [&] {
        if (p.kernel != ProductKernel::sm90) return run();
        try {
          return run();
        } catch (const Error& e) {  // by its shape
          if (std::string_view(e.what()).find("does not take this") == std::string_view::npos)
            throw;
          ++refused;
          p.kernel = ProductKernel::automatic;
          return run();
        }
      }();
      // An output of 16 bit is the exact sum, rounded once.
      CHECK(y.values() == Array(out, result, want).values());
      CHECK(y.guards_intact());
      ++ran;
    }
    MESSAGE("sanitized runs: ", ran, ", refused by sm90: ", refused);
    CHECK(ran <= 900);
  }
}

TEST_CASE("conv2d on tensor cores asks for 16 bytes a lane, and meets no bank conflicts") {
  using simt::RequestCounts;
  std::mt19937 random(2);
  const ConvCase cases[] = {{"stride 1", 2, 8, 8, 16, 64, 3, 3, {1, 1}, {1, 1}},
                            {"stride 2", 2, 8, 8, 64, 32, 3, 3, {2, 2}, {1, 1}},
                            {"groups", 1, 8, 8, 8, 8, 3, 3, {1, 1}, {1, 1}, {1, 1}, 2}};
  for (const ConvCase& c : cases) {
    for (const DType dtype : {DType::fp16, DType::fp32}) {
      for (const ConvPass pass : {ConvPass::forward, ConvPass::grad_input, ConvPass::grad_weight}) {
        CAPTURE(c.what);
        CAPTURE(name(dtype));
        CAPTURE(static_cast<int>(pass));
        Conv2dParams p = c.params();
        p.tf32 = true;
        p.kernel = ProductKernel::sm80;
        const Shape left = left_shape(c, pass), right = right_shape(c, pass);
        SimDevice device;
        device.emulator().config.profile = true;
        device_pass(device, pass, p, Array(dtype, left, whole(left, random)),
                    Array(dtype, right, whole(right, random)), nullptr,
                    Array(dtype, result_shape(c, pass)));
        const auto& launches = device.emulator().profile().launches;
        REQUIRE(!launches.empty());
        for (const simt::LaunchProfile& l : launches) {
          CHECK(l.global_loads.bytes == 16 * l.global_loads.lanes);
          CHECK(l.global_stores.bytes == 16 * l.global_stores.lanes);
          CHECK(l.shared_loads.wavefronts > 0);
          CHECK(l.shared_loads.excess_wavefronts == 0);
          CHECK(l.shared_stores.excess_wavefronts == 0);
        }
      }
    }
  }
}
