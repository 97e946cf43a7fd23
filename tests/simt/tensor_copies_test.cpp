// TMA: boxes of every rank and swizzle, their edges, im2col, multicast and pipelines. Places and
// values come from plain loops here, not from the emulator's walks.
#include "tests/simt/tensor_copies.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "tests/simt/sim_device.h"

using namespace roundoff;
using namespace roundoff::simt_test;

namespace {

constexpr std::size_t kShared = 16 * 1024;
constexpr std::size_t kWindow = 1024;  // where dynamic shared memory starts: a whole pattern

// Where byte `at` of a box's dense image lies: 16-byte chunks of a 128-byte line change places by
// the line's number, as the tables of the CUDA guide have it.
std::size_t place_of(std::size_t at, std::size_t base, Swizzle swizzle) {
  const std::size_t address = kWindow + base + at;
  const std::size_t line = address / 128, chunk = address / 16 % 8, byte = address % 16;
  std::size_t moved = chunk;
  if (swizzle == Swizzle::span32) moved = chunk ^ (line % 2);
  if (swizzle == Swizzle::span64) moved = chunk ^ (line % 4);
  if (swizzle == Swizzle::span128) moved = chunk ^ (line % 8);
  return line * 128 + moved * 16 + byte - kWindow;
}

// A tensor in host memory with padded strides, every byte random.
struct Tensor {
  TiledMap map;
  std::vector<std::uint8_t> bytes;

  Tensor(DType dtype, const std::vector<std::uint64_t>& size, std::mt19937& random) {
    map.dtype = dtype;
    map.rank = static_cast<int>(size.size());
    std::uint64_t stride = size[0] * size_of(dtype);
    for (std::size_t i = 0; i < size.size(); ++i) {
      map.size[i] = size[i];
      if (i > 0) {
        stride = (stride + 15) / 16 * 16 + 16 * (random() % 2);
        map.stride_bytes[i] = stride;
        stride *= size[i];
      }
    }
    bytes.resize(stride);
    for (auto& b : bytes) b = static_cast<std::uint8_t>(random());
  }
};

// Calls f(dense byte offset, tensor byte offset or -1) for every element of a box.
template <class F>
void each_element(const TiledMap& map, const Coordinates& at, F&& f) {
  std::int64_t count[5] = {1, 1, 1, 1, 1};
  for (int i = 0; i < map.rank; ++i) count[i] = (map.box[i] + map.step[i] - 1) / map.step[i];
  const auto unit = static_cast<std::int64_t>(size_of(map.dtype));
  std::int64_t dense = 0;
  std::int64_t i[5];
  for (i[4] = 0; i[4] < count[4]; ++i[4])
    for (i[3] = 0; i[3] < count[3]; ++i[3])
      for (i[2] = 0; i[2] < count[2]; ++i[2])
        for (i[1] = 0; i[1] < count[1]; ++i[1])
          for (i[0] = 0; i[0] < count[0]; ++i[0], dense += unit) {
            std::int64_t where = 0;
            for (int d = 0; d < map.rank && where >= 0; ++d) {
              const std::int64_t c = at.at[d] + i[d] * static_cast<std::int64_t>(map.step[d]);
              const bool inside = c >= 0 && c < static_cast<std::int64_t>(map.size[d]);
              const std::int64_t step =
                  d == 0 ? unit : static_cast<std::int64_t>(map.stride_bytes[d]);
              where = inside ? where + c * step : -1;
            }
            f(static_cast<std::size_t>(dense), where);
          }
}

std::size_t bytes_of(const TiledMap& map) {
  std::size_t n = size_of(map.dtype);
  for (int i = 0; i < map.rank; ++i) n *= (map.box[i] + map.step[i] - 1) / map.step[i];
  return n;
}

bool is_nan(DType dtype, const std::uint8_t* p) {
  if (dtype == DType::fp32) {
    float v;
    std::memcpy(&v, p, 4);
    return std::isnan(v);
  }
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return std::isnan(dtype == DType::fp16 ? static_cast<float>(Half::from_bits(bits))
                                         : static_cast<float>(BFloat16::from_bits(bits)));
}

struct BoxCase {
  DType dtype;
  std::vector<std::uint64_t> size;
  std::vector<std::uint32_t> box;  // box[0] in bytes
  std::vector<std::uint32_t> step;
};
const BoxCase kBoxes[] = {
    {DType::fp32, {300}, {128}, {1}},
    {DType::bf16, {70, 21}, {128, 11}, {1, 1}},
    {DType::fp32, {40, 9, 6}, {64, 5, 3}, {1, 2, 1}},
    {DType::fp16, {18, 7, 5, 4}, {32, 4, 3, 2}, {1, 1, 2, 1}},
    {DType::fp32, {33, 5, 4, 3, 3}, {128, 3, 2, 2, 2}, {1, 1, 1, 1, 2}},
};

}  // namespace

