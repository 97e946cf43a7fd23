// Layouts of mma.sync, ldmatrix and stmatrix from PTX's index formulas, written down here once
// more: element by element, not register by register as the emulator has them.
#include "tests/simt/fragments.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/base/bfloat16.h"
#include "kernels/base/half.h"
#include "kernels/base/tensor_core.h"
#include "kernels/simt/tf32.h"
#include "tests/simt/mma_fragments.h"
#include "tests/simt/sim_device.h"

using namespace roundoff;
using namespace roundoff::simt_test;

namespace {

Matrices draw(const Kind& kind, std::mt19937& random, bool integers) {
  Matrices m;
  std::normal_distribution<float> normal;
  const auto value = [&](DType to) {
    const float v =
        integers ? static_cast<float>(static_cast<int>(random() % 17) - 8) : normal(random);
    return to == DType::fp64 ? v : rounded(to, v);
  };
  m.a.resize(static_cast<std::size_t>(16 * kind.k));
  m.b.resize(static_cast<std::size_t>(8 * kind.k));
  m.c.resize(128);
  for (float& v : m.a) v = value(kind.operand);
  for (float& v : m.b) v = value(kind.operand);
  for (float& v : m.c) v = value(kind.half_accumulator ? DType::fp16 : DType::fp64);
  return m;
}

std::vector<float> column_of(const Matrices& m, int k, int j) {
  std::vector<float> column(static_cast<std::size_t>(k));
  for (int l = 0; l < k; ++l)
    column[static_cast<std::size_t>(l)] = m.b[static_cast<std::size_t>(l * 8 + j)];
  return column;
}

}  // namespace

TEST_CASE("mma.sync: fragments of every shape, by exact integer products, under every schedule") {
  under_schedules([](auto& device, auto target) {
    std::mt19937 random(3);
    for (const Kind& kind : kKinds) {
      CAPTURE(static_cast<int>(kind.which));
      const Matrices m = draw(kind, random, true);
      const std::vector<float> got = run_mma(device, target, kind, m);
      int differ = 0;
      for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 8; ++j) {
          const std::vector<float> column = column_of(m, kind.k, j);
          const float want =
              std::inner_product(column.begin(), column.end(), m.a.begin() + i * kind.k,
                                 m.c[static_cast<std::size_t>(i * 8 + j)]);
          if (got[static_cast<std::size_t>(i * 8 + j)] != want) ++differ;
        }
      CHECK(differ == 0);
    }
  });
}

TEST_CASE("mma.sync: the chosen tensor core's arithmetic, bit for bit") {
  std::mt19937 random(4);
  for (const Accumulator gpu :
       {Accumulator::v100, Accumulator::a100, Accumulator::h100, Accumulator::fp32}) {
    for (const Kind& kind : kKinds) {
      CAPTURE(static_cast<int>(kind.which));
      CAPTURE(name(gpu));
      const Matrices m = draw(kind, random, false);
      const bool exists = gpu == Accumulator::fp32 || has_tensor_core(gpu, kind.operand);
      with_arithmetic(gpu, [&](auto& device, auto target) {
        if (!exists) {
          CHECK_THROWS_AS(run_mma(device, target, kind, m), Error);
          return;
        }
        const std::vector<float> got = run_mma(device, target, kind, m);
        int differ = 0;
        for (int i = 0; i < 16; ++i)
          for (int j = 0; j < 8; ++j) {
            const std::vector<float> column = column_of(m, kind.k, j);
            const float* row = m.a.data() + i * kind.k;
            const float c = m.c[static_cast<std::size_t>(i * 8 + j)];
            float want = c;
            if (gpu == Accumulator::fp32) {
              for (int l = 0; l < kind.k; ++l)
                want = std::fma(row[l], column[static_cast<std::size_t>(l)], want);
              if (kind.half_accumulator) want = static_cast<float>(Half(want));
            } else {
              const TensorCore core = tensor_core(gpu, kind.operand);
              want = kind.half_accumulator ? static_cast<float>(tensor_core_dot_half(
                                                 core, row, column.data(), kind.k, Half(c)))
                                           : tensor_core_dot(core, row, column.data(), kind.k, c);
            }
            if (got[static_cast<std::size_t>(i * 8 + j)] != want) ++differ;
          }
        CHECK(differ == 0);
      });
    }
  }
}

TEST_CASE("mma.sync: a tf32 operand's lower 13 bits do not count") {
  on_device({}, [](auto& device, auto target) {
    const Kind kind{MmaCase::tf32_k8, 8, DType::fp32, false};
    std::mt19937 random(5);
    Matrices m = draw(kind, random, true);
    const std::vector<float> clean = run_mma(device, target, kind, m);
    for (float& v : m.a) v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) | 0x1FFFU);
    CHECK(run_mma(device, target, kind, m) == clean);
  });
}

