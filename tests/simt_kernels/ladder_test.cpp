// Every kernel of the ladder over what products may ask for: exact values of integers, the bits of
// the other kernels and of the host's models, rows that depend on nothing else, cut sums.
#include "tests/simt_kernels/ladder.h"

#include <doctest/doctest.h>

#include "kernels/base/tensor_core.h"
#include "tests/covering.h"
#include "verify/oracle/matmul.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

// What fp32 operands need: wgmma takes tf32 operands that lie along k only.
bool tf32_refused(ProductKernel kernel, const LadderCase& t) {
  return on_sm90(kernel) && t.operand == DType::fp32 && (t.p.trans_a || !t.p.trans_b);
}
// TMA wants lines and matrices of whole 16 bytes.
bool tma_refused(const LadderCase& t) {
  const auto bytes = static_cast<std::int64_t>(size_of(t.operand));
  const auto odd = [&](std::int64_t lines, std::int64_t pitch) {
    return lines > 1 && pitch * bytes % 16 != 0;
  };
  return t.offset * bytes % 16 != 0 || (t.p.trans_a ? odd(t.p.k, t.p.m) : odd(t.p.m, t.p.k)) ||
         (t.p.trans_b ? odd(t.p.n, t.p.k) : odd(t.p.k, t.p.n));
}

struct Kind {
  DType operand;
  bool tf32;
};
constexpr Kind kKinds[] = {{DType::fp16, false}, {DType::bf16, false}, {DType::fp32, true}};

struct Size {
  std::int64_t m, n, k;
};

void set_epilogue(LadderCase& t, int epilogue) {
  t.p.alpha = epilogue == 4 ? 0.5 : 1;
  t.p.beta = epilogue == 0 || epilogue == 5 ? 0 : epilogue == 3 ? 0.5 : 1;
  t.bias = epilogue == 1;
  t.addend = epilogue == 3 ? DType::fp16 : DType::fp32;
  t.p.activation = epilogue == 1   ? Activation::relu
                   : epilogue == 2 ? Activation::gelu
                                   : Activation::none;
  t.accumulate = epilogue == 5 || epilogue == 6;
}
constexpr int kEpilogues = 7;

LadderCase product(const Size& s, const Kind& kind, int layout, int epilogue, DType output) {
  LadderCase t;
  t.p = {.m = s.m, .n = s.n, .k = s.k, .trans_a = layout % 2 == 1, .trans_b = layout / 2 == 1};
  t.p.tf32 = kind.tf32;
  t.operand = kind.operand;
  t.output = output;
  set_epilogue(t, epilogue);
  if (t.accumulate && is_16bit(output)) t.output = DType::fp32;
  return t;
}

}  // namespace

TEST_CASE("products of integers are exact in every kernel of the ladder, and alike to the bit") {
  std::mt19937 random(41);
  const Size sizes[] = {{0, 3, 4},  {1, 1, 1},   {1, 8, 0},    {3, 5, 1},    {7, 16, 33},
                        {16, 8, 8}, {33, 70, 9}, {64, 64, 64}, {65, 24, 31}, {130, 136, 72}};
  constexpr DType kOutputs[] = {DType::fp32, DType::fp16, DType::bf16, DType::fp64};
  // Size, type, layout, epilogue, output, alignment.
  const auto rows = covering_array({10, 3, 4, kEpilogues, 4, 2});
  for (const auto& row : rows) {
    const auto at = [&](std::size_t i) { return static_cast<std::size_t>(row[i]); };
    LadderCase t = product(sizes[at(0)], kKinds[at(1)], row[2], row[3], kOutputs[at(4)]);
    t.offset = row[5];
    CAPTURE(t.p.m);
    CAPTURE(t.p.n);
    CAPTURE(t.p.k);
    CAPTURE(row);
    const LadderArrays arrays(t, random, true);
    const Array want = reference(t, arrays);
    for (const ProductKernel kernel : kLadder) {
      CAPTURE(name(kernel));
      t.p.kernel = kernel;
      const bool empty = t.p.m == 0 || t.p.n == 0;
      SimDevice device(static_cast<std::uint64_t>(row[0] + row[3]) % kSchedules);
      if (!empty && t.p.k != 0 &&
          (tf32_refused(kernel, t) || (on_sm90(kernel) && tma_refused(t)))) {
        CHECK_THROWS(run_ladder(device, t, arrays));
        continue;
      }
      const Array got = run_ladder(device, t, arrays);
      CHECK(same_bits(got, want));
    }
  }
}