TEST_CASE("swizzles permute 16-byte chunks as their tables say") {
  // Rows of the tables: chunk of column c in row r of a pattern.
  for (std::uint32_t row = 0; row < 8; ++row) {
    for (std::uint32_t c = 0; c < 8; ++c) {
      CHECK(swizzled(row * 128 + c * 16, Swizzle::span128) == row * 128 + (c ^ row) * 16);
      CHECK(swizzled(row * 128 + c * 16, Swizzle::span64) == row * 128 + (c ^ (row % 4)) * 16);
      CHECK(swizzled(row * 128 + c * 16, Swizzle::span32) == row * 128 + (c ^ (row % 2)) * 16);
      CHECK(swizzled(row * 128 + c * 16, Swizzle::none) == row * 128 + c * 16);
    }
  }
  // A permutation of each pattern that keeps bytes of a chunk together.
  for (const Swizzle s : {Swizzle::span32, Swizzle::span64, Swizzle::span128}) {
    std::vector<bool> hit(2048);
    for (std::uint32_t a = 0; a < 2048; ++a) hit[swizzled(a, s)] = true;
    CHECK(std::find(hit.begin(), hit.end(), false) == hit.end());
    CHECK(swizzled(5 * 128 + 7, s) % 16 == 7);
  }
}

TEST_CASE("tensor loads: every rank and swizzle, edges filled, under every schedule") {
  under_schedules(
      [](auto& device, auto target) {
        std::mt19937 random(8);
        for (const BoxCase& c : kBoxes) {
          for (const Swizzle swizzle :
               {Swizzle::none, Swizzle::span32, Swizzle::span64, Swizzle::span128}) {
            for (const Fill fill : {Fill::zeros, Fill::nan}) {
              Tensor t(c.dtype, c.size, random);
              t.map.address = device.upload(t.bytes);
              t.map.swizzle = swizzle;
              t.map.fill = fill;
              const std::size_t unit = size_of(c.dtype);
              Coordinates at;
              for (std::size_t i = 0; i < c.size.size(); ++i) {
                t.map.box[i] = c.box[i];
                t.map.step[i] = c.step[i];
                // Inside, and over either edge.
                at.at[i] = static_cast<int>(random() % (c.size[i] + 2 * c.box[i] / unit)) -
                           static_cast<int>(c.box[i] / unit);
              }
              t.map.box[0] = static_cast<std::uint32_t>(
                  (swizzle == Swizzle::none ? c.box[0] : span_bytes(swizzle)) / unit);
              const std::size_t bytes = bytes_of(t.map);
              const std::size_t place = 128 * (random() % 9);
              REQUIRE(place + bytes <= kShared);
              std::uint8_t* out = device.upload(std::vector<std::uint8_t>(kShared));
              launch_tensor_load(target, t.map, at, static_cast<unsigned>(bytes),
                                 static_cast<unsigned>(place), out);
              const std::vector<std::uint8_t> got = device.download(out, kShared);
              int differ = 0;
              std::vector<bool> written(kShared);
              each_element(t.map, at, [&](std::size_t dense, std::int64_t where) {
                const std::size_t to = place_of(dense, place, swizzle);
                for (std::size_t b = 0; b < unit; ++b) written[to + b] = true;
                if (where >= 0) {
                  differ +=
                      std::memcmp(&got[to], &t.bytes[static_cast<std::size_t>(where)], unit) != 0;
                } else if (fill == Fill::nan) {
                  differ += !is_nan(c.dtype, &got[to]);
                } else {
                  for (std::size_t b = 0; b < unit; ++b) differ += got[to + b] != 0;
                }
              });
              for (std::size_t i = 0; i < kShared; ++i) differ += !written[i] && got[i] != 0xEE;
              CAPTURE(t.map.rank);
              CAPTURE(static_cast<int>(swizzle));
              CHECK(differ == 0);
            }
          }
        }
      },
      Architecture::sm_90a);
}

