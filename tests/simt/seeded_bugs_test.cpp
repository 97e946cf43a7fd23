#include "tests/simt/seeded_bugs.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/simt/emulator/profiler/profile.h"
#include "tests/simt/sim_device.h"

using namespace roundoff;
using simt::Config;
using simt_test::kSchedules;
using simt_test::SimDevice;

namespace {

// Memory that nobody has written.
template <class T>
T* reserve(SimDevice& d, std::size_t n) {
  return static_cast<T*>(d.emulator.allocate(n * sizeof(T)));
}

// Each runs one kernel with ragged sizes and says whether its results are right.
bool softmax(SimDevice& d, Bug bug, unsigned n) {
  constexpr unsigned kRows = 3;
  std::vector<float> x(std::size_t{kRows} * n);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7 % 11) / 4;
  const float* px = d.upload(x);
  float* py = reserve<float>(d, x.size());
  launch_softmax_rows(d.checked(), bug, kRows, n, px, py);
  const std::vector<float> y = d.download(py, x.size());
  for (unsigned r = 0; r < kRows; ++r) {
    float sum = 0;
    for (unsigned i = 0; i < n; ++i) sum += y[r * n + i];
    if (!(std::abs(sum - 1) <= static_cast<float>(n) * 1e-6F)) return false;
  }
  return true;
}

bool tree(SimDevice& d, Bug bug) {
  std::vector<int> x(256);
  int sum = 0;
  for (int i = 0; i < 256; ++i) sum += x[static_cast<std::size_t>(i)] = i * i % 97;
  int* out = reserve<int>(d, 1);
  launch_tree_sum(d.checked(), bug, d.upload(x), out);
  return d.download(out, 1)[0] == sum;
}

bool gemm(SimDevice& d, Bug bug) {
  constexpr unsigned kM = 37;
  constexpr unsigned kN = 21;
  constexpr unsigned kK = 40;
  std::vector<float> a(std::size_t{kM} * kK);
  std::vector<float> b(std::size_t{kK} * kN);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 5) - 2;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 7) - 3;
  float* c = reserve<float>(d, std::size_t{kM} * kN);
  launch_tiled_gemm(d.checked(), bug, kM, kN, kK, d.upload(a), d.upload(b), c);
  const std::vector<float> got = d.download(c, std::size_t{kM} * kN);
  for (unsigned i = 0; i < kM; ++i)
    for (unsigned j = 0; j < kN; ++j) {
      float sum = 0;
      for (unsigned k = 0; k < kK; ++k) sum += a[i * kK + k] * b[k * kN + j];
      if (got[i * kN + j] != sum) return false;
    }
  return true;
}

bool transposed(SimDevice& d, Bug bug) {
  constexpr unsigned kRows = 45;
  constexpr unsigned kCols = 70;
  std::vector<float> x(std::size_t{kRows} * kCols);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  float* y = reserve<float>(d, x.size());
  launch_transpose(d.checked(), bug, kRows, kCols, d.upload(x), y);
  const std::vector<float> got = d.download(y, x.size());
  for (unsigned r = 0; r < kRows; ++r)
    for (unsigned c = 0; c < kCols; ++c)
      if (got[c * kRows + r] != x[r * kCols + c]) return false;
  return true;
}

bool histogram(SimDevice& d, Bug bug) {
  constexpr unsigned kBlocks = 5;
  constexpr unsigned kN = 700;
  std::vector<unsigned> keys(kN);
  std::vector<unsigned> want(16, 0);
  for (unsigned i = 0; i < kN; ++i) ++want[keys[i] = i * i % 16];
  unsigned* bins = reserve<unsigned>(d, 16);
  unsigned* count = d.upload(std::vector<unsigned>{0});
  unsigned* partial = reserve<unsigned>(d, std::size_t{kBlocks} * 16);
  const unsigned* pkeys = d.upload(keys);
  // Twice: the counter is ready for the next launch.
  for (int i = 0; i < 2; ++i) {
    launch_histogram(d.checked(), bug, kBlocks, kN, pkeys, partial, count, bins);
    if (d.download(bins, 16) != want) return false;
  }
  return true;
}

