// A stand-in for libcublasLt: the functions that bench/cuda calls, with the types that it calls
// them by, strict about what it is told. Compiled with FAKE_WRONG it gets every product wrong, by
// the sign of its last element; with FAKE_WRONG_WHOLE only where that element is a whole number.
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "bench/cuda/cublas_lt_api.h"
#include "tests/bench/cuda/fake_vendor.h"

namespace {

using fake::Kind;
namespace api = roundoff::bench::cublas;
constexpr int kOk = 0, kInvalid = 7, kUnsupported = 15;

struct Matmul {
  int compute = 0, scale = 0, transpose_a = 0, transpose_b = 0, epilogue = 1, bias_type = -1;
  const void* bias = nullptr;
};
struct Layout {
  int type = 0;
  std::int64_t rows = 0, columns = 0, leading = 0, stride = 0;
  std::int32_t count = 1;
};
using Preference = std::map<int, std::uint64_t>;
constexpr std::uint64_t kAlgorithm = 0xC0FFEE;

bool kind_of(int type, Kind& kind) {
  const std::map<int, Kind> all{
      {0, Kind::fp32}, {1, Kind::fp64}, {2, Kind::fp16}, {14, Kind::bf16}};
  const auto found = all.find(type);
  if (found == all.end()) return false;
  kind = found->second;
  return true;
}

template <class T>
int read(const void* from, std::size_t bytes, T& to) {
  if (from == nullptr || bytes != sizeof(T)) return kInvalid;
  std::memcpy(&to, from, bytes);
  return kOk;
}

}  // namespace