TEST_CASE("tensor stores write what lies inside, and nothing else; additions add") {
  under_schedules(
      [](auto& device, auto target) {
        std::mt19937 random(9);
        for (const BoxCase& c : kBoxes) {
          for (const Swizzle swizzle :
               {Swizzle::none, Swizzle::span32, Swizzle::span64, Swizzle::span128}) {
            Tensor t(c.dtype, c.size, random);
            auto* tensor = device.upload(t.bytes);
            t.map.address = tensor;
            t.map.swizzle = swizzle;
            const std::size_t unit = size_of(c.dtype);
            Coordinates at;
            for (std::size_t i = 0; i < c.size.size(); ++i) {
              t.map.box[i] = c.box[i];
              t.map.step[i] = c.step[i];
              at.at[i] = static_cast<int>(random() % (c.size[i] + c.box[i] / unit)) -
                         static_cast<int>(c.box[i] / unit / 2);
            }
            t.map.box[0] = static_cast<std::uint32_t>(
                (swizzle == Swizzle::none ? c.box[0] : span_bytes(swizzle)) / unit);
            const std::size_t bytes = bytes_of(t.map);
            std::vector<std::uint8_t> image(bytes);
            for (auto& b : image) b = static_cast<std::uint8_t>(random());
            launch_tensor_store(target, t.map, at, false, static_cast<unsigned>(bytes),
                                device.upload(image));
            std::vector<std::uint8_t> want = t.bytes;
            each_element(t.map, at, [&](std::size_t dense, std::int64_t where) {
              if (where >= 0)
                std::memcpy(&want[static_cast<std::size_t>(where)],
                            &image[place_of(dense, 0, swizzle)], unit);
            });
            CAPTURE(t.map.rank);
            CAPTURE(static_cast<int>(swizzle));
            CHECK(device.download(tensor, want.size()) == want);
          }
        }
        // Sums of small integers, fp32 and bf16.
        for (const DType dtype : {DType::fp32, DType::bf16}) {
          TiledMap map;
          map.dtype = dtype;
          map.rank = 2;
          map.size[0] = 40;
          map.size[1] = 5;
          map.stride_bytes[1] = 40 * size_of(dtype);
          map.box[0] = 32;
          map.box[1] = 4;
          std::vector<std::uint8_t> x(map.stride_bytes[1] * 5), image(bytes_of(map));
          const auto put = [&](std::vector<std::uint8_t>& to, std::size_t i, float v) {
            const std::uint16_t half = BFloat16(v).bits;
            if (dtype == DType::fp32) std::memcpy(&to[i * 4], &v, 4);
            if (dtype == DType::bf16) std::memcpy(&to[i * 2], &half, 2);
          };
          for (std::size_t i = 0; i < 200; ++i) put(x, i, static_cast<float>(i % 7));
          for (std::size_t i = 0; i < 128; ++i) put(image, i, static_cast<float>(i));
          auto* tensor = device.upload(x);
          map.address = tensor;
          launch_tensor_store(target, map, {{16, 2}}, true, static_cast<unsigned>(image.size()),
                              device.upload(image));
          for (std::size_t r = 0; r < 4; ++r)
            for (std::size_t c = 0; c < 32; ++c)
              if (r + 2 < 5 && c + 16 < 40) {
                const std::size_t i = (r + 2) * 40 + c + 16;
                put(x, i, static_cast<float>(i % 7) + static_cast<float>(r * 32 + c));
              }
          CHECK(device.download(tensor, x.size()) == x);
        }
      },
      Architecture::sm_90a);
}