bool scaled(SimDevice& d, Bug bug) {
  constexpr unsigned kN = 1000;
  std::vector<float> x(kN, 1.5F);
  float* y = reserve<float>(d, kN);
  launch_scale(d.checked(), bug, kN, 2.0F, d.upload(x), y);
  return d.download(y, kN) == std::vector<float>(kN, 3.0F);
}

bool pipeline(SimDevice& d, Bug bug) {
  // One that reads too far would else read what the next one's input is.
  const unsigned blocks = bug == Bug::pipeline_source_overrun ? 1 : 2;
  constexpr unsigned kTiles = 5;
  constexpr unsigned kThreads = 128;
  std::vector<float> x(std::size_t{blocks} * kTiles * kThreads * 4);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 17);
  float* sums = reserve<float>(d, std::size_t{blocks} * kThreads);
  launch_copy_pipeline(d.checked(), bug, blocks, kTiles, d.upload(x), sums);
  const std::vector<float> got = d.download(sums, std::size_t{blocks} * kThreads);
  for (unsigned b = 0; b < blocks; ++b)
    for (unsigned t = 0; t < kThreads; ++t) {
      float sum = 0;
      for (unsigned tile = 0; tile < kTiles; ++tile)
        for (unsigned i = 0; i < 4; ++i)
          sum += x[((b * kTiles + tile) * kThreads + (t + 37) % kThreads) * 4 + i];
      if (got[b * kThreads + t] != sum) return false;
    }
  return true;
}

std::vector<Half> halves(std::size_t n, int period) {
  std::vector<Half> x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = Half(static_cast<float>(static_cast<int>(i * 3 % 11) % period - 2));
  return x;
}

// c[m,n] = a[m,k] b[n,k]^T, of integers.
bool equal_product(const std::vector<float>& c, const std::vector<Half>& a,
                   const std::vector<Half>& b, unsigned m, unsigned n, unsigned k) {
  for (unsigned i = 0; i < m; ++i)
    for (unsigned j = 0; j < n; ++j) {
      float sum = 0;
      for (unsigned l = 0; l < k; ++l)
        sum += static_cast<float>(a[i * k + l]) * static_cast<float>(b[j * k + l]);
      if (c[i * n + j] != sum) return false;
    }
  return true;
}

bool mma_of(SimDevice& d, Bug bug, unsigned k) {
  const std::vector<Half> a = halves(std::size_t{64} * k, 5);
  const std::vector<Half> b = halves(std::size_t{8} * k, 4);
  float* c = reserve<float>(d, std::size_t{64} * 8);
  launch_mma_gemm(d.checked(), bug, k, d.upload(a), d.upload(b), c);
  return equal_product(d.download(c, std::size_t{64} * 8), a, b, 64, 8, k);
}
bool mma(SimDevice& d, Bug bug) { return mma_of(d, bug, 40); }

bool wgmma(SimDevice& d, Bug bug) {
  constexpr unsigned kK = 256;
  const std::vector<Half> a = halves(std::size_t{64} * kK, 5);
  const std::vector<Half> b = halves(std::size_t{32} * kK, 4);
  float* c = reserve<float>(d, std::size_t{64} * 32);
  launch_wgmma_gemm(d.checked(), bug, kK, d.upload(a), d.upload(b), c);
  return equal_product(d.download(c, std::size_t{64} * 32), a, b, 64, 32, kK);
}

bool ring(SimDevice& d, Bug bug) {
  constexpr unsigned kBlocks = 8;
  std::vector<int> x(kBlocks);
  for (unsigned i = 0; i < kBlocks; ++i) x[i] = static_cast<int>(i * i) + 1;
  int* out = reserve<int>(d, kBlocks);
  launch_ring_sum(d.checked(), bug, kBlocks, d.upload(x), out);
  const std::vector<int> got = d.download(out, kBlocks);
  for (unsigned i = 0; i < kBlocks; ++i) {
    int sum = 0;
    for (unsigned j = i / 4 * 4; j <= i; ++j) sum += x[j];
    if (got[i] != sum) return false;
  }
  return true;
}

struct Case {
  Bug bug;
  const char* kernel;
  const char* cause;
  std::function<bool(SimDevice&, Bug)> run;
  std::uint64_t at_least = kSchedules;  // of the schedules
};

