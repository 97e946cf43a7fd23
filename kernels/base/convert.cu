// Conversions between storage types (kernels/base/convert.h), y = x or y += x.
//
// One read and one write an element, in packs of 16 bytes of the wider type. Rounded once: 16-bit
// types and fp32 through float, the others through double; int64 through the double that is nearest
// with its last bit saying whether anything was lost (round to odd), so that the second rounding is
// the only one.
#include "kernels/base/convert.h"
#include "kernels/simt/convert.cuh"
#include "kernels/simt/grid.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  constexpr unsigned kThreads = 256;

  ROUNDOFF_DEVICE double to_double_odd(std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    std::uint64_t magnitude = value < 0 ? ~bits + 1 : bits;
    const int drop = 11 - std::countl_zero(magnitude);
    if (drop > 0) {
      const std::uint64_t kept = magnitude >> drop;
      magnitude = (kept | (magnitude != kept << drop ? 1U : 0U)) << drop;
    }
    return value < 0 ? -static_cast<double>(magnitude) : static_cast<double>(magnitude);
  }

  template <class To, class From>
  ROUNDOFF_DEVICE auto widened(From x) {
    constexpr bool kFloat =
        std::is_same_v<From, float> || std::is_same_v<From, Half> || std::is_same_v<From, BFloat16>;
    if constexpr (kFloat) {
      return widen_value<float>(x);
    } else if constexpr (std::is_same_v<From, std::int64_t> && !std::is_same_v<To, double>) {
      return to_double_odd(x);
    } else {
      return widen_value<double>(x);
    }
  }

  template <class From, class To, bool kAdd>
  __global__ void __launch_bounds__(kThreads)
      convert_kernel(const From* __restrict__ x, To* __restrict__ y, std::int64_t n, int head) {
    constexpr int kCount = pack_size<From, To>();
    for_each_pack<kCount>(
        n, head, static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
        static_cast<std::int64_t>(gridDim.x) * kThreads,
        [&](std::int64_t i) {
          const auto from = load_lanes<From, kCount>(x + i);
          PackLanes<To, kCount> to;
          if constexpr (kAdd) to = load_lanes<To, kCount>(y + i);
          ROUNDOFF_UNROLL
          for (int k = 0; k < kCount; ++k) {
            if constexpr (kAdd)
              to.lane[k] = add_value(to.lane[k], widened<To>(from.lane[k]));
            else
              to.lane[k] = narrow_value<To>(widened<To>(from.lane[k]));
          }
          store_lanes(y + i, to);
        },
        [&](std::int64_t i) {
          if constexpr (kAdd)
            y[i] = add_value(y[i], widened<To>(x[i]));
          else
            y[i] = narrow_value<To>(widened<To>(x[i]));
        });
  }

  template <class Word>
  __global__ void __launch_bounds__(kThreads)
      copy_kernel(const Word* __restrict__ x, Word* __restrict__ y, std::int64_t n, int head) {
    constexpr int kCount = pack_size<Word>();
    for_each_pack<kCount>(
        n, head, static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
        static_cast<std::int64_t>(gridDim.x) * kThreads,
        [&](std::int64_t i) { store_vector(y + i, load_vector<uint4>(x + i)); },
        [&](std::int64_t i) { y[i] = x[i]; });
  }

  template <class Word>
  __global__ void __launch_bounds__(kThreads)
      fill_kernel(Word value, Word* __restrict__ y, std::int64_t n, int head) {
    constexpr int kCount = pack_size<Word>();
    for_each_pack<kCount>(
        n, head, static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x,
        static_cast<std::int64_t>(gridDim.x) * kThreads,
        [&](std::int64_t i) {
          PackLanes<Word, kCount> lanes;
          ROUNDOFF_UNROLL
          for (int k = 0; k < kCount; ++k) lanes.lane[k] = value;
          store_lanes(y + i, lanes);
        },
        [&](std::int64_t i) { y[i] = value; });
  }

  template <class From, class To, bool kAdd>
  void launch_convert(Target target, const void* from, void* to, std::int64_t n) {
    constexpr int kCount = pack_size<From, To>();
    const auto* x = static_cast<const From*>(from);
    auto* y = static_cast<To*>(to);
    const int head = pack_head<kCount>(x, y);
    launch(target,
           {.name = kAdd ? "convert_add" : "convert",
            .grid = grid_for(head < 0 ? n : n / kCount, kThreads),
            .block = {kThreads}},
           convert_kernel<From, To, kAdd>, x, y, n, head);
  }

  template <class Word>
  void launch_copy(Target target, const void* from, void* to, std::int64_t n) {
    constexpr int kCount = pack_size<Word>();
    const auto* x = static_cast<const Word*>(from);
    auto* y = static_cast<Word*>(to);
    const int head = pack_head<kCount>(x, y);
    launch(target,
           {.name = "copy",
            .grid = grid_for(head < 0 ? n : n / kCount, kThreads),
            .block = {kThreads}},
           copy_kernel<Word>, x, y, n, head);
  }

  template <class Word>
  void launch_fill(Target target, Word value, void* to, std::int64_t n) {
    constexpr int kCount = pack_size<Word>();
    auto* y = static_cast<Word*>(to);
    launch(target, {.name = "fill", .grid = grid_for(n / kCount, kThreads), .block = {kThreads}},
           fill_kernel<Word>, value, y, n, pack_head<kCount>(y));
  }

  // Calls f with a From{}.
  template <class F>
  void visit_storage(DType dtype, F&& f) {
    switch (dtype) {
      case DType::fp64:
        return f(double{});
      case DType::fp32:
        return f(float{});
      case DType::fp16:
        return f(Half{});
      case DType::bf16:
        return f(BFloat16{});
      case DType::i64:
        return f(std::int64_t{});
      case DType::i32:
        return f(std::int32_t{});
      case DType::u8:
        return f(std::uint8_t{});
    }
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void convert(T target, const ConstView& from, const Out& to) {
  if (!to.wanted) return;
  detail::check_convert(from, to);
  const std::int64_t n = from.numel();
  if (n == 0) return;
  const View& y = to.view;
  if (from.dtype == y.dtype && to.write == Write::overwrite) {
    switch (size_of(from.dtype)) {
      case 8:
        return launch_copy<std::uint64_t>(target, from.data, y.data, n);
      case 4:
        return launch_copy<std::uint32_t>(target, from.data, y.data, n);
      case 2:
        return launch_copy<std::uint16_t>(target, from.data, y.data, n);
      default:
        return launch_copy<std::uint8_t>(target, from.data, y.data, n);
    }
  }
  visit_storage(from.dtype, [&]<class From>(From) {
    visit_floating(y.dtype, "convert", [&]<class To>() {
      if constexpr (std::is_same_v<To, float> || std::is_same_v<To, double>) {
        if (to.write == Write::accumulate)
          return launch_convert<From, To, true>(target, from.data, y.data, n);
      }
      if constexpr (!std::is_same_v<From, To>)
        return launch_convert<From, To, false>(target, from.data, y.data, n);
    });
  });
}

template <DeviceTarget T>
void fill(T target, double value, const View& to) {
  const std::int64_t n = to.numel();
  if (n == 0) return;
  switch (to.dtype) {
    case DType::fp64:
      return launch_fill(target, value, to.data, n);
    case DType::fp32:
      return launch_fill(target, static_cast<float>(value), to.data, n);
    case DType::fp16:
      return launch_fill(target, Half(value).bits, to.data, n);
    case DType::bf16:
      return launch_fill(target, BFloat16(value).bits, to.data, n);
    case DType::i64:
      return launch_fill(target, static_cast<std::int64_t>(value), to.data, n);
    case DType::i32:
      return launch_fill(target, static_cast<std::int32_t>(value), to.data, n);
    case DType::u8:
      return launch_fill(target, static_cast<std::uint8_t>(value), to.data, n);
  }
}

template void convert(Target, const ConstView&, const Out&);
template void fill(Target, double, const View&);

}  // namespace roundoff