TEST_CASE("im2col loads gather what a convolution's plain loops read") {
  struct Shape {
    int n, h, w, c, filter, pad, stride, dilation;
  };
  under_schedules(
      [](auto& device, auto target) {
        std::mt19937 random(10);
        for (const Shape s : {Shape{3, 6, 7, 24, 3, 1, 1, 1},
                              {2, 9, 8, 16, 3, 1, 2, 1},
                              {2, 8, 9, 16, 3, 2, 1, 2},
                              {4, 5, 5, 8, 1, 0, 1, 1},
                              {2, 11, 6, 8, 5, 2, 3, 1}}) {
          const int reach = (s.filter - 1) * s.dilation;
          const int out_h = (s.h + 2 * s.pad - reach - 1) / s.stride + 1;
          const int out_w = (s.w + 2 * s.pad - reach - 1) / s.stride + 1;
          std::vector<std::uint16_t> x(static_cast<std::size_t>(s.n * s.h * s.w * s.c));
          for (auto& v : x) v = static_cast<std::uint16_t>(random() % 60000 + 1);
          Im2colMap map;
          map.dtype = DType::bf16;
          map.address = device.upload(x);
          const int sizes[] = {s.c, s.w, s.h, s.n};
          std::uint64_t stride = 2;
          for (int i = 0; i < 4; ++i) {
            map.size[i] = static_cast<std::uint64_t>(sizes[i]);
            map.stride_bytes[i] = stride;
            stride *= map.size[i];
          }
          for (int i = 0; i < 2; ++i) {
            map.lower[i] = -s.pad;
            map.upper[i] = s.pad - reach;
            map.step[i + 1] = static_cast<std::uint32_t>(s.stride);
          }
          map.channels = 8;
          map.pixels = 24;
          const auto bytes = static_cast<unsigned>(map.channels * map.pixels * 2);
          for (const int first : {0, 5, out_h * out_w + 3, s.n * out_h * out_w - 7}) {
            for (int tap = 0; tap < 2; ++tap) {
              const auto filter = static_cast<unsigned>(s.filter);
              const int r = static_cast<int>(random() % filter);
              const int q = static_cast<int>(random() % filter);
              const int c0 =
                  static_cast<int>(random() % 2) * (s.c - 8 + static_cast<int>(random() % 8));
              const int image = first / (out_h * out_w), row = first / out_w % out_h,
                        column = first % out_w;
              const Coordinates at{{c0, column * s.stride - s.pad, row * s.stride - s.pad, image}};
              std::uint8_t* out = device.upload(std::vector<std::uint8_t>(kShared));
              launch_im2col_load(target, map, at, static_cast<std::uint16_t>(q * s.dilation),
                                 static_cast<std::uint16_t>(r * s.dilation), bytes, out);
              const std::vector<std::uint8_t> got = device.download(out, kShared);
              int differ = 0;
              for (int p = 0; p < 24; ++p) {
                const int index = first + p;
                const int n = index / (out_h * out_w);
                const int ih = index / out_w % out_h * s.stride - s.pad + r * s.dilation;
                const int iw = index % out_w * s.stride - s.pad + q * s.dilation;
                for (int c = 0; c < 8; ++c) {
                  const bool inside =
                      n < s.n && ih >= 0 && ih < s.h && iw >= 0 && iw < s.w && c0 + c < s.c;
                  const std::uint16_t want =
                      inside
                          ? x[static_cast<std::size_t>(((n * s.h + ih) * s.w + iw) * s.c + c0 + c)]
                          : std::uint16_t{0};
                  std::uint16_t v = 0;
                  std::memcpy(&v, &got[static_cast<std::size_t>((p * 8 + c) * 2)], 2);
                  if (v != want) ++differ;
                }
              }
              CHECK(differ == 0);
            }
          }
        }
      },
      Architecture::sm_90a);
}

TEST_CASE("a multicast reaches every block of its mask") {
  under_schedules(
      [](auto& device, auto target) {
        std::mt19937 random(11);
        for (const unsigned cluster : {1U, 2U, 4U}) {
          constexpr unsigned kBytes = 256;
          std::vector<std::uint8_t> x(cluster * kBytes);
          for (auto& b : x) b = static_cast<std::uint8_t>(random());
          const auto* px = device.upload(x);
          TiledMap map;
          map.dtype = DType::u8;
          map.address = px;
          map.size[0] = x.size();
          map.box[0] = kBytes;
          for (const bool tensor : {false, true}) {
            std::uint8_t* out = device.upload(std::vector<std::uint8_t>(x.size() * cluster));
            launch_multicast(target, cluster, tensor, map, px, kBytes, out);
            const std::vector<std::uint8_t> got = device.download(out, x.size() * cluster);
            bool same = true;
            for (std::size_t i = 0; i < got.size(); ++i) same = same && got[i] == x[i % x.size()];
            CHECK(same);
          }
        }
      },
      Architecture::sm_90a);
}

namespace {

TiledMap matrix(const float* address, int rows, int columns) {
  TiledMap map;
  map.address = address;
  map.rank = 2;
  map.size[0] = static_cast<std::uint64_t>(columns);
  map.size[1] = static_cast<std::uint64_t>(rows);
  map.stride_bytes[1] = (map.size[0] * 4 + 15) / 16 * 16;
  map.box[0] = 32;
  map.box[1] = 8;
  return map;
}
[[maybe_unused]] Im2colMap image(const float* address) {
  Im2colMap map;
  map.address = address;
  for (int i = 0; i < 4; ++i) {
    map.size[i] = 4;
    map.stride_bytes[i] = std::uint64_t{4} << (2 * i);
  }
  map.channels = 4;
  map.pixels = 8;
  return map;
}

}  // namespace