const auto kSoftmax = [](SimDevice& d, Bug b) { return softmax(d, b, 77); };
const auto kSoftmaxShort = [](SimDevice& d, Bug b) { return softmax(d, b, 50); };
const auto kSoftmaxLong = [](SimDevice& d, Bug b) { return softmax(d, b, 300); };

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {Bug::softmax_no_barrier, "softmax_rows", "partial", kSoftmaxLong},
      {Bug::softmax_buffer_reused, "softmax_rows", "race: write of 4 bytes at shared", kSoftmaxLong,
       kSchedules / 2},
      {Bug::softmax_uninitialised, "softmax_rows", "uninitialised", kSoftmax},
      {Bug::softmax_shared_overrun, "softmax_rows", "out of bounds: write of 4 bytes at shared+0x",
       kSoftmax},
      {Bug::softmax_global_overrun, "softmax_rows", "out of bounds: read of 4 bytes at offset 924",
       kSoftmax},
      {Bug::softmax_early_exit, "softmax_rows", "exit", kSoftmaxShort},
      {Bug::tree_no_barrier, "tree_sum", "tree", tree},
      {Bug::tree_no_syncwarp, "tree_sum", "race", tree},
      {Bug::tree_wrong_mask, "tree_sum", "which the mask 0xffff does not name", tree},
      {Bug::tree_overrun, "tree_sum", "out of bounds: read of 4 bytes at shared+0x", tree},
      {Bug::tree_shuffle_as_fence, "tree_sum", "race", tree},
      {Bug::gemm_no_barrier_before, "tiled_gemm", "tile_", gemm},
      {Bug::gemm_no_barrier_after, "tiled_gemm", "race: ", gemm},
      {Bug::gemm_no_zero_fill, "tiled_gemm", "uninitialised: read of 4 bytes at shared+0x", gemm},
      {Bug::gemm_depth_off_by_one, "tiled_gemm", "out of bounds: read of 4 bytes at offset", gemm},
      {Bug::gemm_row_off_by_one, "tiled_gemm", "out of bounds: write of 4 bytes at shared", gemm},
      {Bug::gemm_tiles_overlap, "tiled_gemm", "blocks of one launch have no order", gemm},
      {Bug::gemm_barrier_in_branch, "tiled_gemm", "tile_", gemm},
      {Bug::transpose_no_barrier, "transpose", "tile", transposed},
      {Bug::transpose_edge, "transpose", "tile", transposed},
      {Bug::transpose_misaligned, "transpose", "misaligned address: read of 16 bytes", transposed},
      {Bug::histogram_not_zeroed, "histogram", "uninitialised: atomic of 4 bytes", histogram},
      {Bug::histogram_not_atomic, "histogram", "race", histogram},
      {Bug::histogram_no_barrier_before, "histogram", "own", histogram},
      {Bug::histogram_no_barrier_after, "histogram", "race: ", histogram},
      {Bug::histogram_no_fence, "histogram", "blocks of one launch have no order", histogram},
      {Bug::histogram_plain_counter, "histogram", "blocks of one launch have no order", histogram},
      {Bug::histogram_flag_unseen, "histogram", "last", histogram},
      {Bug::histogram_barrier_count, "histogram", "deadlock", histogram},
      {Bug::scale_null, "scale", "next to the null pointer", scaled},
      {Bug::scale_overlapping_blocks, "scale", "blocks of one launch have no order", scaled},
      {Bug::pipeline_no_wait, "copy_pipeline", "is in flight", pipeline},
      {Bug::pipeline_wait_too_few, "copy_pipeline", "is in flight", pipeline},
      {Bug::pipeline_no_barrier, "copy_pipeline", "", pipeline},
      {Bug::pipeline_stage_reused, "copy_pipeline", "", pipeline},
      {Bug::pipeline_exit_unawaited, "copy_pipeline", "exits with", pipeline},
      {Bug::pipeline_source_overrun, "copy_pipeline", "out of bounds: read of 16 bytes", pipeline},
      {Bug::pipeline_misaligned, "copy_pipeline", "not aligned to 16", pipeline},
      {Bug::mma_no_barrier, "mma_gemm", "tile_", mma},
      {Bug::mma_diverged, "mma_gemm", "mma", mma},
      {Bug::mma_row_overrun, "mma_gemm", "out of bounds: read of 16 bytes at shared", mma},
      {Bug::mma_row_misaligned, "mma_gemm", "is not a multiple of 16", mma},
      {Bug::mma_tail_not_zeroed, "mma_gemm", "uninitialised",
       [](SimDevice& d, Bug b) { return mma_of(d, b, 8); }},
      {Bug::wgmma_init_unseen, "wgmma_gemm", "mbarrier", wgmma},
      {Bug::wgmma_full_not_awaited, "wgmma_gemm", "", wgmma},
      {Bug::wgmma_wrong_phase, "wgmma_gemm", "", wgmma},
      {Bug::wgmma_early_release, "wgmma_gemm", "asynchronous proxy: race: write", wgmma},
      {Bug::wgmma_double_arrive, "wgmma_gemm", "1 arrivals where the phase expects 0 more", wgmma},
      {Bug::wgmma_released_twice, "wgmma_gemm", "", wgmma, 1},
      {Bug::wgmma_bytes_too_few, "wgmma_gemm", "128 bytes landed that nobody had announced", wgmma},
      {Bug::wgmma_bytes_too_many, "wgmma_gemm", "deadlock", wgmma},
      {Bug::wgmma_no_proxy_fence, "wgmma_gemm", "no fence.proxy.async", wgmma},
      {Bug::wgmma_no_wait, "wgmma_gemm", "", wgmma},
      {Bug::wgmma_store_no_proxy_fence, "wgmma_gemm", "no fence.proxy.async", wgmma},
      {Bug::wgmma_store_not_awaited, "wgmma_gemm", "still reads shared memory", wgmma, 4},
      {Bug::wgmma_no_fence, "wgmma_gemm", "wgmma.fence", wgmma},
      {Bug::ring_no_sync_before, "ring_sum", "", ring},
      {Bug::ring_no_sync_after, "ring_sum", "", ring},
  };
  return kCases;
}

