// wgmma: fragments and the layouts of shared-memory operands from index formulas of this file,
// exact integer products, the model's bits, and misuse.
#include "tests/simt/warpgroups.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/base/bfloat16.h"
#include "kernels/base/tensor_core.h"
#include "kernels/simt/tf32.h"
#include "tests/simt/fragments.h"
#include "tests/simt/sim_device.h"

using namespace roundoff;
using namespace roundoff::simt_test;

namespace {

int depth(const WgmmaCase& c) { return c.operand == WgmmaOperand::tf32 ? 8 : 16; }
std::size_t unit(const WgmmaCase& c) { return c.operand == WgmmaOperand::tf32 ? 4 : 2; }

// PTX ISA, canonical layouts of wgmma operands: the byte of element (row, k) from the operand's
// start, which is aligned to the swizzle's pattern.
std::size_t operand_byte(std::size_t row, std::size_t k, std::size_t element, bool mn_major,
                         Swizzle swizzle, std::size_t leading, std::size_t stride) {
  const std::size_t span = span_bytes(swizzle);
  if (swizzle == Swizzle::none) {
    // 8 x 16-byte matrices, each dense.
    const std::size_t in16 = 16 / element;
    if (!mn_major) return row / 8 * stride + k / in16 * leading + row % 8 * 16 + k % in16 * element;
    return row / 8 * stride + k / 8 * leading + k % 8 * 16 + row % 8 * element;
  }
  std::size_t at = 0;
  if (!mn_major) {
    at = row / 8 * stride + row % 8 * span + k * element;
  } else {
    const std::size_t rows = span / element;
    at = row / rows * leading + k / 8 * stride + k % 8 * span + row % rows * element;
  }
  const std::size_t line = at / 128, chunk = at / 16 % 8;
  return line * 128 + (chunk ^ (line % (span / 16))) * 16 + at % 16;
}

std::uint32_t bits_of(WgmmaOperand operand, float v) {
  if (operand == WgmmaOperand::fp16) return Half(v).bits;
  if (operand == WgmmaOperand::bf16) return BFloat16(v).bits;
  return Tf32(v).bits;
}

struct Operands {
  std::vector<float> a, b, c;  // 64 x k, n x k, 64 x n
};

Operands draw(const WgmmaCase& c, std::mt19937& random, bool integers) {
  std::normal_distribution<float> normal;
  const auto value = [&] {
    return integers ? static_cast<float>(static_cast<int>(random() % 17) - 8) : normal(random);
  };
  const auto rounded = [&](float v) {
    if (c.operand == WgmmaOperand::fp16) return static_cast<float>(Half(v));
    if (c.operand == WgmmaOperand::bf16) return static_cast<float>(BFloat16(v));
    return static_cast<float>(Tf32(v));
  };
  Operands o;
  o.a.resize(static_cast<std::size_t>(64 * depth(c)));
  o.b.resize(static_cast<std::size_t>(c.n * depth(c)));
  o.c.resize(static_cast<std::size_t>(64 * c.n));
  for (float& v : o.a) v = rounded(value());
  for (float& v : o.b) v = rounded(value());
  for (float& v : o.c) v = value();
  return o;
}

// Distances that leave gaps, so that a mix-up of the two shows.
void lay_out(WgmmaCase& c) {
  const auto set = [&](bool mn_major, Swizzle swizzle, std::size_t rows, unsigned& leading,
                       unsigned& stride) {
    const unsigned span = span_bytes(swizzle);
    const auto groups = static_cast<unsigned>(rows / 8);
    if (swizzle == Swizzle::none) {
      // K-major: stride between groups of rows; MN-major: the same name.
      stride = 128 + 16;
      leading = groups * stride + 32;
    } else if (!mn_major) {
      leading = 16;
      stride = 8 * span + (span == 128 ? 1024 : 8 * span);
    } else {
      stride = 8 * span;
      leading = 2 * stride + 1024;
    }
  };
  set(c.mn_major_a, c.swizzle_a, 64, c.leading_a, c.stride_a);
  set(c.mn_major_b, c.swizzle_b, static_cast<std::size_t>(c.n), c.leading_b, c.stride_b);
}

std::vector<float> run(auto& device, auto target, WgmmaCase c, const Operands& o) {
  const auto k = static_cast<std::size_t>(depth(c)), n = static_cast<std::size_t>(c.n);
  const std::size_t element = unit(c);
  lay_out(c);
  c.a = 0;
  std::vector<std::uint8_t> image;
  const auto put = [&](std::size_t base, std::size_t rows, const std::vector<float>& values,
                       bool mn_major, Swizzle swizzle, std::size_t leading, std::size_t stride) {
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t l = 0; l < k; ++l) {
        const std::size_t at =
            base + operand_byte(r, l, element, mn_major, swizzle, leading, stride);
        if (image.size() < at + 16) image.resize(at + 16, 0xFF);  // NaN between elements
        const std::uint32_t bits = bits_of(c.operand, values[r * k + l]);
        std::memcpy(&image[at], &bits, element);
      }
  };
  if (!c.a_in_registers) put(0, 64, o.a, c.mn_major_a, c.swizzle_a, c.leading_a, c.stride_a);
  c.b = static_cast<unsigned>((image.size() + 1023) / 1024 * 1024);
  put(c.b, n, o.b, c.mn_major_b, c.swizzle_b, c.leading_b, c.stride_b);

