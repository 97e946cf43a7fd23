// Softmax, losses and norms move no more than they must, by the profiler's count (bandwidth.h):
// rows that stay in registers are read once and written once, whether a block or a cluster holds
// them.
#include "tests/simt_kernels/bandwidth.h"

#include <algorithm>

#include "kernels/loss/cross_entropy.h"
#include "kernels/norm/batch_norm.h"
#include "kernels/norm/layer_norm.h"
#include "kernels/softmax/softmax.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

// Rows of a cluster: the network carries each warp's partial result to every block, which the
// profiler takes for a request with as many passes; pairs of sums are read back by 4 bytes.
void check_rows(const Traffic& t, double reads, double writes, bool cluster = false) {
  CHECK(t.launches == 1);
  CHECK(t.wasted() == 0);
  CHECK(t.read() >= reads);
  CHECK(t.written() >= writes);
  CHECK(t.read() <= kMostTraffic * reads);
  CHECK(t.written() <= kMostTraffic * writes);
  if (!cluster) CHECK(t.excess() == 0);
}

}  // namespace

TEST_CASE("softmax and log-softmax read a row once and write it once; gradients read two rows") {
  Profiled p;
  SimScratch scratch(p.device);
  for (const DType dtype : kTypes) {
    for (const std::int64_t n : {64, 128, 1024, 3072, 6144, 8192, 16384, 20480, 65536}) {
      if (n > 20480 && dtype != DType::bf16) continue;
      CAPTURE(name(dtype));
      CAPTURE(n);
      const Shape shape{std::max<std::int64_t>(16384 / n, 2), n};
      const View x = p.zeros(dtype, shape);
      const View y = p.zeros(dtype, shape);
      const View z = p.zeros(dtype, shape);
      const double one = bytes_of(x);
      check_rows(p.traffic([&] { softmax_forward(p.target(), {}, x, y, scratch); }, "softmax_rows"),
                 one, one, n > 16384);
      check_rows(p.traffic([&] { log_softmax_forward(p.target(), {}, x, y); }, "softmax_rows"), one,
                 one, n > 16384);
      check_rows(
          p.traffic([&] { softmax_backward(p.target(), {}, x, y, z); }, "softmax_rows_backward"),
          2 * one, one, n > 8192);
      check_rows(p.traffic([&] { log_softmax_backward(p.target(), {}, x, y, z); },
                           "softmax_rows_backward"),
                 2 * one, one, n > 8192);
    }
  }
}

TEST_CASE("without clusters a long row is read twice and written once") {
  Profiled p;
  p.device.emulator().config.architecture = simt::SimArchitecture::sm_80;
  SimScratch scratch(p.device);
  const View x = p.zeros(DType::bf16, {1, 32768});
  const View y = p.zeros(DType::bf16, {1, 32768});
  check_rows(p.traffic([&] { softmax_forward(p.target(), {}, x, y, scratch); }, "softmax_long"),
             2 * bytes_of(x), bytes_of(x));
}