Config watched(std::uint64_t k) {
  Config config = simt::with_schedule({}, k);
  config.sanitize = true;
  return config;
}

}  // namespace

TEST_CASE("every seeded bug is diagnosed, by kernel, block, thread and cause") {
  for (const Case& c : cases()) {
    std::uint64_t diagnosed = 0;
    std::string first;
    for (std::uint64_t k = 0; k < kSchedules; ++k) {
      SimDevice d(watched(k));
      CAPTURE(k);
      CAPTURE(static_cast<int>(c.bug));
      std::string text;
      try {
        c.run(d, c.bug);
      } catch (const simt::KernelFault& fault) {
        text = fault.what();
      }
      if (text.empty()) continue;
      ++diagnosed;
      if (first.empty()) first = text;
      CHECK_MESSAGE(text.find(c.cause) != std::string::npos, text);
      CHECK_MESSAGE(text.find(concat("[", c.kernel, "] ")) == 0, text);
      CHECK_MESSAGE(text.find("block (") != std::string::npos, text);
      CHECK_MESSAGE((text.find("thread") != std::string::npos ||
                     text.find("asynchronous operation") != std::string::npos),
                    text);
#if defined(ROUNDOFF_LIBDW)
      // What is wrong with an exit, or with bytes that landed, stands in no line.
      if (text.find("exit") == std::string::npos && text.find("landed") == std::string::npos)
        CHECK_MESSAGE(text.find(".cu:") != std::string::npos, text);
#endif
      CHECK_MESSAGE(text.find(concat("seed ", k + 1)) != std::string::npos, text);
    }
    MESSAGE(diagnosed << " of " << kSchedules << ": " << first);
    CAPTURE(static_cast<int>(c.bug));
    CHECK(diagnosed >= c.at_least);
  }
}

TEST_CASE("kernels that are right are silent, and their results are right, under every schedule") {
  for (std::uint64_t k = 0; k < kSchedules; ++k) {
    CAPTURE(k);
    SimDevice d(watched(k));
    CHECK(softmax(d, Bug::none, 77));
    CHECK(softmax(d, Bug::none, 300));
    CHECK(tree(d, Bug::none));
    CHECK(gemm(d, Bug::none));
    CHECK(transposed(d, Bug::none));
    CHECK(histogram(d, Bug::none));
    CHECK(scaled(d, Bug::none));
    CHECK(pipeline(d, Bug::none));
    CHECK(mma(d, Bug::none));
    CHECK(wgmma(d, Bug::none));
    CHECK(ring(d, Bug::none));
  }
}