  // Fragments: PTX ISA, "Register fragments for wgmma": element i of thread t.
  std::vector<std::uint32_t> a(512);
  for (std::size_t t = 0; t < 128; ++t) {
    const std::size_t warp = t / 32, group = t % 32 / 4, in_group = t % 4;
    if (element == 4) {
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t row = warp * 16 + group + (i % 2 == 1 ? 8 : 0);
        const std::size_t l = in_group + (i >= 2 ? 4 : 0);
        a[t * 4 + i] = bits_of(c.operand, o.a[row * k + l]);
      }
    } else {
      for (std::size_t i = 0; i < 8; ++i) {
        const bool upper = i < 2 || (i >= 4 && i < 6);
        const std::size_t row = warp * 16 + group + (upper ? 0 : 8);
        const std::size_t l = in_group * 2 + i % 2 + (i >= 4 ? 8 : 0);
        a[t * 4 + i / 2] |= bits_of(c.operand, o.a[row * k + l]) << (i % 2 * 16);
      }
    }
  }
  const auto d_place = [n](std::size_t t, std::size_t i) {
    const std::size_t row = t / 32 * 16 + t % 32 / 4 + (i % 4 >= 2 ? 8 : 0);
    return row * n + i / 4 * 8 + t % 4 * 2 + i % 2;
  };
  std::vector<float> d(64 * n);
  for (std::size_t t = 0; t < 128; ++t)
    for (std::size_t i = 0; i < n / 2; ++i) d[t * (n / 2) + i] = o.c[d_place(t, i)];
  float* pd = device.upload(d);
  launch_wgmma(target, c, device.upload(image), static_cast<unsigned>(image.size()),
               device.upload(a), pd);
  const std::vector<float> got = device.download(pd, d.size());
  std::vector<float> result(64 * n);
  for (std::size_t t = 0; t < 128; ++t)
    for (std::size_t i = 0; i < n / 2; ++i) result[d_place(t, i)] = got[t * (n / 2) + i];
  return result;
}

struct Kind {
  WgmmaOperand operand;
  int n;
};
constexpr Kind kKinds[] = {{WgmmaOperand::bf16, 8},   {WgmmaOperand::bf16, 40},
                           {WgmmaOperand::bf16, 256}, {WgmmaOperand::fp16, 64},
                           {WgmmaOperand::tf32, 16},  {WgmmaOperand::tf32, 256}};
constexpr Swizzle kSwizzles[] = {Swizzle::none, Swizzle::span32, Swizzle::span64, Swizzle::span128};

}  // namespace

