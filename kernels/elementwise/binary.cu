// y = a op b with broadcasting (kernels/elementwise/elementwise.h). Bytes: a, b and y once each.
#include "kernels/elementwise/broadcast.cuh"
#include "kernels/elementwise/chunks.h"
#include "kernels/elementwise/elementwise.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  struct Add {
    template <class A>
    ROUNDOFF_DEVICE A operator()(A a, A b) const {
      return a + b;
    }
  };
  struct Subtract {
    template <class A>
    ROUNDOFF_DEVICE A operator()(A a, A b) const {
      return a - b;
    }
  };
  struct Multiply {
    template <class A>
    ROUNDOFF_DEVICE A operator()(A a, A b) const {
      return a * b;
    }
  };
  struct Divide {
    template <class A>
    ROUNDOFF_DEVICE A operator()(A a, A b) const {
      return a / b;
    }
  };

  }  // namespace
}  // namespace

template <DeviceTarget T>
void binary_forward(T target, const BinaryParams& params, const ConstView& a, const ConstView& b,
                    const Out& y) {
  if (!y.wanted) return;
  detail::check_binary_forward(params, a, b, y);
  const bool fp64 = detail::wants_fp64(params.accumulator, a, b);
  switch (params.op) {
    case Binary::add:
      return map_broadcast<Add>(target, "add", fp64, a, b, y);
    case Binary::sub:
      return map_broadcast<Subtract>(target, "sub", fp64, a, b, y);
    case Binary::mul:
      return map_broadcast<Multiply>(target, "mul", fp64, a, b, y);
    case Binary::div:
      return map_broadcast<Divide>(target, "div", fp64, a, b, y);
  }
}

template void binary_forward(Target, const BinaryParams&, const ConstView&, const ConstView&,
                             const Out&);

}  // namespace roundoff
