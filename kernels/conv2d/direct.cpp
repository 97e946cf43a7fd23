#include "kernels/conv2d/direct.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/base/convert.h"
#include "kernels/base/simd.h"
#include "kernels/conv2d/arguments.h"
#include "kernels/gemm/operand.h"

namespace roundoff {

namespace {

using simd::kLanes;
using simd::Vector;

// Sums that are held at once: rows (pixels, or taps) times up to two vectors of channels. With two
// vectors of the other operand and one broadcast value they fill the registers.
constexpr int kTile = simd::kRegisters == 32 ? 12 : 6;
constexpr int kMaxVectors = 2;
constexpr std::int64_t kWidth = kMaxVectors * kLanes;  // channels of a whole block

// What is held of a sample at once, so that it stays in a second-level cache.
constexpr std::int64_t kBlockFloats = std::int64_t{1} << 15;

// y[p, q, k] = sum over r, s, c of x[p stride + r dilation - padding, ..., c] w[k, r, s, c], for
// the forward pass and, with turned weights and a padding that may be negative, for the input's
// gradient.
struct Correlation {
  std::int64_t n, h, w, c;  // read
  std::int64_t p, q, k;     // written
  std::int64_t r, s;
  std::array<std::int64_t, 2> stride, dilation, padding;
  // Taps are visited from the last place to the first.
  bool backwards = false;

  std::int64_t taps() const { return r * s * c; }
  // Columns of the image that an output row sees, padding included, and elements of such a line.
  std::int64_t columns() const { return (q - 1) * stride[1] + (s - 1) * dilation[1] + 1; }
  std::int64_t line() const { return columns() * c; }
  std::int64_t lines(std::int64_t rows) const {
    return (rows - 1) * stride[0] + (r - 1) * dilation[0] + 1;
  }
  // Elements from a pixel to the next, and from a row to the next, within padded lines.
  std::int64_t step() const { return stride[1] * c; }
  std::int64_t row_step() const { return stride[0] * line(); }
  // Output rows that are worked on at once.
  std::int64_t block_rows() const {
    const std::int64_t inputs = kBlockFloats / std::max<std::int64_t>(stride[0] * line(), 1);
    const std::int64_t outputs = 2 * kBlockFloats / std::max<std::int64_t>(q * k, 1);
    return std::clamp<std::int64_t>(std::min(inputs, outputs), 1, p);
  }
  // Vectors of output channels, the last one padded.
  std::int64_t vectors() const { return (k + kLanes - 1) / kLanes; }

