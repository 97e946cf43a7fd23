// The selector of products (kernels/gemm/select.h) beside the cycle model's
// ranking: what it picks must not be predicted to lose much to what it might
// have picked.
#include "kernels/gemm/select.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "bench/evidence/cycle_model.h"

using namespace roundoff;

namespace {

using evidence::KernelPlan;
using evidence::ProductShape;

struct Size {
  unsigned m, n, k;
};
constexpr Size kSizes[] = {{128, 128, 128},     {256, 256, 256},    {512, 512, 512},
                           {1024, 1024, 1024},  {2048, 2048, 2048}, {4096, 4096, 4096},
                           {8192, 8192, 8192},  {8192, 8192, 256},  {8192, 8192, 512},
                           {16384, 1024, 1024}, {128, 8192, 8192},  {4096, 64, 4096}};

ProductProblem problem(const Size& size) {
  ProductProblem p;
  p.size = {.m = size.m, .n = size.n, .depth = size.k};
  p.operand = MmaOperand::bf16;
  return p;
}
ProductShape shape(const Size& size) { return {.m = size.m, .n = size.n, .k = size.k}; }

int rows_of(ProductTile tile) {
  switch (tile) {
    case ProductTile::m256n128:
      return 256;
    case ProductTile::m128n128:
      return 128;
    case ProductTile::m64n64:
      return 64;
    default:
      return 32;
  }
}

double seconds(const char* device, const Size& size, const KernelPlan& plan) {
  return evidence::predict(evidence::device_spec(device), shape(size), plan).seconds;
}

}  // namespace

TEST_CASE(
    "the tile that is selected for sm80 is predicted to be near the best "
    "on an A100") {
  constexpr double kNear = 1.5;
  for (const Size& size : kSizes) {
    const int rows = rows_of(select_tile(problem(size), true));
    const auto plans = evidence::plans_of(ProductKernel::sm80);
    const auto selected = std::find_if(plans.begin(), plans.end(),
                                       [&](const KernelPlan& plan) { return plan.tile_m == rows; });
    REQUIRE(selected != plans.end());
    const KernelPlan best =
        evidence::best_plan(evidence::device_spec("A100"), shape(size), ProductKernel::sm80);
    CAPTURE(size.m);
    CAPTURE(size.n);
    CAPTURE(size.k);
    CAPTURE(rows);
    CAPTURE(best.tile_m);
    CHECK(seconds("A100", size, *selected) <= kNear * seconds("A100", size, best));
  }
}

TEST_CASE(
    "the kernel that is selected on sm_90a is predicted to be near the "
    "best on an H100") {
  constexpr double kNear = 1.5;
  ProductTraits traits;
  traits.architecture = Architecture::sm_90a;
  traits.a = traits.b = DType::bf16;
  traits.chunked = true;
  const evidence::DeviceSpec& h100 = evidence::device_spec("H100");
  for (const Size& size : kSizes) {
    const ProductKernel selected = select_kernel(problem(size), traits);
    const auto time = [&](ProductKernel kernel) {
      return seconds("H100", size, evidence::best_plan(h100, shape(size), kernel));
    };
    double best = time(selected);
    ProductKernel fastest = selected;
    for (const ProductKernel kernel : {ProductKernel::sm80, ProductKernel::wgmma,
                                       ProductKernel::sm90, ProductKernel::ping_pong}) {
      if (time(kernel) < best) {
        best = time(kernel);
        fastest = kernel;
      }
    }
    CAPTURE(size.m);
    CAPTURE(size.n);
    CAPTURE(size.k);
    CAPTURE(name(selected));
    CAPTURE(name(fastest));
    CHECK(time(selected) <= kNear * best);
  }
}