TEST_CASE("a pipeline of loads and stores of boxes, under every schedule") {
  under_schedules(
      [](auto& device, auto target) {
        for (const int rows : {1, 8, 37}) {
          for (const int columns : {4, 33, 100}) {
            const auto pitch = static_cast<std::size_t>((columns + 3) / 4 * 4);
            std::vector<float> x(pitch * static_cast<std::size_t>(rows));
            std::iota(x.begin(), x.end(), 0.0F);
            float* px = device.upload(x);
            float* py = device.upload(std::vector<float>(x.size(), -5.0F));
            launch_tensor_pipeline(target, 2, matrix(px, rows, columns), matrix(py, rows, columns),
                                   rows, columns);
            const std::vector<float> y = device.download(py, x.size());
            int differ = 0;
            for (std::size_t i = 0; i < x.size(); ++i)
              if (y[i] != (i % pitch < static_cast<std::size_t>(columns) ? x[i] + 1 : -5.0F))
                ++differ;
            CHECK(differ == 0);
          }
        }
      },
      Architecture::sm_90a);
}

TEST_CASE("a copy reads what its thread wrote to device memory before it") {
  under_schedules(
      [](auto& device, auto target) {
        float* x = device.upload(std::vector<float>(64, -1.0F));
        float* out = device.upload(std::vector<float>(64, -1.0F));
        TiledMap map;
        map.address = x;
        map.size[0] = 64;
        map.box[0] = 64;
        launch_write_then_load(target, map, x, out);
        std::vector<float> want(64);
        std::iota(want.begin(), want.end(), 0.0F);
        CHECK(device.download(out, 64) == want);
      },
      Architecture::sm_90a);
}

#if !defined(ROUNDOFF_TEST_ON_GPU)

TEST_CASE("misuse of TMA is diagnosed") {
  const struct {
    TensorMisuse misuse;
    const char* message;
  } kExpected[] = {
      {TensorMisuse::misaligned_box, "not aligned to 128 bytes"},
      {TensorMisuse::wrong_rank, "3 coordinates for a tensor of rank 2"},
      {TensorMisuse::no_map, "no tensor map at that address"},
      {TensorMisuse::wrong_mode, "the map was made for im2col"},
      {TensorMisuse::beyond_allocation, "not inside one allocation"},
      {TensorMisuse::too_few_bytes, "nobody had announced"},
      {TensorMisuse::too_many_bytes, "deadlock"},
      {TensorMisuse::early_exit_of_store, "still reads shared memory"},
      {TensorMisuse::mask_outside, "the mask 0x2 for a cluster of 1"},
      {TensorMisuse::misaligned_run, "must be multiples of 16"},
      {TensorMisuse::im2col_start, "outside its bounding box"},
  };
  for (const auto& e : kExpected) {
    for (const simt::Async async : {simt::Async::eager, simt::Async::late}) {
      if (e.misuse == TensorMisuse::early_exit_of_store && async == simt::Async::eager) continue;
      simt::Config config;
      config.async = async;
      const std::string message = fault_of(config, [&](SimDevice& device, auto target) {
        const float* x = device.upload(std::vector<float>(32 * 16));
        TiledMap map = matrix(x, 16, 32);
        if (e.misuse == TensorMisuse::beyond_allocation) map.size[1] = 17;
        launch_tensor_misuse(target, e.misuse, map, image(x),
                             device.upload(std::vector<std::uint8_t>(256)));
      });
      CAPTURE(message);
      CHECK(contains(message, e.message));
    }
  }
  // Shared memory that is written too early shows where the store is late.
  const auto stored = [](simt::Async async) {
    simt::Config config;
    config.async = async;
    SimDevice device(config);
    float* x = device.upload(std::vector<float>(32 * 16));
    launch_tensor_misuse(device.sim(), TensorMisuse::no_store_wait, matrix(x, 16, 32), image(x),
                         device.upload(std::vector<std::uint8_t>(256)));
    return device.download(x, 1)[0];
  };
  CHECK(stored(simt::Async::eager) == 1);
  CHECK(stored(simt::Async::late) == 2);
}

#endif