  // Taps that lie next to each other in a line: run i begins at run(i) elements from the pixel and
  // is length() long.
  bool dense() const { return dilation[1] == 1 && !backwards; }
  std::int64_t runs() const { return dense() ? r : r * s; }
  std::int64_t length() const { return dense() ? s * c : c; }
  std::int64_t run(std::int64_t i) const {
    if (backwards) i = r * s - 1 - i;
    return dense() ? i * dilation[0] * line()
                   : i / s * dilation[0] * line() + i % s * dilation[1] * c;
  }
};

Correlation correlation(const Conv2dShape& z, const Conv2dParams& p) {
  return {z.n, z.h, z.w, z.c, z.p, z.q, z.k, z.r, z.s, p.stride, p.dilation, p.padding};
}

// dx as a correlation of dy, for stride 1.
Correlation input_gradient(const Conv2dShape& z, const Conv2dParams& p) {
  return {z.n,
          z.p,
          z.q,
          z.k,
          z.h,
          z.w,
          z.c,
          z.r,
          z.s,
          {1, 1},
          p.dilation,
          {p.dilation[0] * (z.r - 1) - p.padding[0], p.dilation[1] * (z.s - 1) - p.padding[1]},
          p.in_order};
}

// Lines [first, first + count) of sample n's padded image, in fp32.
void pad_lines(const Correlation& f, const ConstView& x, std::int64_t n, std::int64_t first,
               std::int64_t count, bool tf32, float* to) {
  const std::int64_t left = std::clamp<std::int64_t>(f.padding[1], 0, f.columns());
  const std::int64_t from = std::max<std::int64_t>(-f.padding[1], 0);
  const std::int64_t inside = std::clamp<std::int64_t>(f.w - from, 0, f.columns() - left);
  const std::int64_t right = f.columns() - left - inside;
  for (std::int64_t row = first; row < first + count; ++row, to += f.line()) {
    if (row < 0 || row >= f.h) {
      std::fill_n(to, f.line(), 0.0F);
      continue;
    }
    std::fill_n(to, left * f.c, 0.0F);
    float* values = to + left * f.c;
    widen(x, ((n * f.h + row) * f.w + from) * f.c, inside * f.c, values);
    if (tf32 && x.dtype == DType::fp32) round_to_tf32(values, inside * f.c);
    std::fill_n(values + inside * f.c, right * f.c, 0.0F);
  }
}

// Two vectors of channels, or the one that is left. Weights and their gradients are held a block
// after the other, each [taps, channels of the block], channels that do not exist as 0.
struct ChannelBlock {
  std::int64_t first = 0;  // channel
  int vectors = 0;
  std::int64_t width() const { return vectors * kLanes; }
};
template <class F>
void each_channel_block(const Correlation& f, F&& run) {
  for (std::int64_t v = 0; v < f.vectors(); v += kMaxVectors)
    run(ChannelBlock{v * kLanes,
                     static_cast<int>(std::min<std::int64_t>(kMaxVectors, f.vectors() - v))});
}
std::int64_t held_size(const Correlation& f) { return f.vectors() * kLanes * f.taps(); }
float* held_weights(const Correlation& f, Scratch& scratch) {
  const std::int64_t size = held_size(f);
  float* held = scratch.get<float>(size);
  std::fill_n(held, size, 0.0F);
  return held;
}
// Calls use(k, t, where that is held) for every channel and tap, taps in order.
template <class F>
void each_held(const Correlation& f, F&& use) {
  each_channel_block(f, [&](const ChannelBlock& b) {
    for (std::int64_t k = b.first; k < std::min(f.k, b.first + b.width()); ++k)
      for (std::int64_t t = 0; t < f.taps(); ++t)
        use(k, t, b.first * f.taps() + t * b.width() + (k - b.first));
  });
}

// ---- y: pixels side by side

struct Taps {
  const std::int64_t* runs;  // where each begins, in elements from the pixel
  std::int64_t count;
  std::int64_t length;
};

// kPixels pixels, `step` apart in x; y holds kVectors vectors a pixel, `y_step` apart.
template <int kPixels, int kVectors>
void pixel_tile(const float* x, std::int64_t step, const Taps& taps, const float* w,
                const float* bias, bool holds, float* y, std::int64_t y_step) {
  Vector sum[kPixels][kVectors];
  for (int i = 0; i < kPixels; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      sum[i][v] = bias == nullptr ? simd::broadcast(0.0F) : simd::load(bias + v * kLanes);
      if (holds) sum[i][v] = simd::add(simd::load(y + i * y_step + v * kLanes), sum[i][v]);
    }
  }
  // Four pixels share a base, so that few registers hold addresses.
  constexpr int kBases = (kPixels + 3) / 4;
  const std::int64_t offset[4] = {0, step, 2 * step, 3 * step};
  for (std::int64_t run = 0; run < taps.count; ++run) {
    const float* base[kBases];
    for (int i = 0; i < kBases; ++i) base[i] = x + taps.runs[run] + 4 * i * step;
    for (std::int64_t t = 0; t < taps.length; ++t, w += kVectors * kLanes) {
      Vector weight[kVectors];
      for (int v = 0; v < kVectors; ++v) weight[v] = simd::load(w + v * kLanes);
      for (int i = 0; i < kPixels; ++i) {
        const Vector value = simd::broadcast(base[i / 4][offset[i % 4] + t]);
        for (int v = 0; v < kVectors; ++v) sum[i][v] = simd::fma(value, weight[v], sum[i][v]);
      }
    }
  }
  for (int i = 0; i < kPixels; ++i)
    for (int v = 0; v < kVectors; ++v) simd::store(y + i * y_step + v * kLanes, sum[i][v]);
}

using PixelTile = decltype(&pixel_tile<1, 1>);
template <int kVectors, int... kCounts>
constexpr std::array<PixelTile, sizeof...(kCounts)> pixel_tiles(
    std::integer_sequence<int, kCounts...>) {
  return {&pixel_tile<kCounts + 1, kVectors>...};
}
constexpr std::array<std::array<PixelTile, kTile>, kMaxVectors> kPixelTiles{
    pixel_tiles<1>(std::make_integer_sequence<int, kTile>()),
    pixel_tiles<2>(std::make_integer_sequence<int, kTile>())};

// Cuts [0, n) into parts of at most kTile that differ by at most 1: f(begin, count).
template <class F>
void each_tile(std::int64_t n, F&& f) {
  const std::int64_t parts = (n + kTile - 1) / kTile;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t count = n / parts + (i < n % parts ? 1 : 0);
    f(begin, count);
    begin += count;
  }
}

