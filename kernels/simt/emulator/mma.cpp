#include "kernels/simt/emulator/mma.h"

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/products.h"

namespace roundoff::simt {

namespace {

constexpr int kRows = 16, kColumns = 8, kMaxK = 16;
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
Argument& argument(Collective& c, int lane) {
  return *static_cast<Argument*>(c.argument[static_cast<std::size_t>(lane)]);
}

constexpr int a_registers(const MmaKind& kind) {
  return kind.operand == Operand::tf32 ? kind.k / 2 : kind.k / 4;
}
constexpr int b_registers(const MmaKind& kind) { return a_registers(kind) / 2; }

// A's rows, 16 x k, of tile i of each lane's fragments.
void gather_a(Collective& c, const MmaKind& kind, int tile, float (*a)[kMaxK]) {
  const int registers = a_registers(kind);
  if (kind.operand == Operand::tf32) {
    for (int lane = 0; lane < 32; ++lane) {
      const std::uint32_t* from = argument(c, lane).a + tile * registers;
      for (int r = 0; r < registers; ++r)
        a[lane / 4 + (r & 1) * 8][lane % 4 + (r >> 1) * 4] = tf32_value(from[r]);
    }
    return;
  }
  std::uint16_t bits[kRows][kMaxK];
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t* from = argument(c, lane).a + tile * registers;
    for (int r = 0; r < registers; ++r) {
      std::uint16_t* to = &bits[lane / 4 + (r & 1) * 8][lane % 4 * 2 + (r >> 1) * 8];
      to[0] = static_cast<std::uint16_t>(from[r]);
      to[1] = static_cast<std::uint16_t>(from[r] >> 16);
    }
  }
  for (int i = 0; i < kRows; ++i) widen(kind.operand, bits[i], kind.k, a[i]);
}

// B's lines, k x 8.
void gather_b(Collective& c, const MmaKind& kind, int tile, float (*b)[kColumns]) {
  const int registers = b_registers(kind);
  std::uint16_t bits[kMaxK][kColumns];
  for (int lane = 0; lane < 32; ++lane) {
    const std::uint32_t* from = argument(c, lane).b + tile * registers;
    for (int r = 0; r < registers; ++r) {
      if (kind.operand == Operand::tf32) {
        b[lane % 4 + 4 * r][lane / 4] = tf32_value(from[r]);
      } else {
        bits[lane % 4 * 2 + 8 * r][lane / 4] = static_cast<std::uint16_t>(from[r]);
        bits[lane % 4 * 2 + 8 * r + 1][lane / 4] = static_cast<std::uint16_t>(from[r] >> 16);
      }
    }
  }
  if (kind.operand == Operand::tf32) return;
  for (int l = 0; l < kind.k; ++l) widen(kind.operand, bits[l], kColumns, b[l]);
}

ProductTile tile_of(const MmaKind& kind, const float* a, const float* b, float* c, int rows) {
  return {a, kMaxK, b, kColumns, c, kColumns, rows, kColumns, kind.k};
}

// Where c[i] of a lane stands in 16 x 8.
float* place(float (*c)[kColumns], int lane, int i) {
  return &c[lane / 4 + 8 * (i >> 1)][lane % 4 * 2 + (i & 1)];
}

TensorCoreModel model() { return current()->block->cluster->config.tensor_core; }
std::uint64_t& counter() { return current()->block->cluster->counters.mma; }

}  // namespace

void mma(float* d, const std::uint32_t* a, const std::uint32_t* b, const float* c, MmaKind kind,
         Site site) {
  Argument mine{d, c, a, b, nullptr, nullptr};
  Collective* all = arrive(Meeting::mma, ~0U, &mine, site, true);
  if (all == nullptr) return;
  float ta[kRows][kMaxK], tb[kMaxK][kColumns], tc[kRows][kColumns];
  gather_a(*all, kind, 0, ta);
  gather_b(*all, kind, 0, tb);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) *place(tc, lane, i) = argument(*all, lane).c[i];
  multiply(model(), kind.operand, tile_of(kind, ta[0], tb[0], tc[0], kRows));
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) argument(*all, lane).d[i] = *place(tc, lane, i);
  ++counter();
  release(all);
}

void mma_half(std::uint32_t* d, const std::uint32_t* a, const std::uint32_t* b,
              const std::uint32_t* c, int k, Site site) {
  const MmaKind kind{Operand::fp16, k};
  Argument mine{nullptr, nullptr, a, b, d, c};
  Collective* all = arrive(Meeting::mma, ~0U, &mine, site, true);
  if (all == nullptr) return;
  float ta[kRows][kMaxK], tb[kMaxK][kColumns], tc[kRows][kColumns];
  gather_a(*all, kind, 0, ta);
  gather_b(*all, kind, 0, tb);
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i)
      *place(tc, lane, i) = static_cast<float>(Half::from_bits(
          static_cast<std::uint16_t>(argument(*all, lane).half_c[i / 2] >> (i % 2 * 16))));
  multiply_half(model(), tile_of(kind, ta[0], tb[0], tc[0], kRows));
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 2; ++i)
      argument(*all, lane).half_d[i] =
          static_cast<std::uint32_t>(Half(*place(tc, lane, 2 * i)).bits) |
          static_cast<std::uint32_t>(Half(*place(tc, lane, 2 * i + 1)).bits) << 16;
  ++counter();
  release(all);
}

void mma_tile(float* c, const std::uint32_t* a, const std::uint32_t* b, int m, int n, MmaKind kind,
              Site site) {
  if (m > kMaxTiles) fault_at(site, "mma_tile: ", m, " tiles of rows, at most 16 expected");
  Argument mine{c, nullptr, a, b, nullptr, nullptr};
  Collective* all = arrive(Meeting::mma, ~0U, &mine, site, true);
  if (all == nullptr) return;
  float ta[kMaxTiles * kRows][kMaxK], tb[kMaxK][kColumns], tc[kMaxTiles * kRows][kColumns];
  for (int i = 0; i < m; ++i) gather_a(*all, kind, i, ta + i * kRows);
  for (int j = 0; j < n; ++j) {
    gather_b(*all, kind, j, tb);
    const auto each = [&](auto&& move) {
      for (int lane = 0; lane < 32; ++lane) {
        float* registers = argument(*all, lane).d;
        for (int i = 0; i < m; ++i)
          for (int r = 0; r < 4; ++r)
            move(registers[(i * n + j) * 4 + r], *place(tc + i * kRows, lane, r));
      }
    };
    each([](float& own, float& tile) { tile = own; });
    multiply(model(), kind.operand, tile_of(kind, ta[0], tb[0], tc[0], m * kRows));
    each([](float& own, float& tile) { own = tile; });
  }
  counter() += static_cast<std::uint64_t>(m) * static_cast<std::uint64_t>(n);
  release(all);
}

}  // namespace roundoff::simt