namespace {

// Registers of fragments with random values.
std::vector<std::uint32_t> random_registers(DType operand, std::size_t count,
                                            std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<std::uint32_t> words(count);
  for (auto& w : words) {
    if (operand == DType::fp32) {
      w = std::bit_cast<std::uint32_t>(rounded(operand, normal(random)));
    } else {
      const std::uint32_t low = bits16(operand, normal(random));
      w = low | std::uint32_t{bits16(operand, normal(random))} << 16;
    }
  }
  return words;
}

// How many registers of a 2 x 3 tile differ from those of its six products.
int tile_differences(auto& device, auto target, const Kind& kind) {
  std::mt19937 random(6);
  const std::size_t ra = static_cast<std::size_t>(kind.k) / (kind.operand == DType::fp32 ? 2 : 4);
  const std::size_t rb = ra / 2;
  const std::vector<std::uint32_t> a = random_registers(kind.operand, 32 * 2 * ra, random);
  const std::vector<std::uint32_t> b = random_registers(kind.operand, 32 * 3 * rb, random);
  std::vector<float> c(32 * 24);
  for (auto& v : c) v = static_cast<float>(static_cast<int>(random() % 100)) / 7;
  float* tile = device.upload(c);
  launch_mma_tile(target, kind.which, device.upload(a), device.upload(b), tile);
  const std::vector<float> got = device.download(tile, c.size());
  int differ = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      std::vector<std::uint32_t> one_a, one_b, one_c;
      for (std::size_t lane = 0; lane < 32; ++lane) {
        for (std::size_t r = 0; r < ra; ++r) one_a.push_back(a[(lane * 2 + i) * ra + r]);
        for (std::size_t r = 0; r < rb; ++r) one_b.push_back(b[(lane * 3 + j) * rb + r]);
        for (std::size_t r = 0; r < 4; ++r)
          one_c.push_back(std::bit_cast<std::uint32_t>(c[((lane * 2 + i) * 3 + j) * 4 + r]));
      }
      std::uint32_t* d = device.upload(one_c);
      launch_mma(target, kind.which, device.upload(one_a), device.upload(one_b), d, d);
      const std::vector<std::uint32_t> want = device.download(d, one_c.size());
      for (std::size_t lane = 0; lane < 32; ++lane)
        for (std::size_t r = 0; r < 4; ++r)
          if (std::bit_cast<std::uint32_t>(got[((lane * 2 + i) * 3 + j) * 4 + r]) !=
              want[lane * 4 + r])
            ++differ;
    }
  }
  return differ;
}

constexpr Kind kTileKinds[] = {{MmaCase::fp16_k16, 16, DType::fp16, false},
                               {MmaCase::bf16_k16, 16, DType::bf16, false},
                               {MmaCase::bf16_k8, 8, DType::bf16, false},
                               {MmaCase::tf32_k8, 8, DType::fp32, false}};

}  // namespace

TEST_CASE("a warp's tile is the sequence of its products") {
  under_schedules([](auto& device, auto target) {
    for (const Kind& kind : kTileKinds) {
      CAPTURE(static_cast<int>(kind.which));
      CHECK(tile_differences(device, target, kind) == 0);
    }
  });
  with_arithmetic(Accumulator::h100, [](auto& device, auto target) {
    for (const Kind& kind : kTileKinds) CHECK(tile_differences(device, target, kind) == 0);
  });
}

TEST_CASE("ldmatrix and stmatrix: rows, lanes and transposition, under every schedule") {
  std::mt19937 random(7);
  std::vector<std::uint8_t> image(2048);
  for (auto& v : image) v = static_cast<std::uint8_t>(random());
  std::vector<int> rows(128);  // distinct places
  std::iota(rows.begin(), rows.end(), 0);
  std::shuffle(rows.begin(), rows.end(), random);
  std::vector<int> offset(32);
  for (std::size_t i = 0; i < 32; ++i) offset[i] = rows[i] * 16;
  const auto element = [&](int matrix, int row, int column) {
    const auto at =
        static_cast<std::size_t>(offset[static_cast<std::size_t>(matrix * 8 + row)] + column * 2);
    return static_cast<std::uint32_t>(image[at] | image[at + 1] << 8);
  };
  under_schedules([&](auto& device, auto target) {
    for (const int count : {1, 2, 4}) {
      for (const bool transpose : {false, true}) {
        const auto n = static_cast<std::size_t>(32 * count);
        std::uint32_t* values = device.upload(std::vector<std::uint32_t>(n));
        int* row_offset = device.upload(offset);
        launch_ldmatrix(target, count, transpose, device.upload(image), row_offset, values);
        const std::vector<std::uint32_t> got = device.download(values, n);
        int differ = 0;
        for (int lane = 0; lane < 32; ++lane)
          for (int m = 0; m < count; ++m) {
            // Thread l holds row l / 4, elements 2 (l mod 4) and the next.
            const int line = lane / 4, first = 2 * (lane % 4);
            const std::uint32_t want =
                transpose ? element(m, first, line) | element(m, first + 1, line) << 16
                          : element(m, line, first) | element(m, line, first + 1) << 16;
            if (got[static_cast<std::size_t>(lane * count + m)] != want) ++differ;
          }
        CHECK(differ == 0);

        if (!device.has_sm_90a()) continue;
        std::uint8_t* back = device.upload(std::vector<std::uint8_t>(2048, 0xEE));
        launch_stmatrix(target, count, transpose, values, row_offset, back);
        const std::vector<std::uint8_t> stored = device.download(back, 2048);
        int wrong = 0;
        std::vector<bool> written(2048);
        for (std::size_t r = 0; r < static_cast<std::size_t>(8 * count); ++r)
          for (std::size_t i = 0; i < 16; ++i)
            written[static_cast<std::size_t>(offset[r]) + i] = true;
        for (std::size_t i = 0; i < 2048; ++i)
          if (stored[i] != (written[i] ? image[i] : 0)) ++wrong;
        CHECK(wrong == 0);
      }
    }
  });
}