// One output row of `f.q` pixels and one block of channels.
void pixel_row(const Correlation& f, const ChannelBlock& b, const float* x, const Taps& taps,
               const float* w, const float* bias, bool holds, float* y) {
  const auto& tiles = kPixelTiles[static_cast<std::size_t>(b.vectors - 1)];
  const std::int64_t channels = std::min(b.width(), f.k - b.first);
  each_tile(f.q, [&](std::int64_t first, std::int64_t count) {
    const PixelTile tile = tiles[static_cast<std::size_t>(count - 1)];
    float* out = y + first * f.k + b.first;
    const float* in = x + first * f.step();
    if (channels == b.width()) {
      tile(in, f.step(), taps, w, bias, holds, out, f.k);
      return;
    }
    // A vector reaches beyond the channels that there are.
    float buffer[kTile * kWidth] = {};
    for (std::int64_t i = 0; holds && i < count; ++i)
      std::copy_n(out + i * f.k, channels, buffer + i * b.width());
    tile(in, f.step(), taps, w, bias, holds, buffer, b.width());
    for (std::int64_t i = 0; i < count; ++i)
      std::copy_n(buffer + i * b.width(), channels, out + i * f.k);
  });
}

// `w`: held weights; `bias`: nullptr, or a value for each channel of every vector.
void correlate(const Correlation& f, const ConstView& x, bool tf32, const float* w,
               const float* bias, const Out& y, Scratch& scratch) {
  Scratch::Frame frame(scratch);
  const bool direct = y.view.dtype == DType::fp32;
  const bool holds = direct && y.write == Write::accumulate;
  const std::int64_t step = f.block_rows();
  float* lines = scratch.get<float>(f.lines(step) * f.line());
  float* buffer = direct ? nullptr : scratch.get<float>(step * f.q * f.k);
  auto* runs = scratch.get<std::int64_t>(f.runs());
  for (std::int64_t i = 0; i < f.runs(); ++i) runs[i] = f.run(i);
  const Taps taps{runs, f.runs(), f.length()};
  for (std::int64_t n = 0; n < f.n; ++n) {
    for (std::int64_t row = 0; row < f.p; row += step) {
      const std::int64_t rows = std::min(step, f.p - row);
      pad_lines(f, x, n, row * f.stride[0] - f.padding[0], f.lines(rows), tf32, lines);
      const std::int64_t at = (n * f.p + row) * f.q * f.k;
      float* out = direct ? y.view.as<float>() + at : buffer;
      each_channel_block(f, [&](const ChannelBlock& b) {
        for (std::int64_t i = 0; i < rows; ++i)
          pixel_row(f, b, lines + i * f.row_step(), taps, w + b.first * f.taps(),
                    bias == nullptr ? nullptr : bias + b.first, holds, out + i * f.q * f.k);
      });
      if (!direct) narrow(buffer, rows * f.q * f.k, y, at);
    }
  }
}