TEST_CASE("every tile and kernel gives one chain's bits in the emulator's own arithmetic") {
  std::mt19937 random(42);
  const Size sizes[] = {{40, 72, 96}, {136, 264, 80}, {8, 8, 200}, {33, 17, 70}, {260, 130, 40}};
  for (const Size& s : sizes) {
    for (std::size_t k = 0; k < 3; ++k) {
      for (int layout = 0; layout < 4; ++layout) {
        const int epilogue = (layout + static_cast<int>(k)) % kEpilogues;
        LadderCase t = product(s, kKinds[k], layout, epilogue == 2 ? 0 : epilogue,
                               layout == 0 ? DType::fp16 : DType::fp32);
        const LadderArrays arrays(t, random, false);
        SimDevice device;
        t.p.kernel = ProductKernel::naive;
        // Tensor cores round fp32 operands as the plain kernels do.
        const Array want = run_ladder(device, t, arrays);
        for (const ProductKernel kernel : kLadder) {
          if (tf32_refused(kernel, t) || (on_sm90(kernel) && tma_refused(t))) continue;
          CAPTURE(name(kernel));
          t.p.kernel = kernel;
          CHECK(same_bits(run_ladder(device, t, arrays), want));
        }
        t.p.kernel = ProductKernel::sm80;
        for (const ProductTile tile : kTiles) {
          const bool large = tile == ProductTile::m256n128 || tile == ProductTile::m128n128;
          t.p.tile = tile;
          if (large && tma_refused(t))
            CHECK_THROWS(run_ladder(device, t, arrays));
          else
            CHECK(same_bits(run_ladder(device, t, arrays), want));
        }
      }
    }
  }
}

TEST_CASE("kernels on tensor cores have the bits of the host's models") {
  std::mt19937 random(43);
  struct Model {
    Accumulator accumulator;
    DType operand;
  };
  const Model models[] = {{Accumulator::h100, DType::fp16}, {Accumulator::h100, DType::bf16},
                          {Accumulator::h100, DType::fp32}, {Accumulator::a100, DType::fp16},
                          {Accumulator::a100, DType::bf16}, {Accumulator::a100, DType::fp32},
                          {Accumulator::v100, DType::fp16}};
  const Size sizes[] = {{16, 40, 72}, {72, 136, 48}, {5, 9, 37}};
  int round = -1;
  for (const Model& model : models) {
    for (const Size& s : sizes) {
      ++round;
      LadderCase t =
          product(s, {model.operand, true}, round % 4, round % 2 == 0 ? 5 : 3, DType::fp32);
      t.p.accumulator = model.accumulator;
      const LadderArrays arrays(t, random, false);
      const Array want = reference(t, arrays);
      for (const ProductKernel kernel : kLadder) {
        CAPTURE(name(kernel));
        t.p.kernel = kernel;
        SimDevice device;
        const bool other = on_sm90(kernel) && model.accumulator != Accumulator::h100;
        if (!on_tensor_cores(kernel) || other || tf32_refused(kernel, t) ||
            (on_sm90(kernel) && tma_refused(t)))
          CHECK_THROWS(run_ladder(device, t, arrays));
        else
          CHECK(same_bits(run_ladder(device, t, arrays), want));
      }
    }
  }
}

TEST_CASE("a row has the same bits however many rows there are, in every kernel and tile") {
  std::mt19937 random(44);
  constexpr std::int64_t kRows = 264, kN = 72, kK = 104;
  for (const Accumulator accumulator : {Accumulator::fp32, Accumulator::h100}) {
    LadderCase t = product({kRows, kN, kK}, kKinds[0], 2, 1, DType::fp16);
    t.p.accumulator = accumulator;
    const LadderArrays arrays(t, random, false);
    SimDevice device;
    const Array all = run_ladder(device, t, arrays);
    for (const std::int64_t m : {1, 2, 7, 16, 33, 65, 129, 264}) {
      LadderCase few = t;
      few.p.m = m;
      for (const ProductKernel kernel : kLadder) {
        if (accumulator != Accumulator::fp32 && !on_tensor_cores(kernel)) continue;
        few.p.kernel = kernel;
        CAPTURE(m);
        CAPTURE(name(kernel));
        const Array got = run_ladder(device, few, arrays);
        CHECK(std::memcmp(got.view().data, all.view().data, static_cast<std::size_t>(m * kN) * 2) ==
              0);
      }
    }
  }
}

