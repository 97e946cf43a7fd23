// One call of an operation to check or to measure: shapes, parameters, and what it costs. The same
// case feeds the equivalence check (verify/check.h), the gradient check and the benchmarks.
// verify/cases/ has a header a family; verify/cases.h all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/random.h"
#include "kernels/base/format.h"
#include "kernels/base/view.h"

namespace roundoff {

// What an input's values may be.
enum class Domain : unsigned char {
  real,
  positive,  // above 0: arguments of log, divisors, variances
  share,     // in [0, 1]: probabilities and targets
  label,     // whole numbers in [0, limit), or now and then -100, which cross_entropy ignores
  index,     // whole numbers in [0, limit)
};

struct CaseInput {
  std::string name;
  Shape shape;
  Domain domain = Domain::real;
  std::int64_t limit = 0;
};

using CaseParameters = std::map<std::string, std::string>;

struct Case {
  std::string operation;  // of ops/run.h
  CaseParameters parameters;
  std::vector<CaseInput> inputs;
  Shape y;
  // Where operands are whole numbers of magnitude up to m, every value that is formed, forward and
  // backward, is a whole number (or one divided by a power of two that `terms` covers) of magnitude
  // up to terms m^2, so that it is exact in every order. 0: rounding happens anyway.
  std::int64_t terms = 0;
  // Additions, multiplications and function calls of the forward pass.
  double flops = 0;

  // The least traffic of the forward pass in bytes: each input read once, y written once.
  double min_bytes(DType dtype) const;
  // "x [3, 5], axis 1".
  std::string text() const;
};

// How inputs are filled.
enum class Fill : unsigned char {
  integers,    // whole numbers other than 0, so small that every result is exact
  normal,      // N(0, 1)
  uniform,     // (-1, 1), or (0, 1) where the domain has only that
  positive,    // (0.5, 1.5): nothing cancels, and truncation shows
  wide,        // random signs, magnitudes over 2^-12 .. 2^12
  cancelling,  // pairs of opposite large numbers along the last axis, and small ones
  constant,    // all values the same
  subnormal,   // below the smallest normal number of the dtype, zeros and both signs of them
  huge,        // around a quarter of the largest finite number
  nan,         // normal, with a NaN here and there
  infinite,    // normal, with infinities of both signs here and there
  masked,      // normal, with -inf in half of all places, and whole rows of it
};
inline constexpr Fill kFills[] = {Fill::integers, Fill::normal,     Fill::uniform,  Fill::positive,
                                  Fill::wide,     Fill::cancelling, Fill::constant, Fill::subnormal,
                                  Fill::huge,     Fill::nan,        Fill::infinite, Fill::masked};
std::string_view name(Fill fill);
// Operands that do not depend on their order, and of sizes that do not differ much: those that
// statements about random rounding errors are made for.
constexpr bool is_random(Fill fill) { return fill <= Fill::positive && fill != Fill::integers; }
constexpr bool is_finite(Fill fill) { return fill < Fill::nan; }

// Whether a case takes a fill: integers only where results are exact, -inf only for softmax and its
// kin, nothing infinite where a whole result would be NaN.
bool takes(const Case& c, Fill fill, DType dtype, DType accumulator = DType::fp32);

// Values of an input, rounded to `dtype` (RNE), in row-major order. `limit` is the largest
// magnitude of Fill::integers.
std::vector<double> fill_values(const CaseInput& input, Fill fill, DType dtype, std::int64_t limit,
                                RandomStream& random);

// Random choices of cases.
class CaseDraw {
 public:
  explicit CaseDraw(std::uint64_t seed, std::uint64_t step = 0)
      : random_(seed, RandomUse::checks, step) {}
  // From first to last, both included.
  std::int64_t integer(std::int64_t first, std::int64_t last) {
    return first +
           static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(last - first + 1)));
  }
  bool flip() { return random_.below(2) == 1; }
  template <class T, std::size_t N>
  const T& among(const T (&list)[N]) {
    return list[random_.below(N)];
  }
  // An extent up to `largest`: small, prime, a power of two, or next to one.
  std::int64_t extent(std::int64_t largest);
  RandomStream& random() { return random_; }

 private:
  RandomStream random_;
};

}  // namespace roundoff
