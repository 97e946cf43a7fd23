// The sm_90a rungs under the sanitizer and the profiler: silent under many schedules, no bank
// conflicts, and the bytes that the tiles need.
#include <doctest/doctest.h>

#include "kernels/simt/emulator/profiler/profile.h"
#include "tests/simt_kernels/sim_device.h"
#include "tests/simt_kernels/sm90_products.h"
#include "verify/oracle/matmul.h"

using namespace roundoff;
using namespace roundoff::test;
using simt::RequestCounts;

namespace {

struct Rung {
  ProductKernel kernel;
  Sm90Tile tile;
  std::uint64_t m, n;  // of its tile
  std::uint64_t cluster;
};
constexpr Rung kRungs[] = {{ProductKernel::wgmma, Sm90Tile::automatic, 128, 128, 1},
                           {ProductKernel::sm90, Sm90Tile::small, 64, 64, 1},
                           {ProductKernel::sm90, Sm90Tile::medium, 128, 128, 1},
                           {ProductKernel::sm90, Sm90Tile::large, 128, 256, 2},
                           {ProductKernel::ping_pong, Sm90Tile::automatic, 128, 128, 2}};

std::vector<double> whole(std::int64_t n, std::mt19937& random) {
  std::vector<double> v(static_cast<std::size_t>(n));
  for (double& x : v) x = static_cast<double>(random() % 7) - 3;
  return v;
}

// What is added, and where results go: by TMA in 16 bit and in fp32, by threads, and in parts.
struct End {
  DType y;
  double beta;
  Write write;
  bool split;
};
constexpr End kEnds[] = {{DType::fp16, 0, Write::overwrite, false},
                         {DType::fp32, 1, Write::accumulate, false},
                         {DType::fp64, 1, Write::overwrite, false},
                         {DType::fp32, 1, Write::overwrite, true}};

}  // namespace

TEST_CASE("the sm_90a rungs are silent under the sanitizer, and free of bank conflicts") {
  std::mt19937 random(95);
  for (std::uint64_t schedule = 0; schedule < kSchedules; ++schedule)
    for (std::size_t i = 0; i < 5; ++i) {
      const Rung& rung = kRungs[i];
      const std::uint64_t turn = schedule + i;
      const bool tf32 = turn % 5 == 4;
      const bool ta = !tf32 && (turn & 1) != 0, tb = tf32 || (turn & 2) != 0;
      const End& end = kEnds[(turn / 4 + i) % 4];
      const DType dtype = tf32 ? DType::fp32 : turn % 2 == 0 ? DType::fp16 : DType::bf16;
      // Two columns of tiles for one block or cluster: the ring goes round, and ends of tiles meet
      // the copies of the next.
      const oracle::MatmulParams o{.m = end.split ? 40 : 136,
                                   .n = static_cast<std::int64_t>(rung.n) + 8,
                                   .k = end.split ? 520 : 200,
                                   .trans_a = ta,
                                   .trans_b = tb};
      const std::vector<double> a = whole(o.a_size(), random), b = whole(o.b_size(), random),
                                c = whole(o.n, random);
      const Array left(dtype, {o.a_size()}, a), right(dtype, {o.b_size()}, b),
          bias(DType::fp32, {o.n}, c);
      Array y(end.y, {o.m, o.n}, ones(o.m * o.n));
      SimDevice device(schedule);
      device.emulator().config.profile = true;
      {
        const Resident ra(device, left), rb(device, right), rc(device, bias);
        Resident ry(device, y);
        const Sm90Call call{rung.kernel,
                            {rung.tile, static_cast<unsigned>(rung.cluster)},
                            end.split,
                            {.m = o.m,
                             .n = o.n,
                             .k = o.k,
                             .trans_a = ta,
                             .trans_b = tb,
                             .beta = end.beta,
                             .tf32 = tf32}};
        CAPTURE(schedule);
        CAPTURE(name(rung.kernel));
        CAPTURE(static_cast<int>(rung.tile));
        REQUIRE_NOTHROW(
            sm90_gemm(device.target(), call, *ra, *rb, *rc, ry.out(end.write), device.scratch()));
        ry.fetch();
        std::vector<double> want = oracle::matmul(o, a, b);
        for (std::size_t e = 0; e < want.size(); ++e)
          want[e] += (end.write == Write::accumulate ? 1 : 0) +
                     end.beta * c[e % static_cast<std::size_t>(o.n)];
        CHECK(y.values() == want);
        CHECK(device.emulator().counters().shared_store_wavefronts > 0);
        CHECK(device.emulator().counters().shared_excess_wavefronts == 0);
      }
    }
}

TEST_CASE("the sm_90a rungs copy every operand once a tile, a cluster's B once for both blocks") {
  std::mt19937 random(96);
  for (const Rung& rung : kRungs) {
    const auto m = static_cast<std::int64_t>(rung.m * rung.cluster);
    const oracle::MatmulParams o{
        .m = m, .n = static_cast<std::int64_t>(rung.n), .k = 128, .trans_b = true};
    const std::vector<double> a = whole(o.a_size(), random), b = whole(o.b_size(), random);
    const Array left(DType::fp16, {o.a_size()}, a), right(DType::fp16, {o.b_size()}, b);
    Array y(DType::fp16, {o.m, o.n});
    SimDevice device;
    device.emulator().config.sanitize = false;
    device.emulator().config.profile = true;
    const Resident ra(device, left), rb(device, right);
    Resident ry(device, y);
    const Sm90Call call{
        rung.kernel, {rung.tile, 0}, false, {.m = o.m, .n = o.n, .k = o.k, .trans_b = true}};
    sm90_gemm(device.target(), call, *ra, *rb, ConstView::absent(), ry.out(), device.scratch());
    ry.fetch();
    CHECK(y.values() == oracle::matmul(o, a, b));
    CAPTURE(name(rung.kernel));
    const simt::Counters& counters = device.emulator().counters();
    const bool stores = rung.kernel != ProductKernel::wgmma;
    CHECK(counters.tma_bytes ==
          static_cast<std::uint64_t>(2 * (o.a_size() + o.b_size() + (stores ? o.y_size() : 0))));
    // One wgmma for 64 rows of a group and 16 of depth.
    CHECK(counters.wgmma == static_cast<std::uint64_t>(o.m / 64 * o.k / 16));
    CHECK(counters.stmatrix == (stores ? static_cast<std::uint64_t>(o.y_size() / 256) : 0));
    CHECK(counters.global_load_requests == 0);
    // Rows of 64 bytes in 16 bit: 4 a request.
    CHECK(counters.global_store_sectors * 32 == counters.global_store_bytes);
    CHECK(counters.global_store_bytes == (stores ? 0 : static_cast<std::uint64_t>(2 * o.y_size())));
  }
}