TEST_CASE("wgmma: every swizzle, major order and source of A, by exact integer products") {
  std::mt19937 random(12);
  std::uint64_t schedule = 0;
  for (const Kind& kind : kKinds) {
    for (const Swizzle swizzle : kSwizzles) {
      for (int variant = 0; variant < 8; ++variant) {
        WgmmaCase c;
        c.operand = kind.operand;
        c.n = kind.n;
        c.a_in_registers = (variant & 4) != 0;
        c.mn_major_a = (variant & 1) != 0;
        c.mn_major_b = (variant & 2) != 0;
        if (c.a_in_registers && c.mn_major_a) continue;
        if (kind.operand == WgmmaOperand::tf32 && (c.mn_major_a || c.mn_major_b)) continue;
        c.accumulate = random() % 2 == 0;
        c.swizzle_a = swizzle;
        c.swizzle_b = kSwizzles[random() % 4];
        const Operands o = draw(c, random, true);
        std::vector<float> got;
        on_device(
            simt::with_schedule({}, schedule++ % kSchedules),
            [&](auto& device, auto target) { got = run(device, target, c, o); },
            Architecture::sm_90a);
        if (got.empty()) return;
        int differ = 0;
        const int k = depth(c);
        for (int i = 0; i < 64; ++i)
          for (int j = 0; j < c.n; ++j) {
            const auto at = static_cast<std::size_t>(i * c.n + j);
            const float want =
                std::inner_product(o.a.begin() + i * k, o.a.begin() + (i + 1) * k,
                                   o.b.begin() + j * k, c.accumulate ? o.c[at] : 0.0F);
            if (got[at] != want) ++differ;
          }
        CAPTURE(static_cast<int>(kind.operand));
        CAPTURE(kind.n);
        CAPTURE(static_cast<int>(swizzle));
        CAPTURE(static_cast<int>(c.swizzle_b));
        CAPTURE(variant);
        CHECK(differ == 0);
      }
    }
  }
}

TEST_CASE("wgmma with fp16 accumulators: exact integers, and H100's bits") {
  std::mt19937 random(18);
  for (const int n : {16, 256}) {
    for (const bool integers : {true, false}) {
      WgmmaCase c;
      c.operand = WgmmaOperand::fp16;
      c.half = true;
      c.n = n;
      c.mn_major_a = n == 16;
      c.mn_major_b = n == 256;
      Operands o = draw(c, random, integers);
      for (float& v : o.c) v = static_cast<float>(Half(v));
      std::vector<float> got;
      with_arithmetic(
          Accumulator::h100, [&](auto& device, auto target) { got = run(device, target, c, o); },
          Architecture::sm_90a);
      if (got.empty()) return;
      const TensorCore core = tensor_core(Accumulator::h100, DType::fp16);
      int differ = 0;
      for (int i = 0; i < 64; ++i)
        for (int j = 0; j < n; ++j) {
          const auto at = static_cast<std::size_t>(i * n + j);
          const float* a = o.a.data() + i * 16;
          const float* b = o.b.data() + j * 16;
          const float want =
              integers ? std::inner_product(a, a + 16, b, o.c[at])
                       : static_cast<float>(tensor_core_dot_half(core, a, b, 16, Half(o.c[at])));
          if (got[at] != want) ++differ;
        }
      CHECK(differ == 0);
    }
  }
}

TEST_CASE("wgmma under every schedule") {
  std::mt19937 random(13);
  WgmmaCase c;
  c.n = 40;
  const Operands o = draw(c, random, true);
  under_schedules(
      [&](auto& device, auto target) {
        const std::vector<float> got = run(device, target, c, o);
        int differ = 0;
        for (int i = 0; i < 64; ++i)
          for (int j = 0; j < c.n; ++j) {
            const auto at = static_cast<std::size_t>(i * c.n + j);
            if (got[at] != std::inner_product(o.a.begin() + i * 16, o.a.begin() + (i + 1) * 16,
                                              o.b.begin() + j * 16, o.c[at]))
              ++differ;
          }
        CHECK(differ == 0);
      },
      Architecture::sm_90a);
}

TEST_CASE("wgmma: H100's arithmetic, bit for bit") {
  std::mt19937 random(14);
  for (const Kind& kind : kKinds) {
    WgmmaCase c;
    c.operand = kind.operand;
    c.n = kind.n;
    const Operands o = draw(c, random, false);
    std::vector<float> got;
    with_arithmetic(
        Accumulator::h100, [&](auto& device, auto target) { got = run(device, target, c, o); },
        Architecture::sm_90a);
    if (got.empty()) return;
    const DType dtype = kind.operand == WgmmaOperand::fp16   ? DType::fp16
                        : kind.operand == WgmmaOperand::bf16 ? DType::bf16
                                                             : DType::fp32;
    const TensorCore core = tensor_core(Accumulator::h100, dtype);
    int differ = 0;
    for (int i = 0; i < 64; ++i)
      for (int j = 0; j < c.n; ++j) {
        const auto at = static_cast<std::size_t>(i * c.n + j);
        const float want = tensor_core_dot(core, o.a.data() + i * depth(c),
                                           o.b.data() + j * depth(c), depth(c), o.c[at]);
        if (std::bit_cast<std::uint32_t>(got[at]) != std::bit_cast<std::uint32_t>(want)) ++differ;
      }
    CHECK(differ == 0);
  }
}

