// Gradients of a op b with broadcasting (kernels/elementwise/elementwise.h). A term of a gradient
// is
//   add: dy   sub: dy, -dy   mul: dy b, dy a   div: dy / b, -dy (a / b) / b
// and is summed over the axes that the operand was repeated along (kernels/reduce/stages.cuh). The
// negative of a sum is the sum of the negatives, bit for bit, so add and sub sum dy itself.
#include "kernels/elementwise/broadcast.cuh"
#include "kernels/elementwise/chunks.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce/stages.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  enum class Term : unsigned char { times_a, times_b, over_b, quotient };

  template <class A>
  struct GradientTerms {
    using Value = A;
    static constexpr int kPack = 1;
    Term term;
    AnyArray dy, a, b;
    BroadcastPlan plan;

    ROUNDOFF_DEVICE static A identity() { return A(0); }
    ROUNDOFF_DEVICE A at(std::int64_t i) const {
      std::int64_t ia = 0, ib = 0;
      locate(plan, i, ia, ib);
      const A g = load_any<A>(dy, i);
      if (term == Term::times_a) return g * load_any<A>(a, ia);
      const A y = load_any<A>(b, ib);
      if (term == Term::times_b) return g * y;
      if (term == Term::over_b) return g / y;
      return -g * (load_any<A>(a, ia) / y) / y;
    }
    template <class G>
    ROUNDOFF_DEVICE void visit(G&& g) const {
      g(*this);
    }
  };

  struct Itself {
    ROUNDOFF_DEVICE static int identity() { return 0; }
    template <class A>
    ROUNDOFF_DEVICE A operator()(A v, std::int64_t) const {
      return v;
    }
  };
  // dy itself.
  template <class A>
  using PassedTerms = reduce::ArrayTerms<A, Itself, true, sizeof(A) == 8>;

  template <class A>
  struct StoreGradient {
    AnyOut y;
    bool negative;
    ROUNDOFF_DEVICE void operator()(std::int64_t output, A sum) const {
      store_any(y, output, negative ? -sum : sum);
    }
  };

  template <class A>
  __global__ void __launch_bounds__(kMapThreads, 4)
      gradient_map(const __grid_constant__ GradientTerms<A> terms, AnyOut y, std::int64_t n) {
    for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) store_any(y, i, terms.at(i));
  }

  struct Multiply {
    template <class A>
    ROUNDOFF_DEVICE A operator()(A g, A other) const {
      return g * other;
    }
  };
  struct Divide {
    template <class A>
    ROUNDOFF_DEVICE A operator()(A g, A other) const {
      return g / other;
    }
  };
  struct Pass {
    template <class A>
    ROUNDOFF_DEVICE A operator()(A g) const {
      return g;
    }
  };
  struct Negate {
    template <class A>
    ROUNDOFF_DEVICE A operator()(A g) const {
      return -g;
    }
  };

  // add and sub
  template <class A>
  void pass_gradient(Target target, const char* name, bool negative, const ConstView& dy,
                     const Out& grad, Scratch& scratch) {
    const std::uint32_t axes = detail::repeated_axes(grad.view.shape, dy.shape);
    constexpr bool kFp64 = sizeof(A) == 8;
    if (axes == 0) {
      if (negative) return map<Negate>(target, name, kFp64, dy, grad);
      return map<Pass>(target, name, kFp64, dy, grad);
    }
    const PassedTerms<A> terms{dy, {}};
    reduce::run(target, name, terms, reduce::Sum{}, StoreGradient<A>{grad, negative},
                detail::ReduceGeometry(dy.shape, axes), scratch);
  }

  template <class A>
  void term_gradient(Target target, const char* name, Term term, const ConstView& a,
                     const ConstView& b, const ConstView& dy, const Out& grad, Scratch& scratch) {
    const GradientTerms<A> terms{term, dy, a, b,
                                 BroadcastPlan(detail::Broadcast(a.shape, b.shape, dy.shape))};
    const std::uint32_t axes = detail::repeated_axes(grad.view.shape, dy.shape);
    if (axes == 0) {
      constexpr bool kFp64 = sizeof(A) == 8;
      // grad may lack leading axes of extent 1.
      const Out to(View{grad.view.data, grad.view.dtype, dy.shape}, grad.write);
      if (term == Term::times_a) return map_broadcast<Multiply>(target, name, kFp64, dy, a, to);
      if (term == Term::times_b) return map_broadcast<Multiply>(target, name, kFp64, dy, b, to);
      if (term == Term::over_b) return map_broadcast<Divide>(target, name, kFp64, dy, b, to);
      const std::int64_t n = dy.numel();
      if (n != 0)
        launch(target, map_config(name, n, kNoPacks, 1), gradient_map<A>, terms, AnyOut(grad), n);
      return;
    }
    reduce::run_general(target, name, terms, reduce::Sum{}, StoreGradient<A>{grad, false},
                        detail::ReduceGeometry(dy.shape, axes), scratch);
  }

  template <class A>
  void backward(Target target, Binary op, const ConstView& a, const ConstView& b,
                const ConstView& dy, const Out& da, const Out& db, Scratch& scratch) {
    switch (op) {
      case Binary::add:
      case Binary::sub: {
        const char* name = op == Binary::add ? "add_backward" : "sub_backward";
        if (da.wanted) pass_gradient<A>(target, name, false, dy, da, scratch);
        if (db.wanted) pass_gradient<A>(target, name, op == Binary::sub, dy, db, scratch);
        return;
      }
      case Binary::mul:
        if (da.wanted)
          term_gradient<A>(target, "mul_backward", Term::times_b, a, b, dy, da, scratch);
        if (db.wanted)
          term_gradient<A>(target, "mul_backward", Term::times_a, a, b, dy, db, scratch);
        return;
      case Binary::div:
        if (da.wanted)
          term_gradient<A>(target, "div_backward", Term::over_b, a, b, dy, da, scratch);
        if (db.wanted)
          term_gradient<A>(target, "div_backward", Term::quotient, a, b, dy, db, scratch);
        return;
    }
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void binary_backward(T target, const BinaryParams& params, const ConstView& a, const ConstView& b,
                     const ConstView& dy, const Out& da, const Out& db, Scratch& scratch) {
  detail::check_binary_backward(params, a, b, dy, da, db);
  detail::with_arithmetic(detail::wants_fp64(params.accumulator, a, b, dy), [&]<class A>(A) {
    backward<A>(target, params.op, a, b, dy, da, db, scratch);
  });
}

template void binary_backward(Target, const BinaryParams&, const ConstView&, const ConstView&,
                              const ConstView&, const Out&, const Out&, Scratch&);

}  // namespace roundoff
