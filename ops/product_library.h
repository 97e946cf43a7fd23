// Somebody else's matrix products and convolutions on a device: a vendor's library, which a
// benchmark sets in a context (Context::products) in place of our kernels.
#pragma once

#include <string>

#include "engine/context.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/gemm/gemm.h"

namespace roundoff {

// Each function queues its work on the stream and returns an empty text; or it queues nothing and
// says why it does not take the call. Parameters and arrays are those of our kernels.
class ProductLibrary {
 public:
  virtual ~ProductLibrary() = default;
  virtual std::string gemm(StreamRef stream, const GemmParams& params, const ConstView& a,
                           const ConstView& b, const ConstView& c, const Out& y) = 0;
  virtual std::string conv2d_forward(StreamRef stream, const Conv2dParams& params,
                                     const ConstView& x, const ConstView& w, const ConstView& bias,
                                     const Out& y) = 0;
  virtual std::string conv2d_grad_input(StreamRef stream, const Conv2dParams& params,
                                        const ConstView& dy, const ConstView& w, const Out& dx) = 0;
  virtual std::string conv2d_grad_weight(StreamRef stream, const Conv2dParams& params,
                                         const ConstView& x, const ConstView& dy,
                                         const Out& dw) = 0;
};

// Whether the context's library, where it has one, took the call: call(library, stream) gives what
// its functions give. A library chooses its order of summation by the sizes: it is not asked where
// the context is reproducible.
template <class Call>
bool by_library(Context& context, Call&& call) {
  return context.products != nullptr && !context.reproducible &&
         call(*context.products, context.stream()).empty();
}

// gemm(target, ...) with the context's workspace, or by the context's library where it takes it.
template <class T>
void product(Context& context, T target, const GemmParams& params, const ConstView& a,
             const ConstView& b, const ConstView& c, const Out& y) {
  if (params.order == SumOrder::fastest &&
      by_library(context, [&](ProductLibrary& library, StreamRef stream) {
        return library.gemm(stream, params, a, b, c, y);
      }))
    return;
  gemm(target, params, a, b, c, y, context.scratch);
}

}  // namespace roundoff
