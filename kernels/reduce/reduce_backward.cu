// Gradients of reductions (kernels/reduce/reduce.h): what belongs to an output is repeated along
// the reduced axes, in packs where dx allows it. Bytes: dx once, x once for norms.
#include "kernels/elementwise/broadcast.cuh"
#include "kernels/elementwise/chunks.h"
#include "kernels/reduce/reduce.h"
#include "kernels/reduce/sum_tree.h"
#include "kernels/simt/report.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  // A gradient's body: value(i, o) of element i, which belongs to output o.

  template <class A>
  struct Repeated {
    AnyArray dy;
    A divisor;
    ROUNDOFF_DEVICE A value(std::int64_t, std::int64_t o) const {
      return load_any<A>(dy, o) / divisor;
    }
  };

  struct OfNorm {
    AnyArray x, dy;
    const double* norm;
    ROUNDOFF_DEVICE double value(std::int64_t i, std::int64_t o) const {
      const double y = norm[o];
      return y == 0.0 ? 0.0 : load_any<double>(dy, o) * (load_any<double>(x, i) / y);
    }
  };

  struct OfMax {
    AnyArray dy;
    const std::int64_t* index;
    ROUNDOFF_DEVICE double value(std::int64_t i, std::int64_t o) const {
      return index[o] == i ? load_any<double>(dy, o) : 0.0;
    }
  };

  template <class A, class Body>
  __global__ void __launch_bounds__(kMapThreads, 4)
      reduce_gradient(Body body, AnyOut dx, const __grid_constant__ BroadcastPlan plan,
                      std::int64_t n, int head) {
    constexpr int kCount = kAnyPack<A>;
    for_each_pack<kCount>(
        n, head, grid_thread(), grid_threads(),
        [&](std::int64_t i) {
          std::int64_t o = 0, unused = 0;
          locate(plan, i, o, unused);
          A v[kCount];
          ROUNDOFF_UNROLL
          for (int k = 0; k < kCount; ++k) v[k] = body.value(i + k, o + k * plan.a[0]);
          store_any_pack(dx, i, v);
        },
        [&](std::int64_t i) {
          std::int64_t o = 0, unused = 0;
          locate(plan, i, o, unused);
          store_any(dx, i, body.value(i, o));
        });
  }

  // The outputs are the first operand of a broadcast to x's shape.
  detail::Broadcast outputs_of(const Shape& x, std::uint32_t axes) {
    return {reduced_shape(x, axes, true), x, x};
  }

  template <class A, class Body>
  void launch_gradient(Target target, const char* name, const Body& body, const Shape& x,
                       std::uint32_t axes, const Out& dx) {
    const std::int64_t n = x.numel();
    if (n == 0) return;
    constexpr int kCount = kAnyPack<A>;
    const detail::Broadcast plan = outputs_of(x, axes);
    int head = any_pack_head<kCount>(AnyOut(dx));
    if (plan.rank != 1 && (plan.inner().extent % kCount != 0 || head != 0)) head = kNoPacks;
    launch(target, map_config(name, n, head, kCount), reduce_gradient<A, Body>, body, AnyOut(dx),
           BroadcastPlan(plan), n, head);
  }

  // Whether each index is one of its output's terms.
  __global__ void __launch_bounds__(kMapThreads)
      check_max_index(const std::int64_t* index, std::int64_t outputs, std::int64_t elements,
                      const __grid_constant__ BroadcastPlan plan, DeviceErrors* errors) {
    for (std::int64_t o = grid_thread(); o < outputs; o += grid_threads()) {
      const std::int64_t i = index[o];
      std::int64_t owner = -1, unused = 0;
      if (i >= 0 && i < elements) locate(plan, i, owner, unused);
      if (owner != o) report(errors, DeviceError::max_index, o, i, 0);
    }
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void reduce_backward(T target, Reduce op, const ReduceParams& params, const ConstView& x,
                     const ConstView& dy, const Out& dx, Scratch& scratch) {
  if (!dx.wanted) return;
  detail::check_reduce_backward(op, params, x, dy, dx);
  if (op == Reduce::norm) {
    if (x.numel() == 0) return;
    const Scratch::Frame frame(scratch);
    const View norm{scratch.get<double>(dy.numel()), DType::fp64, dy.shape};
    reduce_forward(target, op, params, x, norm, scratch);
    launch_gradient<double>(target, "norm_backward", OfNorm{x, dy, norm.as<double>()}, x.shape,
                            params.axes, dx);
    return;
  }
  const std::int64_t terms = detail::ReduceGeometry(x.shape, params.axes).terms;
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, x, dy), [&]<class A>(A) {
    const A divisor = op == Reduce::mean ? static_cast<A>(terms) : A(1);
    launch_gradient<A>(target, op == Reduce::mean ? "mean_backward" : "sum_backward",
                       Repeated<A>{dy, divisor}, x.shape, params.axes, dx);
  });
}

template <DeviceTarget T>
void max_backward(T target, const ReduceParams& params, const ConstView& index, const ConstView& dy,
                  const Out& dx) {
  if (!dx.wanted) return;
  detail::check_max_backward(params, index, dy, dx);
  const Shape& shape = dx.view.shape;
  if (shape.numel() == 0) return;
  const auto* where = index.as<std::int64_t>();
  const std::int64_t outputs = dy.numel();
  if (target.errors != nullptr)
    launch(target, map_config("check_max_index", outputs, kNoPacks, 1), check_max_index, where,
           outputs, shape.numel(), BroadcastPlan(outputs_of(shape, params.axes)), target.errors);
  launch_gradient<double>(target, "max_backward", OfMax{dy, where}, shape, params.axes, dx);
}

template void reduce_backward(Target, Reduce, const ReduceParams&, const ConstView&,
                              const ConstView&, const Out&, Scratch&);
template void max_backward(Target, const ReduceParams&, const ConstView&, const ConstView&,
                           const Out&);

}  // namespace roundoff
