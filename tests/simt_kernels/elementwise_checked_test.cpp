// Conversions, element-wise kernels, reductions, embedding and dropout under the sanitizer: silent
// under many schedules, and the same bits under each. What they move: bandwidth_test.cpp.
#include <doctest/doctest.h>

#include <vector>

#include "kernels/base/convert.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/elementwise/permute.h"
#include "kernels/embedding/embedding.h"
#include "kernels/reduce/reduce.h"
#include "tests/kernels/bounds.h"
#include "tests/simt_kernels/sim_device.h"

using namespace roundoff;
using namespace roundoff::test;

namespace {

constexpr std::uint64_t kManySchedules = 16;

Array filled(DType dtype, const Shape& shape, std::uint64_t seed, std::int64_t offset = 0) {
  return Array(dtype, shape, Uniform(seed).take(shape.numel(), 4), offset);
}

// f(device, keep) keeps arrays, which have to be the same under every schedule.
template <class F>
void under_schedules(F f) {
  std::vector<Array> first;
  for (std::uint64_t k = 0; k < kManySchedules; ++k) {
    CAPTURE(k);
    SimDevice device(k);
    std::vector<Array> results;
    f(device, [&](Array array) {
      CHECK(array.guards_intact());
      results.push_back(std::move(array));
    });
    CHECK(!results.empty());
    if (k == 0) first = results;
    REQUIRE(results.size() == first.size());
    for (std::size_t i = 0; i < results.size(); ++i) CHECK(same_bits(results[i], first[i]));
  }
}

}  // namespace

TEST_CASE("sanitizer: conversions and element-wise kernels") {
  under_schedules([](SimDevice& device, auto keep) {
    const auto target = device.target();
    for (const std::int64_t offset : {0, 1}) {
      const Array x = filled(DType::fp32, {300}, 1, offset);
      const Array h = filled(DType::fp16, {300}, 2, offset);
      const Resident rx(device, x), rh(device, h);
      keep(on_device(device, Array(DType::bf16, {300}, offset),
                     [&](const Out& y) { convert(target, rx, y); }));
      keep(on_device(
          device, x, [&](const Out& y) { convert(target, rh, y); }, Write::accumulate));
      keep(on_device(device, Array(DType::fp16, {300}),
                     [&](const Out& y) { unary_forward(target, {.op = Unary::gelu}, rh, y); }));
      keep(on_device(device, Array(DType::fp32, {300}), [&](const Out& y) {
        unary_backward(target, {.op = Unary::tanh}, rh, rx, y);
      }));
      keep(on_device(device, Array(DType::fp32, {300}),
                     [&](const Out& y) { binary_forward(target, {}, rx, rh, y); }));
    }
    const Array a = filled(DType::fp32, {9, 40}, 3), b = filled(DType::fp16, {40}, 4);
    const Array c = filled(DType::bf16, {9, 1}, 5);
    const Resident ra(device, a), rb(device, b), rc(device, c);
    keep(on_device(device, Array(DType::fp32, {9, 40}),
                   [&](const Out& y) { binary_forward(target, {.op = Binary::mul}, ra, rb, y); }));
    keep(on_device(device, Array(DType::fp32, {9, 40}),
                   [&](const Out& y) { binary_forward(target, {.op = Binary::div}, ra, rc, y); }));
    for (const Binary op : {Binary::sub, Binary::div}) {
      keep(on_device(device, Array(DType::fp32, {40}), [&](const Out& db) {
        binary_backward(target, {.op = op}, ra, rb, ra, Out(), db, device.scratch());
      }));
      keep(on_device(device, Array(DType::fp32, {9, 1}), [&](const Out& dc) {
        binary_backward(target, {.op = op}, ra, rc, ra, Out(), dc, device.scratch());
      }));
    }
    for (const DType dtype : {DType::fp64, DType::fp32, DType::fp16, DType::u8}) {
      std::vector<double> values(2 * 37 * 45, 3.0);
      const Array m(dtype, {2, 37, 45}, values);
      const Resident rm(device, m);
      keep(on_device(device, Array(dtype, {2, 45, 37}), [&](const Out& y) {
        permute(target, {.axes = {0, 2, 1}}, rm, y);
      }));
      keep(on_device(device, Array(dtype, {37, 2, 45}), [&](const Out& y) {
        permute(target, {.axes = {1, 0, 2}}, rm, y);
      }));
    }
  });
}

TEST_CASE("sanitizer: reductions, embedding and dropout") {
  under_schedules([](SimDevice& device, auto keep) {
    const auto target = device.target();
    struct Case {
      Shape shape;
      std::uint32_t axes;
    };
    for (const Case& c : {Case{{7, 30}, 2}, Case{{3, 500}, 2}, Case{{9000}, 1}, Case{{600, 5}, 1},
                          Case{{300, 40}, 1}, Case{{4, 9, 5, 6}, 5}, Case{{4, 9, 5, 6}, 10}}) {
      for (const DType dtype : {DType::fp32, DType::bf16, DType::fp64}) {
        const Shape shape = reduced_shape(c.shape, c.axes, false);
        const Array x = filled(dtype, c.shape, 6), dy = filled(dtype, shape, 7);
        const Resident rx(device, x), rdy(device, dy);
        const ReduceParams params{.axes = c.axes};
        for (const Reduce op : {Reduce::sum, Reduce::mean, Reduce::norm})
          keep(on_device(device, Array(dtype, shape), [&](const Out& y) {
            reduce_forward(target, op, params, rx, y, device.scratch());
          }));
        keep(on_device(device, Array(dtype, c.shape), [&](const Out& dx) {
          reduce_backward(target, Reduce::norm, params, rx, rdy, dx, device.scratch());
        }));
        Array index(DType::i64, shape);
        Resident where(device, index);
        keep(on_device(device, Array(dtype, shape), [&](const Out& y) {
          max_forward(target, params, rx, y, where.out(), device.scratch());
        }));
        keep(on_device(device, Array(dtype, c.shape),
                       [&](const Out& dx) { max_backward(target, params, where, rdy, dx); }));
      }
    }
    std::vector<double> rows = Uniform(8).take(100);
    for (double& row : rows) row = std::floor(row * row * 12);
    const Array index(DType::i32, {100}, rows), dy = filled(DType::fp16, {100, 12}, 9);
    const Array table = filled(DType::fp16, {12, 12}, 10);
    const Resident ri(device, index), rdy(device, dy), rt(device, table);
    keep(on_device(device, Array(DType::fp16, {100, 12}),
                   [&](const Out& y) { embedding_forward(target, rt, ri, y); }));
    keep(on_device(device, Array(DType::fp32, {12, 12}), [&](const Out& dt) {
      embedding_backward(target, {.padding_index = 3}, ri, rdy, dt, device.scratch());
    }));
    keep(on_device(device, Array(DType::fp16, {100, 12}), [&](const Out& y) {
      dropout_forward(target, {.p = 0.3, .stream = {1, 2, 3}}, rdy, y);
    }));
    CHECK(device.take_errors().code == 0);
  });
}
