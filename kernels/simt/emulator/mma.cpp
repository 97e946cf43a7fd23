#include "kernels/simt/emulator/mma.h"

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/fragments.h"
#include "kernels/simt/emulator/products.h"

namespace roundoff::simt {

namespace {

// Rows of tiles that a warp's tile may have: what one stack holds with ease.
constexpr int kMaxTiles = 16;

struct Argument {
  float* d;
  const float* c;
  const std::uint32_t* a;
  const std::uint32_t* b;
  std::uint32_t* half_d;
  const std::uint32_t* half_c;
};

// One member of every lane's argument.
template <class Register>
LaneRegisters<Register> of_lanes(const Collective& c, Register* Argument::*member) {
  LaneRegisters<Register> all;
  for (std::size_t lane = 0; lane < kWarp; ++lane)
    all[lane] = static_cast<Argument*>(c.argument[lane])->*member;
  return all;
}

TensorCoreModel model() { return current()->block->cluster->config.tensor_core; }
std::uint64_t& counter() { return current()->block->cluster->counters.mma; }

}  // namespace

void mma(float* d, const std::uint32_t* a, const std::uint32_t* b, const float* c, MmaKind kind,
         Site site) {
  Argument mine{d, c, a, b, nullptr, nullptr};
  Collective* all = arrive(Meeting::mma, ~0U, &mine, site, true);
  if (all == nullptr) return;
  float ta[kMmaRows][kMmaMaxK], tb[kMmaMaxK][kMmaColumns], tc[kMmaRows][kMmaColumns];
  gather_a(of_lanes(*all, &Argument::a), 0, kind, ta);
  gather_b(of_lanes(*all, &Argument::b), 0, 1, kind, tb[0], kMmaColumns);
  gather_c(of_lanes(*all, &Argument::c), 0, tc[0], kMmaColumns);
  multiply(
      model(), kind.operand,
      {ta[0], kMmaMaxK, tb[0], kMmaColumns, tc[0], kMmaColumns, kMmaRows, kMmaColumns, kind.k});
  scatter_c(tc[0], kMmaColumns, of_lanes(*all, &Argument::d), 0);
  ++counter();
  release(all);
}

void mma_half(std::uint32_t* d, const std::uint32_t* a, const std::uint32_t* b,
              const std::uint32_t* c, int k, Site site) {
  const MmaKind kind{Operand::fp16, k};
  Argument mine{nullptr, nullptr, a, b, d, c};
  Collective* all = arrive(Meeting::mma, ~0U, &mine, site, true);
  if (all == nullptr) return;
  float ta[kMmaRows][kMmaMaxK], tb[kMmaMaxK][kMmaColumns], tc[kMmaRows][kMmaColumns];
  gather_a(of_lanes(*all, &Argument::a), 0, kind, ta);
  gather_b(of_lanes(*all, &Argument::b), 0, 1, kind, tb[0], kMmaColumns);
  const auto from = of_lanes(*all, &Argument::half_c);
  const auto to = of_lanes(*all, &Argument::half_d);
  // Where the two values of register i of a lane stand.
  const auto place = [&tc](std::size_t lane, std::size_t i) {
    return &tc[lane / 4 + 8 * i][lane % 4 * 2];
  };
  for (std::size_t lane = 0; lane < kWarp; ++lane) {
    for (std::size_t i = 0; i < 2; ++i) {
      const std::uint32_t bits = from[lane][i];
      float* values = place(lane, i);
      values[0] = static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(bits)));
      values[1] = static_cast<float>(Half::from_bits(static_cast<std::uint16_t>(bits >> 16)));
    }
  }
  multiply_half(model(), {ta[0], kMmaMaxK, tb[0], kMmaColumns, tc[0], kMmaColumns, kMmaRows,
                          kMmaColumns, kind.k});
  for (std::size_t lane = 0; lane < kWarp; ++lane)
    for (std::size_t i = 0; i < 2; ++i)
      to[lane][i] = static_cast<std::uint32_t>(Half(place(lane, i)[0]).bits) |
                    static_cast<std::uint32_t>(Half(place(lane, i)[1]).bits) << 16;
  ++counter();
  release(all);
}

void mma_tile(float* c, const std::uint32_t* a, const std::uint32_t* b, int m, int n, MmaKind kind,
              Site site) {
  if (m > kMaxTiles) fault_at(site, "mma_tile: ", m, " tiles of rows, at most 16 expected");
  Argument mine{c, nullptr, a, b, nullptr, nullptr};
  Collective* all = arrive(Meeting::mma, ~0U, &mine, site, true);
  if (all == nullptr) return;
  constexpr int kPitch = 2 * kMmaColumns;
  float ta[kMaxTiles * kMmaRows][kMmaMaxK], tb[kMmaMaxK][kPitch];
  const auto from_a = of_lanes(*all, &Argument::a), from_b = of_lanes(*all, &Argument::b);
  const auto registers = of_lanes(*all, &Argument::d);
  for (int i = 0; i < m; ++i) gather_a(from_a, i * a_registers(kind), kind, ta + i * kMmaRows);
  for (int j = 0; j < n; j += 2) {
    const int tiles = n - j < 2 ? 1 : 2;
    gather_b(from_b, j * b_registers(kind), tiles, kind, tb[0], kPitch);
    const auto at = [&](int i) { return (i * n + j) * 4; };
    if (model() == TensorCoreModel::fp32) {
      for (int i = 0; i < m; ++i)
        fma_fragments(registers, at(i), tiles, ta + i * kMmaRows, tb[0], kPitch, kind.k);
      continue;
    }
    float tc[kMaxTiles * kMmaRows][kPitch];
    const auto each = [&](auto&& move) {
      for (int i = 0; i < m; ++i)
        for (int t = 0; t < tiles; ++t) move(at(i) + 4 * t, &tc[i * kMmaRows][t * kMmaColumns]);
    };
    each([&](int r, float* tile) { gather_c(registers, r, tile, kPitch); });
    multiply(
        model(), kind.operand,
        {ta[0], kMmaMaxK, tb[0], kPitch, tc[0], kPitch, m * kMmaRows, tiles * kMmaColumns, kind.k});
    each([&](int r, const float* tile) { scatter_c(tile, kPitch, registers, r); });
  }
  counter() += static_cast<std::uint64_t>(m) * static_cast<std::uint64_t>(n);
  release(all);
}

}  // namespace roundoff::simt