TEST_CASE("a GEMM by cp.async, ldmatrix and mma.sync is exact on integers, under every schedule") {
  std::mt19937 random(8);
  const auto draw_matrix = [&](int n) {
    std::vector<std::uint16_t> x(static_cast<std::size_t>(n));
    for (auto& v : x) v = BFloat16(static_cast<float>(static_cast<int>(random() % 9) - 4)).bits;
    return x;
  };
  constexpr int kM = 128, kN = 64, kK = 80;
  const std::vector<std::uint16_t> a = draw_matrix(kM * kK), b = draw_matrix(kN * kK);
  std::vector<float> want;
  for (int i = 0; i < kM; ++i)
    for (int j = 0; j < kN; ++j) {
      float sum = 0;
      for (int l = 0; l < kK; ++l)
        sum += static_cast<float>(BFloat16::from_bits(a[static_cast<std::size_t>(i * kK + l)])) *
               static_cast<float>(BFloat16::from_bits(b[static_cast<std::size_t>(j * kK + l)]));
      want.push_back(sum);
    }
  under_schedules([&](auto& device, auto target) {
    float* c = device.upload(std::vector<float>(want.size(), NAN));
    launch_mma_gemm(target, kM, kN, kK, device.upload(a), device.upload(b), c);
    CHECK(device.download(c, want.size()) == want);
  });
}

TEST_CASE("cp.async lands by its wait, zero-fills, and not before it has to") {
  under_schedules([](auto& device, auto target) {
    for (const unsigned n : {0U, 1U, 3U, 128U, 255U, 256U}) {
      std::vector<std::uint32_t> x(256);
      std::iota(x.begin(), x.end(), 1000U);
      std::uint32_t* y = device.upload(std::vector<std::uint32_t>(768, 7U));
      launch_staged_copy(target, 2, n, device.upload(x), y);
      const std::vector<std::uint32_t> got = device.download(y, 768);
      int differ = 0;
      for (std::size_t i = 0; i < 768; ++i)
        if (got[i] != (i % 256 < n ? x[i % 256] : 0U)) ++differ;
      CHECK(differ == 0);
    }
  });
}

#if !defined(ROUNDOFF_TEST_ON_GPU)

TEST_CASE("cp.async: a wait that does not cover a copy shows where the copy is late") {
  const auto read = [](simt::Async async) {
    simt::Config config;
    config.async = async;
    SimDevice device(config);
    std::uint32_t* y = device.upload(std::vector<std::uint32_t>(32));
    launch_copy_misuse(device.sim(), CopyMisuse::missing_wait,
                       device.upload(std::vector<std::uint32_t>(32, 5U)), y);
    return device.download(y, 32);
  };
  CHECK(read(simt::Async::eager) == std::vector<std::uint32_t>(32, 5U));
  CHECK(read(simt::Async::late) == std::vector<std::uint32_t>(32, 0U));
}

TEST_CASE("misuse of copies and of warp instructions is diagnosed") {
  const auto message = [](CopyMisuse misuse) {
    return fault_of({}, [misuse](SimDevice& device, auto target) {
      launch_copy_misuse(target, misuse, device.upload(std::vector<std::uint32_t>(32)),
                         device.upload(std::vector<std::uint32_t>(32)));
    });
  };
  CHECK(contains(message(CopyMisuse::misaligned_copy), "not aligned to 16 bytes"));
  CHECK(contains(message(CopyMisuse::too_many_source_bytes), "12 source bytes, 0 to 8 expected"));
  CHECK(contains(message(CopyMisuse::copy_to_global), "not an address of shared memory"));
  CHECK(contains(message(CopyMisuse::misaligned_matrix), "not a multiple of 16"));
  CHECK(contains(message(CopyMisuse::divergent_mma), "mma.sync"));
  CHECK(contains(message(CopyMisuse::divergent_mma), "fragments.cu"));
}

TEST_CASE("stmatrix is refused on a device older than sm_90") {
  simt::Config config;
  config.architecture = simt::SimArchitecture::sm_80;
  const std::string message = fault_of(config, [](auto& device, auto target) {
    launch_stmatrix(target, 1, false, device.upload(std::vector<std::uint32_t>(32)),
                    device.upload(std::vector<int>(32)),
                    device.upload(std::vector<std::uint8_t>(2048)));
  });
  CHECK(contains(message, "sm_90a"));
}

#endif