TEST_CASE("cut sums: partial sums in order, alike in every kernel") {
  std::mt19937 random(45);
  // Over samples, by the sizes alone; and where it is asked for.
  for (const std::int64_t split : {0, 1, 2, 3, 50}) {
    LadderCase t = product({24, 40, 1100}, kKinds[1], split == 0 ? 1 : 2, 6, DType::fp32);
    t.p.split = split;
    LadderArrays arrays(t, random, false);
    SimDevice device;
    t.p.kernel = ProductKernel::naive;
    const Array want = run_ladder(device, t, arrays);
    for (const ProductKernel kernel : kLadder) {
      if (on_sm90(kernel) && tma_refused(t)) continue;
      CAPTURE(split);
      CAPTURE(name(kernel));
      t.p.kernel = kernel;
      CHECK(same_bits(run_ladder(device, t, arrays), want));
    }
    // Parts differ from one chain, and are what a chain of parts says.
    const std::int64_t blocks = (1100 + 63) / 64;
    const std::int64_t parts = split == 0 ? blocks / 4 : std::min(split, blocks);
    if (parts > 1 && split != 0) {
      const std::int64_t each = (blocks + parts - 1) / parts * 64;
      std::vector<double> sums;
      Array begun = arrays.y;
      {
        // beta C and what y holds come first: one product of no depth.
        LadderCase none = t;
        none.p.k = 0;
        none.p.split = 0;
        none.p.kernel = ProductKernel::naive;
        begun = run_ladder(device, none, arrays);
      }
      sums = begun.values();
      for (std::int64_t k0 = 0; k0 < 1100; k0 += each) {
        const std::int64_t k1 = std::min<std::int64_t>(1100, k0 + each);
        const std::vector<double> a = arrays.a.values(), b = arrays.b.values();
        for (std::int64_t i = 0; i < 24; ++i) {
          for (std::int64_t j = 0; j < 40; ++j) {
            float sum = 0;
            for (std::int64_t k = k0; k < k1; ++k)
              sum = std::fma(static_cast<float>(a[static_cast<std::size_t>(i * 1100 + k)]),
                             static_cast<float>(b[static_cast<std::size_t>(j * 1100 + k)]), sum);
            double& to = sums[static_cast<std::size_t>(i * 40 + j)];
            to = static_cast<double>(static_cast<float>(to) + sum);
          }
        }
      }
      CHECK(want.values() == sums);
    }
  }
}

TEST_CASE("sums in fp16 on tensor cores have the bits of the host's model") {
  std::mt19937 random(48);
  for (const Accumulator accumulator : {Accumulator::v100, Accumulator::a100, Accumulator::h100}) {
    for (int layout = 0; layout < 4; ++layout) {
      for (const Size& s : {Size{70, 33, 100}, Size{16, 8, 64}, Size{3, 5, 1}}) {
        LadderCase t = product(s, kKinds[0], layout, 0, DType::fp32);
        t.p.accumulator = accumulator;
        t.p.half_sums = true;
        const LadderArrays arrays(t, random, false);
        SimDevice device;
        const std::vector<double> got = run_ladder(device, t, arrays).values();
        const TensorCore& core = tensor_core(accumulator, DType::fp16);
        const std::vector<double> a = arrays.a.values(), b = arrays.b.values();
        std::vector<float> x(static_cast<std::size_t>(s.k)), y(x.size());
        for (std::int64_t i = 0; i < s.m; ++i) {
          for (std::int64_t j = 0; j < s.n; ++j) {
            for (std::int64_t k = 0; k < s.k; ++k) {
              x[static_cast<std::size_t>(k)] = static_cast<float>(
                  a[static_cast<std::size_t>(t.p.trans_a ? k * s.m + i : i * s.k + k)]);
              y[static_cast<std::size_t>(k)] = static_cast<float>(
                  b[static_cast<std::size_t>(t.p.trans_b ? j * s.k + k : k * s.n + j)]);
            }
            const auto want = static_cast<double>(static_cast<float>(
                tensor_core_dot_half(core, x.data(), y.data(), s.k, Half(0.0F))));
            CHECK(got[static_cast<std::size_t>(i * s.n + j)] == want);
          }
        }
      }
    }
  }
  LadderCase t = product({8, 8, 8}, kKinds[1], 0, 0, DType::fp32);
  t.p.half_sums = true;
  SimDevice device;
  CHECK_THROWS_WITH(run_ladder(device, t, LadderArrays(t, random, true)),
                    "[gemm] half_sums takes fp16 operands, bf16 and bf16 given");
}