namespace {

struct Gemm {
  int m, n, k;
  std::size_t pitch;  // of a row, in elements
  std::vector<std::uint16_t> a, b;
};
Gemm draw_gemm(int m, int n, int k, bool integers, std::mt19937& random) {
  Gemm g{m, n, k, static_cast<std::size_t>((k + 7) / 8 * 8), {}, {}};
  std::normal_distribution<float> normal;
  g.a.resize(static_cast<std::size_t>(m) * g.pitch);
  g.b.resize(static_cast<std::size_t>(n) * g.pitch);
  for (auto* x : {&g.a, &g.b})
    for (auto& v : *x)
      v = BFloat16(integers ? static_cast<float>(static_cast<int>(random() % 9) - 4)
                            : normal(random))
              .bits;
  return g;
}

TiledMap rows_of(const std::uint16_t* address, int rows, const Gemm& g, std::uint32_t box) {
  TiledMap map;
  map.dtype = DType::bf16;
  map.address = address;
  map.rank = 2;
  map.size[0] = static_cast<std::uint64_t>(g.k);
  map.size[1] = static_cast<std::uint64_t>(rows);
  map.stride_bytes[1] = g.pitch * 2;
  map.box[0] = 64;
  map.box[1] = box;
  map.swizzle = Swizzle::span128;
  return map;
}

std::vector<float> wgmma_gemm(auto& device, auto target, unsigned cluster, const Gemm& g) {
  const auto count = static_cast<std::size_t>(g.m) * static_cast<std::size_t>(g.n);
  float* c = device.upload(std::vector<float>(count, NAN));
  launch_wgmma_gemm(target, cluster, rows_of(device.upload(g.a), g.m, g, 128),
                    rows_of(device.upload(g.b), g.n, g, 64), g.m, g.n, g.k, c);
  return device.download(c, count);
}

}  // namespace

TEST_CASE("a GEMM by TMA, mbarriers and wgmma is exact on integers, ragged, with multicast too") {
  std::mt19937 random(15);
  const Gemm sizes[] = {draw_gemm(1, 1, 1, true, random), draw_gemm(128, 64, 64, true, random),
                        draw_gemm(130, 70, 200, true, random),
                        draw_gemm(200, 33, 449, true, random)};
  under_schedules(
      [&](auto& device, auto target) {
        for (const Gemm& g : sizes) {
          for (const unsigned cluster : {1U, 2U}) {
            const std::vector<float> got = wgmma_gemm(device, target, cluster, g);
            int differ = 0;
            for (int i = 0; i < g.m; ++i)
              for (int j = 0; j < g.n; ++j) {
                float want = 0;
                for (int l = 0; l < g.k; ++l)
                  want += static_cast<float>(
                              BFloat16::from_bits(g.a[static_cast<std::size_t>(i) * g.pitch +
                                                      static_cast<std::size_t>(l)])) *
                          static_cast<float>(
                              BFloat16::from_bits(g.b[static_cast<std::size_t>(j) * g.pitch +
                                                      static_cast<std::size_t>(l)]));
                if (got[static_cast<std::size_t>(i * g.n + j)] != want) ++differ;
              }
            CAPTURE(g.m);
            CAPTURE(cluster);
            CHECK(differ == 0);
          }
        }
      },
      Architecture::sm_90a);
}

TEST_CASE("mma.sync and wgmma GEMMs have the same bits under H100's arithmetic") {
  std::mt19937 random(16);
  const Gemm g = draw_gemm(128, 128, 512, false, random);
  const auto count = static_cast<std::size_t>(g.m * g.n);
  std::vector<float> by_wgmma;
  with_arithmetic(
      Accumulator::h100,
      [&](auto& device, auto target) {
        by_wgmma = wgmma_gemm(device, target, 2, g);
        float* c = device.upload(std::vector<float>(count));
        launch_mma_gemm(target, g.m, g.n, g.k, device.upload(g.a), device.upload(g.b), c);
        const std::vector<float> by_mma = device.download(c, count);
        CHECK(std::memcmp(by_mma.data(), by_wgmma.data(), count * sizeof(float)) == 0);
      },
      Architecture::sm_90a);
  if (by_wgmma.empty()) return;
  // The model matters: with fused multiply-adds the bits are others.
  with_arithmetic(Accumulator::fp32, [&](auto& device, auto target) {
    const std::vector<float> by_fma = wgmma_gemm(device, target, 1, g);
    CHECK(std::memcmp(by_fma.data(), by_wgmma.data(), count * sizeof(float)) != 0);
  });
}

