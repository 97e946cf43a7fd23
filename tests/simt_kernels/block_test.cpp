#include "tests/simt_kernels/block.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/emulator/stream.h"

using namespace roundoff;

namespace {

constexpr int kWidths[] = {1, 2, 8, 32, 64, 128, 256, 1024};

struct Fixture {
  simt::Emulator device;
  simt::SimStream stream{device};
  explicit Fixture(std::uint64_t schedule = 0) : device(simt::with_schedule({}, schedule)) {}
  Sim sim() { return {{&stream}, nullptr}; }

  template <class T>
  T* upload(const std::vector<T>& values) {
    void* p = device.allocate(values.size() * sizeof(T));
    device.copy_in(p, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(p);
  }
  template <class T>
  T* room(std::size_t n) {
    return static_cast<T*>(device.allocate(n * sizeof(T)));
  }
  template <class T>
  std::vector<T> download(const T* p, std::size_t n) {
    std::vector<T> values(n);
    device.copy_out(values.data(), p, n * sizeof(T));
    return values;
  }
};

// The order that block.cuh states, on the host.
float butterfly(std::vector<float> v) {
  for (std::size_t half = std::min<std::size_t>(v.size(), 32) / 2; half > 0; half /= 2) {
    const std::vector<float> before = v;
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = before[i] + before[i ^ half];
  }
  std::vector<float> warps;
  for (std::size_t i = 0; i < v.size(); i += 32) warps.push_back(v[i]);
  for (; warps.size() > 1; warps.resize(warps.size() / 2))
    for (std::size_t i = 0; i < warps.size() / 2; ++i) warps[i] = warps[2 * i] + warps[2 * i + 1];
  return warps[0];
}

}  // namespace

TEST_CASE("rows of 1 to 1024 threads: stated order, same bits on every thread and schedule") {
  for (std::uint64_t k = 0; k < 8; ++k) {
    for (const int width : kWidths) {
      CAPTURE(k);
      CAPTURE(width);
      const auto w = static_cast<std::size_t>(width);
      const std::size_t n = width > 256 ? 2048 : 512;
      Fixture f(k);
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i)
        x[i] = std::sin(static_cast<float>(7 * i + 1)) * std::exp2(static_cast<float>(i % 9));
      if (width > 1) x[w] = std::numeric_limits<float>::quiet_NaN();  // the second row holds one
      const float* in = f.upload(x);
      float* sum = f.room<float>(n);
      float* max = f.room<float>(n);
      float* min = f.room<float>(n);
      float* again = f.room<float>(n);
      launch_row_sums(f.sim(), width, static_cast<unsigned>(n / w), in, sum, max, min, again);
      const std::vector<float> sums = f.download(sum, n), maxima = f.download(max, n),
                               minima = f.download(min, n), reversed = f.download(again, n);
      bool right = true;
      for (std::size_t r = 0; r < n; r += w) {
        std::vector<float> row(x.begin() + static_cast<std::ptrdiff_t>(r),
                               x.begin() + static_cast<std::ptrdiff_t>(r + w));
        const float want = butterfly(row);
        const float largest = *std::max_element(row.begin(), row.end());
        const float smallest = *std::min_element(row.begin(), row.end());
        std::reverse(row.begin(), row.end());
        const float want_reversed = butterfly(row);
        for (std::size_t i = r; i < r + w; ++i) {
          if (width > 1 && r == w)
            right = right && std::isnan(sums[i]) && std::isnan(maxima[i]) && std::isnan(minima[i]);
          else
            right = right && sums[i] == want && maxima[i] == largest && minima[i] == smallest &&
                    reversed[i] == want_reversed;
        }
      }
      CHECK(right);
    }
  }
}

TEST_CASE("pairs: the first of equal extremes, a NaN before all; sums side by side") {
  for (std::uint64_t k = 0; k < 8; ++k) {
    for (const int width : kWidths) {
      CAPTURE(k);
      CAPTURE(width);
      const auto w = static_cast<std::size_t>(width);
      const std::size_t n = width > 256 ? 4096 : 1024;
      Fixture f(k);
      std::vector<double> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<double>(i * 31 % 17) - 8;
      for (const std::size_t nan : {w + w / 3, w + w - 1})
        x[nan] = std::numeric_limits<double>::quiet_NaN();
      const double* in = f.upload(x);
      std::int64_t* largest = f.room<std::int64_t>(n);
      std::int64_t* smallest = f.room<std::int64_t>(n);
      double* sum = f.room<double>(n);
      double* squares = f.room<double>(n);
      launch_row_pairs(f.sim(), width, static_cast<unsigned>(n / w), in, largest, smallest, sum,
                       squares);
      const std::vector<std::int64_t> most = f.download(largest, n),
                                      least = f.download(smallest, n);
      const std::vector<double> sums = f.download(sum, n), second = f.download(squares, n);
      bool right = true;
      for (std::size_t r = 0; r < n; r += w) {
        const auto begin = x.begin() + static_cast<std::ptrdiff_t>(r);
        const auto end = begin + static_cast<std::ptrdiff_t>(w);
        std::int64_t first_max = std::max_element(begin, end) - begin;
        std::int64_t first_min = std::min_element(begin, end) - begin;
        if (r == w) first_max = first_min = static_cast<std::int64_t>(w / 3);
        double total = 0, total_squares = 0;
        for (auto v = begin; v != end; ++v) total += *v, total_squares += *v * *v;
        for (std::size_t i = r; i < r + w; ++i)
          right = right && most[i] == first_max && least[i] == first_min &&
                  (r == w || (sums[i] == total && second[i] == total_squares));
      }
      CHECK(right);
    }
  }
}
