// How kernels that only move elements do it: as words, or rounded to another type.
#pragma once

#include "kernels/simt/any_array.cuh"
#include "kernels/simt/convert.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  // Words that are moved.
  template <class Word>
  struct MoveWords {
    using Value = Word;
    static constexpr int kCount = static_cast<int>(16 / sizeof(Word));
    const Word* x;
    Word* y;
    ROUNDOFF_DEVICE Word load(std::int64_t i) const { return x[i]; }
    ROUNDOFF_DEVICE void store(std::int64_t i, Word value) const { y[i] = value; }
    ROUNDOFF_DEVICE void copy_pack(std::int64_t from, std::int64_t to) const {
      store_vector(y + to, load_vector<uint4>(x + from));
    }
    int head() const { return pack_head<kCount>(x, y); }
  };

  // Values that are rounded.
  template <class A>
  struct MoveRounded {
    using Value = A;
    static constexpr int kCount = kAnyPack<A>;
    AnyArray x;
    AnyOut y;
    ROUNDOFF_DEVICE A load(std::int64_t i) const { return load_any<A>(x, i); }
    ROUNDOFF_DEVICE void store(std::int64_t i, A value) const { store_any(y, i, value); }
    ROUNDOFF_DEVICE void copy_pack(std::int64_t from, std::int64_t to) const {
      A v[kCount];
      load_any_pack(x, from, v);
      store_any_pack(y, to, v);
    }
    int head() const { return any_pack_head<kCount>(x, y); }
  };

}  // namespace

// Calls f with how x's elements go to y: any type that agrees and is overwritten, floating ones
// otherwise.
template <class F>
void with_move(const ConstView& x, const Out& y, F&& f) {
  if (x.dtype == y.view.dtype && y.write == Write::overwrite) {
    switch (size_of(x.dtype)) {
      case 8:
        return f(MoveWords<std::uint64_t>{x.as<std::uint64_t>(), y.view.as<std::uint64_t>()});
      case 4:
        return f(MoveWords<std::uint32_t>{x.as<std::uint32_t>(), y.view.as<std::uint32_t>()});
      case 2:
        return f(MoveWords<std::uint16_t>{x.as<std::uint16_t>(), y.view.as<std::uint16_t>()});
      default:
        return f(MoveWords<std::uint8_t>{x.as<std::uint8_t>(), y.view.as<std::uint8_t>()});
    }
  }
  if (x.dtype == DType::fp64 || y.view.dtype == DType::fp64) return f(MoveRounded<double>{x, y});
  return f(MoveRounded<float>{x, y});
}

}  // namespace roundoff