TEST_CASE("several accumulators in flight, and groups that stay so between waits") {
  under_schedules(
      [](auto& device, auto target) {
        float* d = device.upload(std::vector<float>(1024));
        launch_two_accumulators(target, d);
        const std::vector<float> got = device.download(d, 1024);
        bool right = true;
        for (std::size_t i = 0; i < 512; ++i)
          right = right && got[i] == 16048 && got[512 + i] == 33;
        CHECK(right);
      },
      Architecture::sm_90a);
}

#if !defined(ROUNDOFF_TEST_ON_GPU)

TEST_CASE("a GEMM has the same bits and counters for one worker and for three") {
  std::mt19937 random(17);
  const Gemm g = draw_gemm(300, 130, 256, false, random);
  std::vector<float> first;
  simt::Counters counted;
  for (const unsigned workers : {1U, 3U}) {
    simt::Config config;
    config.workers = workers;
    config.tensor_core = simt::TensorCoreModel::h100;
    config.async = simt::Async::random;
    config.schedule = simt::Schedule::random;
    SimDevice device(config);
    const std::vector<float> got = wgmma_gemm(device, device.sim(), 2, g);
    const simt::Counters& c = device.emulator.counters();
    // 4 x 3 tiles (the clusters have an even number of rows) of 4 steps and 2 consumers, each 4
    // products; and 2 loads a step.
    CHECK(c.wgmma == 4 * 3 * 4 * 2 * 4);
    CHECK(c.tma == 4 * 3 * 4 * 2);
    if (workers == 1) {
      first = got;
      counted = c;
      continue;
    }
    CHECK(std::memcmp(first.data(), got.data(), got.size() * sizeof(float)) == 0);
    CHECK(c.switches == counted.switches);
    CHECK(c.tma_bytes == counted.tma_bytes);
  }
}

TEST_CASE("misuse of wgmma is diagnosed, under every schedule") {
  const struct {
    WgmmaMisuse misuse;
    const char* message;
  } kExpected[] = {
      {WgmmaMisuse::no_fence, "without a wgmma.fence"},
      {WgmmaMisuse::fence_too_early, "without a wgmma.fence"},
      {WgmmaMisuse::write_in_flight, "wrote to an accumulator's registers"},
      {WgmmaMisuse::no_wait, "wgmma in flight"},
      {WgmmaMisuse::no_commit, "wgmma in flight"},
      {WgmmaMisuse::other_descriptor_in_warp, "different instructions or operands"},
      {WgmmaMisuse::other_descriptor_in_lane, "lanes of one warp give different descriptors"},
      {WgmmaMisuse::warp_is_missing, "deadlock"},
      {WgmmaMisuse::no_warpgroup, "no warpgroup"},
      {WgmmaMisuse::base_offset, "base offset"},
      {WgmmaMisuse::beyond_shared, "beyond shared memory"},
      {WgmmaMisuse::other_shape, "another shape"},
      {WgmmaMisuse::divergent_fence, "wgmma"},
      {WgmmaMisuse::registers_the_wrong_way, "setmaxnreg.inc from 40 to 32"},
      {WgmmaMisuse::too_many_registers, "registers of 65536"},
  };
  for (const auto& e : kExpected) {
    for (std::uint64_t k = 0; k < kSchedules; ++k) {
      const std::string message =
          fault_of(simt::with_schedule({}, k), [&](SimDevice& device, auto target) {
            launch_wgmma_misuse(target, e.misuse, device.upload(std::vector<float>(384)));
          });
      CAPTURE(static_cast<int>(e.misuse));
      CAPTURE(message);
      CHECK(contains(message, e.message));
    }
  }
}

TEST_CASE("an accumulator in flight reads as NaN until its wait") {
  under_schedules(
      [](auto& device, auto target) {
        float* out = device.upload(std::vector<float>(128));
        launch_wgmma_misuse(target, WgmmaMisuse::read_in_flight, out);
        const std::vector<float> got = device.download(out, 128);
        CHECK(std::all_of(got.begin(), got.end(), [](float v) { return std::isnan(v); }));
      },
      Architecture::sm_90a);
}

#endif
