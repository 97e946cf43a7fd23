// Dropout (kernels/dropout/dropout.h): a thread takes the four elements of one block of random
// words (kernels/base/philox.h), so masks are the reference's, and so are the kept values' bits.
// Bytes: x and y once.
#include "kernels/dropout/dropout.h"

#include <cmath>

#include "kernels/base/convert.h"
#include "kernels/elementwise/map.cuh"
#include "kernels/simt/divide.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr int kWords = 4;

  struct Dropping {
    PhiloxStream stream;
    std::uint32_t sample0;
    const DropoutKey* key;       // in place of stream.step and sample0, or null
    std::uint32_t last_dropped;  // elements with at most this word are dropped
    double scale;
    std::int64_t groups;    // of four elements, in all samples together
    Divisor sample_groups;  // in one
    std::int64_t elements;  // of a sample
    bool packs;             // groups are whole and aligned
  };

  template <class A>
  ROUNDOFF_DEVICE A select(const Dropping& d, std::uint32_t word, A x) {
    return word > d.last_dropped ? narrow_value<A>(widen_value<double>(x) * d.scale) : A(0);
  }

  template <class A>
  __global__ void __launch_bounds__(kMapThreads, 4)
      dropout_kernel(AnyArray x, AnyOut y, const __grid_constant__ Dropping d) {
    PhiloxStream stream = d.stream;
    std::uint32_t sample0 = d.sample0;
    if (d.key != nullptr) {
      stream.step = d.key->step;
      sample0 = d.key->sample0;
    }
    for (std::int64_t g = grid_thread(); g < d.groups; g += grid_threads()) {
      const std::int64_t s = divide(g, d.sample_groups);
      const std::int64_t group = g - s * d.sample_groups.extent;
      const PhiloxBlock words =
          stream.block(sample0 + static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(group));
      const std::int64_t first = s * d.elements + group * kWords;
      if (d.packs) {
        A v[kWords];
        load_any_pack(x, first, v);
        ROUNDOFF_UNROLL
        for (int k = 0; k < kWords; ++k) v[k] = select(d, words.word[k], v[k]);
        store_any_pack(y, first, v);
      } else {
        const std::int64_t left = d.elements - group * kWords;
        ROUNDOFF_UNROLL
        for (int k = 0; k < kWords; ++k)
          if (k < left)
            store_any(y, first + k, select(d, words.word[k], load_any<A>(x, first + k)));
      }
    }
  }

  void apply(Target target, const char* name, const DropoutParams& params, const ConstView& x,
             const Out& y) {
    validate(params);
    if (!y.wanted) return;
    detail::check_dropout(name, params, x, y);
    const std::int64_t n = x.numel();
    if (n == 0) return;
    if (params.p == 0.0) return convert(target, x, y);
    const std::int64_t samples = x.shape.rank() == 0 ? 1 : x.shape[0];
    const std::int64_t elements = n / samples;
    const std::int64_t groups = (elements + kWords - 1) / kWords;
    const Dropping dropping{
        .stream = params.stream,
        .sample0 = static_cast<std::uint32_t>(params.sample0),
        .key = params.key,
        .last_dropped = static_cast<std::uint32_t>(
            static_cast<std::uint64_t>(std::ceil(params.p * 0x1p32)) - 1),
        .scale = params.p < 1.0 ? 1.0 / (1.0 - params.p) : 0.0,
        .groups = samples * groups,
        .sample_groups = Divisor(groups),
        .elements = elements,
        .packs = elements % kWords == 0 && any_pack_head<kWords>(AnyArray(x), AnyOut(y)) == 0};
    const LaunchConfig config{
        .name = name, .grid = grid_for(dropping.groups, kMapThreads), .block = {kMapThreads}};
    if (x.dtype == DType::fp64 || y.view.dtype == DType::fp64)
      launch(target, config, dropout_kernel<double>, AnyArray(x), AnyOut(y), dropping);
    else
      launch(target, config, dropout_kernel<float>, AnyArray(x), AnyOut(y), dropping);
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void dropout_forward(T target, const DropoutParams& params, const ConstView& x, const Out& y) {
  apply(target, "dropout", params, x, y);
}

template <DeviceTarget T>
void dropout_backward(T target, const DropoutParams& params, const ConstView& dy, const Out& dx) {
  apply(target, "dropout_backward", params, dy, dx);
}

template void dropout_forward(Target, const DropoutParams&, const ConstView&, const Out&);
template void dropout_backward(Target, const DropoutParams&, const ConstView&, const Out&);

}  // namespace roundoff
