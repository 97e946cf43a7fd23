// Recorded dot products of real tensor cores through the wrappers of mma.sync: by the emulator's
// models or, on a GPU, by its own tensor cores.
#include <bit>
#include <string>

#include "kernels/base/tensor_core.h"
#include "tests/kernels/recordings.h"
#include "tests/simt/mma_fragments.h"
#include "tests/simt/sim_device.h"

using namespace roundoff;
using namespace roundoff::simt_test;

namespace {

// Eight recordings at a time: row i of A, column i of B, element (i, i) of C.
void compare(Accumulator gpu, const std::string& gpu_name, const std::string& type,
             const std::string& to, const Kind& kind) {
  if (test::recordings_absent()) return;
  with_arithmetic(gpu, [&](auto& device, auto target) {
    const std::vector<test::Recording> all = test::read_recordings(gpu_name, type, to);
    int differ = 0;
    for (std::size_t first = 0; first < all.size(); first += 8) {
      Matrices m;
      m.a.resize(static_cast<std::size_t>(16 * kind.k));
      m.b.resize(static_cast<std::size_t>(8 * kind.k));
      m.c.resize(128);
      for (std::size_t i = 0; i < 8; ++i) {
        const test::Recording& r = all[first + i];
        for (std::size_t l = 0; l < r.a.size(); ++l) {
          m.a[i * static_cast<std::size_t>(kind.k) + l] = r.a[l];
          m.b[l * 8 + i] = r.b[l];
        }
        m.c[i * 8 + i] = r.c;
      }
      const std::vector<float> got = run_mma(device, target, kind, m);
      for (std::size_t i = 0; i < 8; ++i)
        if (std::bit_cast<std::uint32_t>(got[i * 8 + i]) !=
            std::bit_cast<std::uint32_t>(all[first + i].d))
          ++differ;
    }
    CAPTURE(gpu_name + " " + type + " " + to);
    CHECK(differ == 0);
  });
}

}  // namespace

TEST_CASE("recorded dot products of V100, through mma.sync") {
  compare(Accumulator::v100, "V100", "fp16", "fp32", {MmaCase::fp16_k8, 8, DType::fp16, false});
  compare(Accumulator::v100, "V100", "fp16", "fp16", {MmaCase::half_k8, 8, DType::fp16, true});
}
TEST_CASE("recorded dot products of A100, through mma.sync") {
  compare(Accumulator::a100, "A100", "fp16", "fp32", {MmaCase::fp16_k8, 8, DType::fp16, false});
  compare(Accumulator::a100, "A100", "fp16", "fp16", {MmaCase::half_k8, 8, DType::fp16, true});
  compare(Accumulator::a100, "A100", "bf16", "fp32", {MmaCase::bf16_k8, 8, DType::bf16, false});
  compare(Accumulator::a100, "A100", "tf32", "fp32", {MmaCase::tf32_k4, 4, DType::fp32, false});
}
TEST_CASE("recorded dot products of H100, through mma.sync") {
  compare(Accumulator::h100, "H100", "fp16", "fp32", {MmaCase::fp16_k16, 16, DType::fp16, false});
  compare(Accumulator::h100, "H100", "fp16", "fp16", {MmaCase::half_k16, 16, DType::fp16, true});
  compare(Accumulator::h100, "H100", "bf16", "fp32", {MmaCase::bf16_k16, 16, DType::bf16, false});
  compare(Accumulator::h100, "H100", "tf32", "fp32", {MmaCase::tf32_k8, 8, DType::fp32, false});
}