TEST_CASE("batches and sums over a batch, in every kernel") {
  std::mt19937 random(46);
  for (const bool sum : {false, true}) {
    for (int layout = 0; layout < 4; ++layout) {
      LadderCase t = product({24, 40, 72}, kKinds[layout % 2], layout, 5, DType::fp32);
      t.p.batch = 3;
      t.p.stride_a = 24 * 72;
      t.p.stride_b = 40 * 72;
      t.p.sum_batch = sum;
      const LadderArrays arrays(t, random, true);
      const Array want = reference(t, arrays);
      for (const ProductKernel kernel : kLadder) {
        CAPTURE(name(kernel));
        t.p.kernel = kernel;
        SimDevice device;
        CHECK(same_bits(run_ladder(device, t, arrays), want));
      }
    }
  }
}

TEST_CASE("a kernel that does not take a product says why") {
  std::mt19937 random(47);
  const auto message = [&](ProductKernel kernel, const LadderCase& base,
                           simt::SimArchitecture architecture = simt::SimArchitecture::sm_90a) {
    LadderCase t = base;
    t.p.kernel = kernel;
    SimDevice device;
    device.emulator().config.architecture = architecture;
    const LadderArrays arrays(t, random, true);
    try {
      (void)run_ladder(device, t, arrays);
    } catch (const std::exception& e) {
      CHECK(device.emulator().counters().launches == 0);
      return std::string(e.what());
    }
    return std::string("taken");
  };
  const LadderCase half = product({8, 8, 8}, kKinds[0], 2, 0, DType::fp32);
  CHECK(
      message(ProductKernel::sm90, half, simt::SimArchitecture::sm_80) ==
      "[gemm] kernel sm90 does not take this product: it is written for sm_90a, which this device "
      "is not");
  CHECK(message(ProductKernel::sm80, half, simt::SimArchitecture::sm_80) == "taken");
  LadderCase plain = half;
  plain.operand = DType::fp32;
  CHECK(message(ProductKernel::mma, plain) ==
        "[gemm] kernel mma does not take this product: tensor cores take two operands of fp16 or "
        "of bf16, or fp32 ones as tf32; fp32 and fp32 given");
  LadderCase wide = half;
  wide.p.accumulator = Accumulator::fp64;
  CHECK(message(ProductKernel::naive, wide) ==
        "[gemm] kernel naive does not take this product: sums in fp64 are for the kernel tiles");
  CHECK(message(ProductKernel::tiles, wide) == "taken");
  LadderCase model = half;
  model.p.accumulator = Accumulator::a100;
  CHECK(message(ProductKernel::tiles, model) ==
        "[gemm] kernel tiles does not take this product: accumulator a100 is tensor cores', which "
        "this kernel does not use");
  CHECK(message(ProductKernel::wgmma, model).find("a100") != std::string::npos);
  LadderCase odd = half;
  odd.p.k = 7;
  CHECK(message(ProductKernel::ping_pong, odd).find("16") != std::string::npos);
  LadderCase chains = half;
  chains.p.accumulator = Accumulator::fp16;
  CHECK(message(ProductKernel::sm80, chains).find("automatic") != std::string::npos);
  CHECK(message(ProductKernel::automatic, chains) == "taken");
}
