#include "verify/case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/ladder.h"

namespace roundoff {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// A whole number of [-limit, limit] other than 0.
double nonzero_integer(std::int64_t limit, RandomStream& random) {
  const auto size = static_cast<double>(1 + random.below(static_cast<std::uint64_t>(limit)));
  return random.below(2) == 0 ? size : -size;
}

// One value of a fill, before the domain and the format have their say.
double draw(Fill fill, const Format& format, RandomStream& random) {
  switch (fill) {
    case Fill::uniform:
      return random.uniform(-1, 1);
    case Fill::positive:
      return random.uniform(0.5, 1.5);
    case Fill::wide: {
      const double size = std::exp2(random.uniform(-12, 12));
      return random.below(2) == 0 ? size : -size;
    }
    case Fill::subnormal: {
      const double size = random.uniform(-1, 1) * 2 * format.min_normal();
      return random.below(8) == 0 ? std::copysign(0.0, size) : size;
    }
    case Fill::huge:
      return random.uniform(-0.25, 0.25) * format.max_finite();
    case Fill::nan:
      return random.below(16) == 0 ? std::nan("") : random.normal();
    case Fill::infinite: {
      const std::uint64_t which = random.below(24);
      return which == 0 ? kInfinity : which == 1 ? -kInfinity : random.normal();
    }
    case Fill::masked:
      return random.below(2) == 0 ? -kInfinity : random.normal();
    default:
      return random.normal();
  }
}

// The domain's version of a value.
double placed(double value, Domain domain, const Format& format) {
  if (!std::isfinite(value)) return value;
  if (domain == Domain::positive) {
    const double size = std::abs(value);
    return std::min(std::max(size, 0x1p-6), format.max_finite() / 4);
  }
  if (domain == Domain::share) {
    const double size = std::abs(value);
    return size - std::floor(size);
  }
  return value;
}

}  // namespace

double Case::min_bytes(DType dtype) const {
  double bytes = static_cast<double>(y.numel()) * static_cast<double>(size_of(dtype));
  for (const CaseInput& i : inputs) {
    const bool whole = i.domain == Domain::label || i.domain == Domain::index;
    bytes += static_cast<double>(i.shape.numel()) * static_cast<double>(whole ? 8 : size_of(dtype));
  }
  return bytes;
}

std::string Case::text() const {
  std::string text;
  for (const CaseInput& i : inputs) text += concat(text.empty() ? "" : ", ", i.name, " ", i.shape);
  for (const auto& [key, value] : parameters) text += concat(", ", key, " ", value);
  return text;
}

std::string_view name(Fill fill) {
  constexpr std::string_view kNames[] = {"integers", "normal",     "uniform",  "positive",
                                         "wide",     "cancelling", "constant", "subnormal",
                                         "huge",     "nan",        "infinite", "masked"};
  return kNames[static_cast<std::size_t>(fill)];
}

bool takes(const Case& c, Fill fill, DType dtype, DType accumulator) {
  const std::string_view op = c.operation;
  if (fill == Fill::integers)
    return c.terms > 0 && exact_integer_limit(c.terms, format_of(dtype), format_of(accumulator),
                                              format_of(accumulator)) > 0;
  // In fp64 the oracle itself is at the end of its range.
  if (dtype == DType::fp64 && (fill == Fill::subnormal || fill == Fill::huge)) return false;
  // The mean of infinities, and what is formed from it.
  if (fill == Fill::infinite && is_one_of(op, {"batch_norm", "layer_norm"})) return false;
  if (fill == Fill::masked)
    return is_one_of(op, {"softmax", "log_softmax", "cross_entropy", "max"});
  // Shares have no such values.
  if (is_one_of(op, {"mse", "bce_with_logits"})) return fill <= Fill::cancelling;
  return true;
}

std::vector<double> fill_values(const CaseInput& input, Fill fill, DType dtype, std::int64_t limit,
                                RandomStream& random) {
  const auto n = static_cast<std::size_t>(input.shape.numel());
  std::vector<double> values(n);
  if (input.domain == Domain::index || input.domain == Domain::label) {
    for (double& v : values) {
      const bool ignored = input.domain == Domain::label && random.below(8) == 0;
      v = ignored ? -100
                  : static_cast<double>(random.below(static_cast<std::uint64_t>(input.limit)));
    }
    return values;
  }
  const Format format = format_of(dtype);
  const double same = placed(random.normal(), input.domain, format);
  const std::int64_t row = input.shape.rank() == 0 ? 1 : input.shape[-1];
  double large = 0;
  bool masked_row = false;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t column = row == 0 ? 0 : static_cast<std::int64_t>(i) % row;
    if (column == 0 && fill == Fill::masked) masked_row = random.below(8) == 0;
    double v = 0;
    switch (fill) {
      case Fill::integers:
        v = nonzero_integer(limit, random);
        break;
      case Fill::constant:
        v = same;
        break;
      case Fill::cancelling:
        // Each large number is taken back by the next one.
        if (column % 3 == 0) large = 256 * random.normal();
        v = column % 3 == 0 ? large : column % 3 == 1 ? -large : 0x1p-4 * random.normal();
        break;
      case Fill::masked:
        v = masked_row ? -kInfinity : draw(fill, format, random);
        break;
      default:
        v = draw(fill, format, random);
    }
    if (fill == Fill::integers && input.domain == Domain::share)
      v = random.below(2) == 0 ? 0 : 1;
    else if (fill == Fill::integers && input.domain == Domain::positive)
      v = std::abs(v);
    else
      v = placed(v, input.domain, format);
    values[i] = std::isnan(v) ? v : round_to_format(v, format).value;
  }
  return values;
}

std::int64_t CaseDraw::extent(std::int64_t largest) {
  constexpr std::int64_t kPrimes[] = {5, 7, 11, 13, 17, 23, 31, 61, 127, 251, 509, 1021, 4093};
  std::int64_t e = 1;
  switch (integer(0, 4)) {
    case 0:
      e = integer(1, 4);
      break;
    case 1:
      e = among(kPrimes);
      break;
    case 2:
      e = std::int64_t{1} << integer(2, 12);
      break;
    case 3:
      e = (std::int64_t{1} << integer(2, 12)) + (flip() ? 1 : -1);
      break;
    default:
      e = integer(1, largest);
  }
  // Too large: anything that is not.
  return e <= largest ? e : integer(1, largest);
}

}  // namespace roundoff