// ---- dw: taps side by side

// g[kTaps, kVectors vectors] += the sum over `rows` x `columns` pixels of x's value at the tap
// times dy's channels. kSets chains take turns where few taps would leave the adders waiting.
template <int kTaps, int kVectors>
void tap_tile(const Correlation& f, const float* x, const float* dy, std::int64_t dy_step,
              std::int64_t rows, float* g, std::int64_t g_step) {
  constexpr int kSets = std::max(1, kTile / (kTaps * kVectors));
  Vector sum[kSets][kTaps][kVectors];
  for (auto& set : sum)
    for (auto& tap : set)
      for (Vector& v : tap) v = simd::broadcast(0.0F);
  const std::int64_t step = f.step();
  const auto add = [&](int set, const float* values, const float* gradient) {
    Vector grad[kVectors];
    for (int v = 0; v < kVectors; ++v) grad[v] = simd::load(gradient + v * kLanes);
    for (int t = 0; t < kTaps; ++t) {
      const Vector value = simd::broadcast(values[t]);
      for (int v = 0; v < kVectors; ++v) sum[set][t][v] = simd::fma(value, grad[v], sum[set][t][v]);
    }
  };
  for (std::int64_t row = 0; row < rows; ++row, x += f.row_step()) {
    const float* values = x;
    std::int64_t q = 0;
    for (; q + kSets <= f.q; q += kSets)
      for (int set = 0; set < kSets; ++set, values += step, dy += dy_step) add(set, values, dy);
    for (; q < f.q; ++q, values += step, dy += dy_step) add(0, values, dy);
  }
  for (int t = 0; t < kTaps; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      Vector total = sum[0][t][v];
      for (int set = 1; set < kSets; ++set) total = simd::add(total, sum[set][t][v]);
      float* to = g + t * g_step + v * kLanes;
      simd::store(to, simd::add(simd::load(to), total));
    }
  }
}

// g[kTaps, kVectors vectors] continued by the same products, one chain each, pixel after pixel.
// `taps`: where each stands, in elements from the pixel.
template <int kTaps, int kVectors>
void tap_chains(const Correlation& f, const float* x, const std::int64_t* taps, const float* dy,
                std::int64_t dy_step, std::int64_t rows, float* g) {
  constexpr std::int64_t kStep = kVectors * kLanes;
  Vector sum[kTaps][kVectors];
  std::int64_t at[kTaps];
  for (int t = 0; t < kTaps; ++t) {
    at[t] = taps[t];
    for (int v = 0; v < kVectors; ++v) sum[t][v] = simd::load(g + t * kStep + v * kLanes);
  }
  const std::int64_t step = f.step();
  for (std::int64_t row = 0; row < rows; ++row, x += f.row_step()) {
    const float* values = x;
    for (std::int64_t q = 0; q < f.q; ++q, values += step, dy += dy_step) {
      Vector grad[kVectors];
      for (int v = 0; v < kVectors; ++v) grad[v] = simd::load(dy + v * kLanes);
      for (int t = 0; t < kTaps; ++t) {
        const Vector value = simd::broadcast(values[at[t]]);
        for (int v = 0; v < kVectors; ++v) sum[t][v] = simd::fma(value, grad[v], sum[t][v]);
      }
    }
  }
  for (int t = 0; t < kTaps; ++t)
    for (int v = 0; v < kVectors; ++v) simd::store(g + t * kStep + v * kLanes, sum[t][v]);
}