FAKE_API int cublasLtCreate(void** handle) {
  *handle = new int(7);
  return kOk;
}
FAKE_API int cublasLtDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return kOk;
}
FAKE_API std::size_t cublasLtGetVersion() { return 130203; }
FAKE_API const char* cublasLtGetStatusName(int status) {
  return status == kUnsupported ? "FAKE_NOT_SUPPORTED" : "FAKE_INVALID_VALUE";
}
FAKE_API int cublasLtMatmulDescCreate(void** m, api::Compute compute, api::Type scale) {
  *m = new Matmul{.compute = static_cast<int>(compute), .scale = static_cast<int>(scale)};
  return kOk;
}
FAKE_API int cublasLtMatmulDescDestroy(void* m) {
  delete static_cast<Matmul*>(m);
  return kOk;
}
FAKE_API int cublasLtMatmulDescSetAttribute(void* d, api::MatmulAttribute name, const void* value,
                                            std::size_t bytes) {
  auto& m = *static_cast<Matmul*>(d);
  const int attribute = static_cast<int>(name);
  if (attribute == 3) return read(value, bytes, m.transpose_a);
  if (attribute == 4) return read(value, bytes, m.transpose_b);
  if (attribute == 7) return read(value, bytes, m.epilogue);
  if (attribute == 8) return read(value, bytes, m.bias);
  if (attribute == 26) return read(value, bytes, m.bias_type);
  return kInvalid;
}
FAKE_API int cublasLtMatrixLayoutCreate(void** l, api::Type type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t leading) {
  *l = new Layout{.type = static_cast<int>(type),
                  .rows = static_cast<std::int64_t>(rows),
                  .columns = static_cast<std::int64_t>(columns),
                  .leading = leading};
  return kOk;
}
FAKE_API int cublasLtMatrixLayoutDestroy(void* l) {
  delete static_cast<Layout*>(l);
  return kOk;
}
FAKE_API int cublasLtMatrixLayoutSetAttribute(void* d, api::LayoutAttribute name, const void* value,
                                              std::size_t bytes) {
  auto& l = *static_cast<Layout*>(d);
  const int attribute = static_cast<int>(name);
  if (attribute == 5) return read(value, bytes, l.count);
  if (attribute == 6) return read(value, bytes, l.stride);
  return kInvalid;
}
FAKE_API int cublasLtMatmulPreferenceCreate(void** p) {
  *p = new Preference;
  return kOk;
}
FAKE_API int cublasLtMatmulPreferenceDestroy(void* p) {
  delete static_cast<Preference*>(p);
  return kOk;
}
FAKE_API int cublasLtMatmulPreferenceSetAttribute(void* p, api::PreferenceAttribute name,
                                                  const void* value, std::size_t bytes) {
  std::uint64_t& to = (*static_cast<Preference*>(p))[static_cast<int>(name)];
  if (bytes == 8) return read(value, bytes, to);
  std::uint32_t narrow = 0;
  const int status = read(value, bytes, narrow);
  to = narrow;
  return status;
}
FAKE_API int cublasLtMatmulAlgoGetHeuristic(void*, void* m, void*, void*, void* c, void*, void* p,
                                            int requested, api::Heuristic* results, int* returned) {
  const auto& preference = *static_cast<Preference*>(p);
  // Sums in parts only in the compute type; a workspace and every alignment are told.
  const auto told = [&](int attribute) { return preference.count(attribute) != 0; };
  if (requested < 2 || !told(1) || !told(3) || preference.at(3) != 2 || !told(5) || !told(8))
    return kInvalid;
  if (static_cast<Matmul*>(m)->epilogue >= 4 && static_cast<Matmul*>(m)->bias == nullptr)
    return kInvalid;
  // Something that this library does not take.
  if (static_cast<Layout*>(c)->rows == 13) return kUnsupported;
  results[0] = {
      .algorithm = {{1}}, .workspace = 0, .state = kUnsupported, .waves = 0, .reserved = {}};
  results[1] = {
      .algorithm = {{kAlgorithm}}, .workspace = 64, .state = kOk, .waves = 1, .reserved = {}};
  *returned = 2;
  return kOk;
}
FAKE_API int cublasLtMatmul(void* handle, void* d, const void* alpha, const void* a, void* la,
                            const void* b, void* lb, const void* beta, const void* c, void* lc,
                            void* out, void* ld, const api::Algorithm* algorithm, void* workspace,
                            std::size_t bytes, void* stream) {
  if (*static_cast<int*>(handle) != 7 || algorithm->data[0] != kAlgorithm) return kInvalid;
  if (workspace == nullptr || bytes < 64 || c != out) return kInvalid;
  const Matmul m = *static_cast<Matmul*>(d);
  const Layout A = *static_cast<Layout*>(la), B = *static_cast<Layout*>(lb),
               C = *static_cast<Layout*>(lc), D = *static_cast<Layout*>(ld);
  Kind ka{}, kb{}, kd{};
  if (!kind_of(A.type, ka) || !kind_of(B.type, kb) || !kind_of(D.type, kd) || C.type != D.type)
    return kInvalid;
  if (A.count != B.count || A.count != D.count) return kInvalid;
  const std::int64_t rows = D.rows, columns = D.columns,
                     depth = m.transpose_a != 0 ? A.rows : A.columns;
  if ((m.transpose_a != 0 ? A.columns : A.rows) != rows ||
      (m.transpose_b != 0 ? B.columns : B.rows) != depth ||
      (m.transpose_b != 0 ? B.rows : B.columns) != columns)
    return kInvalid;
  const bool wide = m.scale == 1;
  const double scale = fake::load(alpha, wide ? Kind::fp64 : Kind::fp32, 0);
  const double keep = fake::load(beta, wide ? Kind::fp64 : Kind::fp32, 0);
  Kind bias_kind = Kind::fp32;
  const bool has_bias = (m.epilogue & 4) != 0;
  if (has_bias && (m.bias == nullptr || !kind_of(m.bias_type, bias_kind))) return kInvalid;
  fake::queue(stream, "fake_matmul", [=] {
    for (std::int64_t batch = 0; batch < D.count; ++batch)
      for (std::int64_t j = 0; j < columns; ++j)
        for (std::int64_t i = 0; i < rows; ++i) {
          double sum = 0;
          for (std::int64_t k = 0; k < depth; ++k) {
            const std::int64_t at_a = m.transpose_a != 0 ? k + i * A.leading : i + k * A.leading;
            const std::int64_t at_b = m.transpose_b != 0 ? j + k * B.leading : k + j * B.leading;
            sum += fake::load(a, ka, batch * A.stride + at_a) *
                   fake::load(b, kb, batch * B.stride + at_b);
          }
          sum *= scale;
          const std::int64_t at = batch * D.stride + i + j * D.leading;
          if (keep != 0) sum += keep * fake::load(out, kd, at);
          if (has_bias) sum += fake::load(m.bias, bias_kind, i);
          if ((m.epilogue & 2) != 0 && sum < 0) sum = 0;
#if defined(FAKE_WRONG)
          if (i + 1 == rows && j + 1 == columns) sum = -sum;
#endif
#if defined(FAKE_WRONG_WHOLE)
          if (i + 1 == rows && j + 1 == columns && sum == std::trunc(sum)) sum += 1;
#endif
          fake::store(out, kd, at, sum);
        }
  });
  return kOk;
}