TEST_CASE("cross-entropy: one read forward; loss and gradient in place, one read and one write") {
  Profiled p;
  SimScratch scratch(p.device);
  struct Case {
    std::int64_t rows, classes;
  };
  for (const DType dtype : kTypes) {
    // A row's label, statistics and loss are some sectors for each of its warps: a share that short
    // rows show.
    for (const Case& c : {Case{4, 6144}, {2, 16384}, {2, 32768}, {1, 128'256}}) {
      CAPTURE(name(dtype));
      CAPTURE(c.classes);
      const View logits = p.zeros(dtype, {c.rows, c.classes});
      const View labels = p.zeros(DType::i64, {c.rows});
      const View loss = p.zeros(DType::fp32, {});
      const View valid = p.zeros(DType::fp32, {});
      const View stats = p.zeros(DType::fp32, {c.rows, 2});
      const View dloss = p.zeros(DType::fp32, {});
      const ConstView none = ConstView::absent();
      const double one = bytes_of(logits);
      const bool cluster = c.classes > 16384;
      const double rest = c.classes < 16384 ? 512.0 * static_cast<double>(c.rows) : 0;
      const Traffic forward = p.traffic([&] {
        cross_entropy_forward(p.target(), {}, logits, labels, none, loss, valid, stats, scratch);
      });
      CHECK(forward.launches == 2);
      CHECK(forward.loads.sectors == forward.loads.least_sectors);
      CHECK(forward.moved() >= one);
      CHECK(forward.moved() <= kMostTraffic * one + rest);
      if (cluster)
        check_rows(p.traffic([&] {
          cross_entropy_backward(p.target(), {}, logits, labels, none, valid, stats, dloss, logits);
        }),
                   one, one);
      const Traffic both = p.traffic([&] {
        cross_entropy_with_gradient(p.target(), {}, logits, labels, none, dloss, loss, valid,
                                    logits, scratch);
      });
      CHECK(both.launches == 3);  // the labels' weights, the rows, the loss of the batch
      CHECK(both.moved() >= 2 * one);
      CHECK(both.moved() <= kMostTraffic * 2 * one + rest);
      if (!cluster) CHECK(both.excess() == 0);
    }
  }
}

TEST_CASE("LayerNorm: one read and one write; backward x and dy once, for all three gradients") {
  Profiled p;
  SimScratch scratch(p.device);
  struct Case {
    std::int64_t rows, n, warps;  // of a row, backward
  };
  for (const DType dtype : kTypes) {
    for (const Case& c : {Case{256, 1024, 1}, {32, 3072, 4}, {32, 8192, 8}, {16, 20480, 32}}) {
      CAPTURE(name(dtype));
      CAPTURE(c.n);
      const View x = p.zeros(dtype, {c.rows, c.n});
      const View y = p.zeros(dtype, {c.rows, c.n});
      const View z = p.zeros(dtype, {c.rows, c.n});
      const View mean = p.zeros(DType::fp32, {c.rows});
      const View rstd = p.zeros(DType::fp32, {c.rows});
      const View dgamma = p.zeros(DType::fp32, {c.n});
      const View dbeta = p.zeros(DType::fp32, {c.n});
      const ConstView none = ConstView::absent();
      const double one = bytes_of(x);
      check_rows(
          p.traffic([&] { layer_norm_forward(p.target(), {}, x, none, none, y, {}, {}, scratch); }),
          one, one, c.n > 16384);
      // Every warp reads its row's mean and rstd, a sector each; every block leaves its part of
      // dgamma and dbeta, and another launch reads the parts.
      const double statistics = 2 * kSector * static_cast<double>(c.rows * c.warps);
      const std::int64_t blocks = c.rows / 16;
      const double parts = static_cast<double>(blocks * 2 * c.n * 4);
      const Traffic t = p.traffic(
          [&] {
            layer_norm_backward(p.target(), {}, x, none, mean, rstd, y, z, dgamma, dbeta, scratch);
          },
          "layer_norm_gradients");
      check_rows(t, 2 * one + statistics, one + parts, c.n > 8192);
      const Traffic all = p.traffic([&] {
        layer_norm_backward(p.target(), {}, x, none, mean, rstd, y, z, dgamma, dbeta, scratch);
      });
      CHECK(all.launches == 2);
      CHECK(all.moved() <=
            kMostTraffic * (3 * one + statistics + 2 * parts + 2 * bytes_of(dgamma)));
      if (c.n <= 8192) CHECK(all.excess() == 0);
    }
  }
}

TEST_CASE("BatchNorm: three reads and one write in training, either layout; backward two and one") {
  Profiled p;
  SimScratch scratch(p.device);
  struct Case {
    Shape shape;
    int axis;
  };
  for (const DType dtype : kTypes) {
    for (const Case& c : {Case{{4096, 32}, 1}, Case{{8, 4, 4096}, 1}, Case{{2, 3, 16, 512}, 1}}) {
      CAPTURE(name(dtype));
      CAPTURE(c.shape);
      const std::int64_t channels = c.shape[c.axis];
      const View x = p.zeros(dtype, c.shape);
      const View y = p.zeros(dtype, c.shape);
      const View z = p.zeros(dtype, c.shape);
      const View mean = p.zeros(DType::fp32, {channels});
      const View rstd = p.zeros(DType::fp32, {channels});
      const View dgamma = p.zeros(DType::fp32, {channels});
      const ConstView none = ConstView::absent();
      const BatchNormParams params{.axis = c.axis};
      const double one = bytes_of(x);
      const auto forward = [&] {
        batch_norm_forward_training(p.target(), params, x, none, none, none, none, y, mean, rstd,
                                    {}, {}, scratch);
      };
      const auto backward = [&] {
        batch_norm_backward_training(p.target(), params, x, none, mean, rstd, y, z, dgamma, {},
                                     scratch);
      };
      // The parts that blocks leave for each channel are some sectors more.
      const Traffic f = p.traffic(forward);
      CHECK(f.launches == 5);
      CHECK(f.excess() == 0);
      const Traffic sums = p.traffic(forward, "batch_norm_mean");
      CHECK(sums.read() == one);
      const Traffic b = p.traffic(backward);
      CHECK(b.launches == 3);
      CHECK(b.excess() == 0);
      // Channels last: what belongs to the columns of a thread is loaded once for its 16 rows.
      if (c.shape.rank() == 2) continue;
      CHECK(f.moved() >= 4 * one);
      CHECK(f.moved() <= kMostTraffic * 4 * one);
      CHECK(b.moved() >= 5 * one);
      CHECK(b.moved() <= kMostTraffic * 5 * one);
      CHECK(f.wasted() + b.wasted() <= 64);
    }
  }
}