using TapTile = decltype(&tap_tile<1, 1>);
template <int kVectors, int... kCounts>
constexpr std::array<TapTile, sizeof...(kCounts)> tap_tiles(
    std::integer_sequence<int, kCounts...>) {
  return {&tap_tile<kCounts + 1, kVectors>...};
}
constexpr std::array<std::array<TapTile, kTile>, kMaxVectors> kTapTiles{
    tap_tiles<1>(std::make_integer_sequence<int, kTile>()),
    tap_tiles<2>(std::make_integer_sequence<int, kTile>())};

using TapChains = decltype(&tap_chains<1, 1>);
template <int kVectors, int... kCounts>
constexpr std::array<TapChains, sizeof...(kCounts)> all_tap_chains(
    std::integer_sequence<int, kCounts...>) {
  return {&tap_chains<kCounts + 1, kVectors>...};
}
constexpr std::array<std::array<TapChains, kTile>, kMaxVectors> kTapChains{
    all_tap_chains<1>(std::make_integer_sequence<int, kTile>()),
    all_tap_chains<2>(std::make_integer_sequence<int, kTile>())};

// Pixels' output gradients in fp32, the channels padded to whole vectors: in place where they are
// held so.
const float* padded_gradients(const Correlation& f, const ConstView& dy, bool tf32,
                              std::int64_t offset, std::int64_t pixels, Scratch& scratch) {
  const float* values = operand<float>(dy, offset, pixels * f.k, tf32, scratch);
  const std::int64_t width = f.vectors() * kLanes;
  if (width == f.k) return values;
  float* padded = scratch.get<float>(pixels * width);
  for (std::int64_t i = 0; i < pixels; ++i) {
    std::copy_n(values + i * f.k, f.k, padded + i * width);
    std::fill_n(padded + i * width + f.k, width - f.k, 0.0F);
  }
  return padded;
}

bool serves(const Correlation& f, const Conv2dParams& params) {
  if (!simd::kPresent || params.groups != 1) return false;
  // Enough pixels a row and channels a vector.
  if (f.p * f.q < 16 || f.q < 4 || 2 * f.k < kLanes) return false;
  // Lines that a kernel's dilation or the padding make long do not fit into a cache.
  constexpr std::int64_t kFar = 1 << 10, kMost = 1 << 21;
  return (f.r - 1) * f.dilation[0] < kFar && (f.s - 1) * f.dilation[1] < kFar &&
         f.columns() <= kMost && f.line() <= kMost / f.lines(1);
}

}  // namespace

bool direct_forward_serves(const Conv2dShape& z, const Conv2dParams& params) {
  return serves(correlation(z, params), params);
}
bool direct_grad_input_serves(const Conv2dShape& z, const Conv2dParams& params) {
  return params.stride[0] == 1 && params.stride[1] == 1 &&
         serves(input_gradient(z, params), params);
}
bool direct_grad_weight_serves(const Conv2dShape& z, const Conv2dParams& params) {
  return serves(correlation(z, params), params);
}

void direct_forward(const Conv2dShape& z, const Conv2dParams& params, const ConstView& x,
                    const ConstView& w, const ConstView& bias, const Out& y, Scratch& scratch) {
  const Correlation f = correlation(z, params);
  Scratch::Frame frame(scratch);
  const float* weights = operand<float>(w, 0, w.numel(), params.tf32, scratch);
  float* held = held_weights(f, scratch);
  each_held(f, [&](std::int64_t k, std::int64_t t, std::int64_t at) {
    held[at] = weights[k * f.taps() + t];
  });
  float* offsets = nullptr;
  if (bias.present) {
    offsets = scratch.get<float>(f.vectors() * kLanes);
    std::fill_n(offsets, f.vectors() * kLanes, 0.0F);
    widen(bias, 0, z.k, offsets);
  }
  correlate(f, x, params.tf32, held, offsets, y, scratch);
}

