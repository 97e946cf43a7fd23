#include "kernels/gemm/product.h"

#include "kernels/gemm/small.h"

// g++ 12 takes its own "undefined" vector operands for variables that nobody initialised.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#if defined(ROUNDOFF_HAS_BLAS)
#include <cblas.h>
// Present in some libraries only.
extern "C" {
[[gnu::weak]] void openblas_set_num_threads(int);
[[gnu::weak]] char* openblas_get_corename(void);
[[gnu::weak]] void bli_thread_set_num_threads(long);
}
#endif

namespace roundoff {

namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ConstMap = Eigen::Map<const RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <class T>
using Map = Eigen::Map<RowMajor<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

template <class T>
void fill_zeros(const Product<T>& p) {
  if (p.ldc == p.n) {
    std::fill_n(p.c, p.m * p.n, T{0});
    return;
  }
  for (std::int64_t i = 0; i < p.m; ++i) std::fill_n(p.c + i * p.ldc, p.n, T{0});
}

template <class T>
void eigen_product(const Product<T>& p) {
  const ConstMap<T> a(p.a, p.trans_a ? p.k : p.m, p.trans_a ? p.m : p.k,
                      Eigen::OuterStride<>(p.lda));
  const ConstMap<T> b(p.b, p.trans_b ? p.n : p.k, p.trans_b ? p.k : p.n,
                      Eigen::OuterStride<>(p.ldb));
  Map<T> c(p.c, p.m, p.n, Eigen::OuterStride<>(p.ldc));
  // Eigen would fill a matrix with zeros row by row, which costs more than a product of small
  // depth.
  if (!p.accumulate) fill_zeros(p);
  const auto assign = [&](const auto& left, const auto& right) {
    c.noalias() += p.alpha * (left * right);
  };
  if (p.trans_a) {
    p.trans_b ? assign(a.transpose(), b.transpose()) : assign(a.transpose(), b);
  } else {
    p.trans_b ? assign(a, b.transpose()) : assign(a, b);
  }
}

#if defined(ROUNDOFF_HAS_BLAS)

void blas_product(const Product<float>& p) {
  cblas_sgemm(CblasRowMajor, p.trans_a ? CblasTrans : CblasNoTrans,
              p.trans_b ? CblasTrans : CblasNoTrans, static_cast<int>(p.m), static_cast<int>(p.n),
              static_cast<int>(p.k), p.alpha, p.a, static_cast<int>(p.lda), p.b,
              static_cast<int>(p.ldb), p.accumulate ? 1.0F : 0.0F, p.c, static_cast<int>(p.ldc));
}
void blas_product(const Product<double>& p) {
  cblas_dgemm(CblasRowMajor, p.trans_a ? CblasTrans : CblasNoTrans,
              p.trans_b ? CblasTrans : CblasNoTrans, static_cast<int>(p.m), static_cast<int>(p.n),
              static_cast<int>(p.k), p.alpha, p.a, static_cast<int>(p.lda), p.b,
              static_cast<int>(p.ldb), p.accumulate ? 1.0 : 0.0, p.c, static_cast<int>(p.ldc));
}

// Whether one product of small integers, which any order of summation gives exactly, is right:
// C x = A (B x) for two integer vectors x, and nothing written beside C.
template <class T>
bool exact_on(std::int64_t m, std::int64_t n, std::int64_t k, bool trans_a, bool trans_b,
              bool accumulate) {
  constexpr std::int64_t kPad = 3;  // leading dimensions larger than the rows
  constexpr int kGuard = 77;
  Product<T> p{
      .m = m, .n = n, .k = k, .trans_a = trans_a, .trans_b = trans_b, .accumulate = accumulate};
  p.lda = (trans_a ? m : k) + kPad;
  p.ldb = (trans_b ? k : n) + kPad;
  p.ldc = n + kPad;
  const auto fill = [](std::int64_t size, std::int64_t step) {
    std::vector<T> values(static_cast<std::size_t>(size));
    std::int64_t state = step;
    for (T& value : values) value = static_cast<T>((state += step) % 11 - 5);
    return values;
  };
  const std::vector<T> a = fill((trans_a ? k : m) * p.lda, 7);
  const std::vector<T> b = fill((trans_b ? n : k) * p.ldb, 4);
  std::vector<T> c(static_cast<std::size_t>(m * p.ldc), static_cast<T>(kGuard));
  p.a = a.data();
  p.b = b.data();
  p.c = c.data();
  blas_product(p);
  const auto at = [](const std::vector<T>& v, std::int64_t i) {
    return static_cast<std::int64_t>(v[static_cast<std::size_t>(i)]);
  };
  for (const std::int64_t modulus : {5, 7}) {
    const auto x = [&](std::int64_t j) { return j % modulus + 1; };
    std::vector<std::int64_t> bx(static_cast<std::size_t>(k));
    for (std::int64_t l = 0; l < k; ++l)
      for (std::int64_t j = 0; j < n; ++j)
        bx[static_cast<std::size_t>(l)] += at(b, trans_b ? j * p.ldb + l : l * p.ldb + j) * x(j);
    for (std::int64_t i = 0; i < m; ++i) {
      std::int64_t want = 0;
      for (std::int64_t l = 0; l < k; ++l)
        want += at(a, trans_a ? l * p.lda + i : i * p.lda + l) * bx[static_cast<std::size_t>(l)];
      std::int64_t got = 0;
      for (std::int64_t j = 0; j < n; ++j) {
        const T value = c[static_cast<std::size_t>(i * p.ldc + j)];
        if (!(value >= T{-1e6} && value <= T{1e6}) ||
            value != static_cast<T>(static_cast<std::int64_t>(value)))
          return false;
        got += (static_cast<std::int64_t>(value) - (accumulate ? kGuard : 0)) * x(j);
      }
      if (got != want) return false;
      for (std::int64_t j = n; j < p.ldc; ++j)
        if (at(c, i * p.ldc + j) != kGuard) return false;
    }
  }
  return true;
}

template <class T>
bool exact() {
  constexpr std::array<std::array<std::int64_t, 3>, 8> kSizes{{{1, 1, 1},
                                                               {3, 5, 7},
                                                               {1, 64, 33},
                                                               {16, 16, 300},
                                                               {64, 64, 64},
                                                               {65, 33, 129},
                                                               {300, 17, 255},
                                                               {129, 257, 300}}};
  for (const auto& [m, n, k] : kSizes)
    for (int flags = 0; flags < 8; ++flags)
      if (!exact_on<T>(m, n, k, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0)) return false;
  return true;
}

#endif

struct Backend {
  bool blas = false;
  std::string name = "Eigen";
};

Backend choose_backend() {
#if defined(ROUNDOFF_HAS_BLAS)
  std::string library = ROUNDOFF_BLAS_NAME;
  if (openblas_get_corename != nullptr) {
    library = "OpenBLAS";
#if defined(__AVX512F__)
    // A library older than its processor falls back to 256-bit kernels, which Eigen's 512-bit ones
    // outrun by a third.
    const std::string core = openblas_get_corename();
    const bool wide = core == "SkylakeX" || core == "Cooperlake" || core == "Sapphirerapids" ||
                      core == "Zen4" || core == "Zen5";
    if (!wide) return {false, "Eigen (OpenBLAS takes this processor for " + core + ")"};
#endif
  }
  // More threads would change the order of summation with the machine.
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(1);
  if (bli_thread_set_num_threads != nullptr) bli_thread_set_num_threads(1);
  if (!exact<float>() || !exact<double>())
    return {false, "Eigen (" + library + " gave wrong results)"};
  return {true, library};
#else
  return {};
#endif
}

const Backend& backend() {
  static const Backend chosen = choose_backend();
  return chosen;
}

template <class T>
void any_product(const Product<T>& p) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0 || p.alpha == T{0}) {
    if (!p.accumulate) fill_zeros(p);
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (small_product_serves(p)) return small_product(p);
  }
#if defined(ROUNDOFF_HAS_BLAS)
  // Below this many multiplications Eigen's lower overhead wins; above, the library's blocking.
  constexpr double kLarge = 64.0 * 64 * 64;
  constexpr std::int64_t kMaxInt = 0x7FFFFFFF;
  if (static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) > kLarge &&
      std::max({p.m, p.n, p.k, p.lda, p.ldb, p.ldc}) <= kMaxInt && backend().blas) {
    blas_product(p);
    return;
  }
#endif
  eigen_product(p);
}

}  // namespace

void product(const Product<float>& p) { any_product(p); }
void product(const Product<double>& p) { any_product(p); }
std::string_view product_backend() { return backend().name; }

}  // namespace roundoff
