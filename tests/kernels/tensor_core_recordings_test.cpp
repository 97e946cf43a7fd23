// The model of tensor cores against recorded outputs of real ones: 5000 dot products for each GPU,
// operand type and accumulator, by Khattak and Mikaitis (MATLAB-tensor-core, model_validation). The
// recordings are no part of this repository; ROUNDOFF_TENSOR_CORE_DATA names their folder.
#include <doctest/doctest.h>

#include <bit>
#include <string>
#include <vector>

#include "kernels/base/tensor_core.h"
#include "tests/kernels/recordings.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

enum class Output { fp32, fp16 };

// E4M3 recordings exclude the addend from D.
void compare(const std::string& gpu, const std::string& type, const TensorCore& core,
             Output output = Output::fp32, bool with_c = true) {
  const std::string to = output == Output::fp32 ? "fp32" : "fp16";
  const std::vector<Recording> recordings = read_recordings(gpu, type, to);
  int differ = 0, tile_differs = 0;
  for (const Recording& r : recordings) {
    const std::vector<float>&x = r.a, &y = r.b;
    const auto k = static_cast<std::int64_t>(x.size());
    const float addend = with_c ? r.c : 0.0F;
    TensorCoreTile tile{.a = x.data(), .lda = k, .b = y.data(), .ldb = 1, .m = 1, .n = 1};
    tile.k = static_cast<int>(k);
    float got = 0, got_tile = 0;
    tile.c = &got_tile;
    if (output == Output::fp32) {
      got = tensor_core_dot(core, x.data(), y.data(), k, addend);
      got_tile = addend;
      tensor_core_tile(core, tile);
    } else {
      got = static_cast<float>(tensor_core_dot_half(core, x.data(), y.data(), k, Half(addend)));
      got_tile = static_cast<float>(Half(addend));
      tensor_core_tile_half(core, tile);
    }
    const auto want = std::bit_cast<std::uint32_t>(r.d);
    if (std::bit_cast<std::uint32_t>(got) != want) ++differ;
    if (std::bit_cast<std::uint32_t>(got_tile) != want) ++tile_differs;
  }
  CAPTURE(gpu + " " + type + " " + to);
  CHECK(differ == 0);
  CHECK(tile_differs == 0);
}

}  // namespace

TEST_CASE("V100: fp16") {
  if (recordings_absent()) return;
  const TensorCore core = tensor_core(Accumulator::v100, DType::fp16);
  compare("V100", "fp16", core);
  compare("V100", "fp16", core, Output::fp16);
}
TEST_CASE("A100: fp16, bf16, tf32") {
  if (recordings_absent()) return;
  const TensorCore core = tensor_core(Accumulator::a100, DType::fp16);
  compare("A100", "fp16", core);
  compare("A100", "fp16", core, Output::fp16);
  compare("A100", "bf16", tensor_core(Accumulator::a100, DType::bf16));
  compare("A100", "tf32", tensor_core(Accumulator::a100, DType::fp32));
}
TEST_CASE("H100: fp16, bf16, tf32, E4M3") {
  if (recordings_absent()) return;
  const TensorCore core = tensor_core(Accumulator::h100, DType::fp16);
  compare("H100", "fp16", core);
  compare("H100", "fp16", core, Output::fp16);
  compare("H100", "bf16", tensor_core(Accumulator::h100, DType::bf16));
  compare("H100", "tf32", tensor_core(Accumulator::h100, DType::fp32));
  compare("H100", "E4M3", tensor_core_e4m3(), Output::fp32, false);
}