void direct_grad_input(const Conv2dShape& z, const Conv2dParams& params, const ConstView& dy,
                       const ConstView& w, const Out& dx, Scratch& scratch) {
  const Correlation f = input_gradient(z, params);
  Scratch::Frame frame(scratch);
  const float* weights = operand<float>(w, 0, w.numel(), params.tf32, scratch);
  float* held = held_weights(f, scratch);
  // Tap (r, s, k) of the gradient's kernel is tap (R - 1 - r, S - 1 - s) of weight k.
  const std::int64_t places = z.r * z.s, next = f.backwards ? 1 : -1;
  std::int64_t k = 0, place = 0;
  each_held(f, [&](std::int64_t c, std::int64_t t, std::int64_t at) {
    if (t == 0) k = 0, place = f.backwards ? 0 : places - 1;
    held[at] = weights[(k * places + place) * z.c + c];
    if (++k == z.k) k = 0, place += next;
  });
  correlate(f, dy, params.tf32, held, nullptr, dx, scratch);
}

void direct_grad_weight(const Conv2dShape& z, const Conv2dParams& params, const ConstView& x,
                        const ConstView& dy, const Out& dw, Scratch& scratch) {
  const Correlation f = correlation(z, params);
  Scratch::Frame frame(scratch);
  float* held = held_weights(f, scratch);
  const bool continues = params.in_order && dw.write == Write::accumulate;
  // What the samples' sums are added to, or the one sum itself.
  const bool by_sample = sums_by_sample(z, params);
  float* total = by_sample ? held_weights(f, scratch) : held;
  if (continues) {
    const float* before = dw.view.as<float>();
    each_held(f, [&](std::int64_t k, std::int64_t t, std::int64_t at) {
      total[at] = before[k * f.taps() + t];
    });
  }
  auto* taps = scratch.get<std::int64_t>(f.taps());
  for (std::int64_t t = 0; t < f.taps(); ++t) taps[t] = f.run(t / f.length()) + t % f.length();
  const std::int64_t step = f.block_rows();
  const std::int64_t width = f.vectors() * kLanes;
  float* lines = scratch.get<float>(f.lines(step) * f.line());
  for (std::int64_t n = 0; n < f.n; ++n) {
    for (std::int64_t row = 0; row < f.p; row += step) {
      Scratch::Frame block_frame(scratch);
      const std::int64_t rows = std::min(step, f.p - row);
      pad_lines(f, x, n, row * f.stride[0] - f.padding[0], f.lines(rows), params.tf32, lines);
      const float* grad =
          padded_gradients(f, dy, params.tf32, (n * f.p + row) * f.q * f.k, rows * f.q, scratch);
      each_channel_block(f, [&](const ChannelBlock& b) {
        const auto& tiles = kTapTiles[static_cast<std::size_t>(b.vectors - 1)];
        float* sums = held + b.first * f.taps();
        if (params.in_order) {
          const auto& chains = kTapChains[static_cast<std::size_t>(b.vectors - 1)];
          each_tile(f.taps(), [&](std::int64_t first, std::int64_t count) {
            chains[static_cast<std::size_t>(count - 1)](f, lines, taps + first, grad + b.first,
                                                        width, rows, sums + first * b.width());
          });
          return;
        }
        for (std::int64_t run = 0; run < f.runs(); ++run, sums += f.length() * b.width())
          each_tile(f.length(), [&](std::int64_t first, std::int64_t count) {
            tiles[static_cast<std::size_t>(count - 1)](f, lines + f.run(run) + first,
                                                       grad + b.first, width, rows,
                                                       sums + first * b.width(), b.width());
          });
      });
    }
    if (!by_sample) continue;
    for (std::int64_t i = 0; i < held_size(f); ++i) total[i] += held[i];
    std::fill_n(held, held_size(f), 0.0F);
  }
  float* sums = scratch.get<float>(f.k * f.taps());
  each_held(f, [&](std::int64_t k, std::int64_t t, std::int64_t at) {
    sums[k * f.taps() + t] = total[at];
  });
  narrow(sums, f.k * f.taps(), continues ? Out(dw.view) : dw, 0);
}

}  // namespace roundoff
