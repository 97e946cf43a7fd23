#include "bench/verify.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "verify/bound/linear.h"
#include "verify/compare.h"
#include "verify/reference.h"

namespace roundoff::bench {

namespace {

// The type that a result was rounded to: gradients arrive in leaves, which are wide.
DType rounded_to(const Problem& p, const std::string& name, DType held) {
  if (p.pass == BenchPass::forward) return held;
  return name.empty() ? held : p.out_dtype;
}

std::string element(const std::string& array, std::int64_t index, const Shape& shape, double actual,
                    double expected, double tolerance) {
  return concat(array, element_text(index, shape), " is ", actual, ", ", expected, " +- ",
                tolerance, " expected");
}

// One element of a product as the terms that it sums.
struct Terms {
  std::vector<double> left, right;
  void add(double a, double b) {
    left.push_back(a);
    right.push_back(b);
  }
};

// Elements of a tensor of the host, widened one by one.
class Values {
 public:
  explicit Values(const Tensor& t) : tensor_(t) {}
  double operator[](std::int64_t i) const { return tensor_.at(i); }

 private:
  const Tensor& tensor_;
};

Terms matmul_terms(const Problem& p, const Operands& o, const std::string& array,
                   std::int64_t index) {
  const cases::MatmulCase& z = *p.product;
  const bool linear = p.operation() == "linear";
  const Values a(o.inputs.find(linear ? "x" : "a")->second);
  const Values b(o.inputs.find(linear ? "w" : "b")->second);
  const auto at_a = [&](std::int64_t batch, std::int64_t m, std::int64_t k) {
    return a[batch * z.m * z.k + (z.trans_a ? k * z.m + m : m * z.k + k)];
  };
  const auto at_b = [&](std::int64_t batch, std::int64_t k, std::int64_t n) {
    return b[batch * z.k * z.n + (z.trans_b ? n * z.k + k : k * z.n + n)];
  };
  const auto at_dy = [&](std::int64_t batch, std::int64_t m, std::int64_t n) {
    return o.dy.at((batch * z.m + m) * z.n + n);
  };
  Terms t;
  if (array == "y") {
    const std::int64_t batch = index / (z.m * z.n), m = index / z.n % z.m, n = index % z.n;
    for (std::int64_t k = 0; k < z.k; ++k) t.add(at_a(batch, m, k), at_b(batch, k, n));
  } else if (array == "da" || array == "dx") {
    const std::int64_t batch = index / (z.m * z.k), rest = index % (z.m * z.k);
    const std::int64_t m = z.trans_a ? rest % z.m : rest / z.k;
    const std::int64_t k = z.trans_a ? rest / z.m : rest % z.k;
    for (std::int64_t n = 0; n < z.n; ++n) t.add(at_dy(batch, m, n), at_b(batch, k, n));
  } else {
    const std::int64_t batch = index / (z.k * z.n), rest = index % (z.k * z.n);
    const std::int64_t k = z.trans_b ? rest % z.k : rest / z.n;
    const std::int64_t n = z.trans_b ? rest / z.k : rest % z.n;
    for (std::int64_t m = 0; m < z.m; ++m) t.add(at_a(batch, m, k), at_dy(batch, m, n));
  }
  return t;
}

Terms conv_terms(const Problem& p, const Operands& o, const std::string& array,
                 std::int64_t index) {
  const cases::Conv2dCase& z = *p.conv;
  const Values x(o.inputs.find("x")->second), w(o.inputs.find("w")->second);
  const std::int64_t rows = z.p(), columns = z.q();
  const auto at_x = [&](std::int64_t n, std::int64_t h, std::int64_t v, std::int64_t c) {
    return x[((n * z.h + h) * z.w + v) * z.c + c];
  };
  const auto at_dy = [&](std::int64_t n, std::int64_t y, std::int64_t v, std::int64_t k) {
    return o.dy.at(((n * rows + y) * columns + v) * z.k + k);
  };
  const auto at_w = [&](std::int64_t k, std::int64_t r, std::int64_t s, std::int64_t c) {
    return w[((k * z.r + r) * z.s + s) * z.c + c];
  };
  const auto inside = [&](std::int64_t h, std::int64_t v) {
    return h >= 0 && h < z.h && v >= 0 && v < z.w;
  };
  Terms t;
  if (array == "y") {
    const std::int64_t k = index % z.k, q = index / z.k % columns;
    const std::int64_t row = index / z.k / columns % rows, n = index / z.k / columns / rows;
    for (std::int64_t r = 0; r < z.r; ++r)
      for (std::int64_t s = 0; s < z.s; ++s) {
        const std::int64_t h = row * z.stride[0] + r - z.padding[0];
        const std::int64_t v = q * z.stride[1] + s - z.padding[1];
        if (!inside(h, v)) continue;
        for (std::int64_t c = 0; c < z.c; ++c) t.add(at_x(n, h, v, c), at_w(k, r, s, c));
      }
  } else if (array == "dx") {
    const std::int64_t c = index % z.c, v = index / z.c % z.w, h = index / z.c / z.w % z.h;
    const std::int64_t n = index / z.c / z.w / z.h;
    for (std::int64_t r = 0; r < z.r; ++r)
      for (std::int64_t s = 0; s < z.s; ++s) {
        const std::int64_t y = h + z.padding[0] - r, u = v + z.padding[1] - s;
        if (y < 0 || u < 0 || y % z.stride[0] != 0 || u % z.stride[1] != 0 ||
            y / z.stride[0] >= rows || u / z.stride[1] >= columns)
          continue;
        for (std::int64_t k = 0; k < z.k; ++k)
          t.add(at_dy(n, y / z.stride[0], u / z.stride[1], k), at_w(k, r, s, c));
      }
  } else {
    const std::int64_t c = index % z.c, s = index / z.c % z.s, r = index / z.c / z.s % z.r;
    const std::int64_t k = index / z.c / z.s / z.r;
    for (std::int64_t n = 0; n < z.n; ++n)
      for (std::int64_t y = 0; y < rows; ++y)
        for (std::int64_t q = 0; q < columns; ++q) {
          const std::int64_t h = y * z.stride[0] + r - z.padding[0];
          const std::int64_t v = q * z.stride[1] + s - z.padding[1];
          if (inside(h, v)) t.add(at_x(n, h, v, c), at_dy(n, y, q, k));
        }
  }
  return t;
}

// Places that hold something else than new memory of the emulator, or than that in the narrower
// type that a gradient was copied from.
std::vector<std::int64_t> written(const Tensor& t, DType rounded) {
  const std::size_t size = size_of(t.dtype());
  std::vector<std::byte> untouched(size, std::byte{0xA5});
  if (rounded != t.dtype()) {
    // A 16-bit pattern widened: bf16's are the upper half of fp32's.
    Allocator host;
    std::uint16_t bits = 0xA5A5;
    const Tensor narrow = Tensor::empty(host, Shape{1}, rounded);
    std::memcpy(narrow.raw(), &bits, sizeof(bits));
    const double value = narrow.at(0);
    const Tensor wide = Tensor::from(host, {&value, 1}, Shape{1}, t.dtype());
    std::memcpy(untouched.data(), wide.raw(), size);
  }
  std::vector<std::int64_t> places;
  const auto* bytes = static_cast<const std::byte*>(t.raw());
  for (std::int64_t i = 0; i < t.numel(); ++i)
    if (std::memcmp(bytes + static_cast<std::size_t>(i) * size, untouched.data(), size) != 0)
      places.push_back(i);
  return places;
}

// What is wrong with one element of a product's result; empty where it is within its bound.
std::string judge_element(const Problem& p, const Operands& operands, const std::string& name,
                          const Tensor& t, std::int64_t at,
                          std::optional<Accumulator> device_core) {
  const Terms terms =
      p.conv ? conv_terms(p, operands, name, at) : matmul_terms(p, operands, name, at);
  const Format format = format_of(rounded_to(p, name, t.dtype()));
  const auto k = static_cast<std::int64_t>(terms.left.size());
  // A product of a row and a column, as any other; its filter positions are the runs of its sum.
  JudgedArithmetic judged{.operands = p.dtype, .device_core = device_core};
  Arithmetic arithmetic{.output = format};
  if (p.dtype == DType::fp64) arithmetic.accumulator = kFp64;
  if (on_device_core(judged)) {
    arithmetic.tensor_core = *device_core == Accumulator::a100 ? kA100 : kH100;
    arithmetic.tensor_core->operands = format_of(p.dtype);
    arithmetic.or_plain = true;
  }
  const double least = arithmetic.tensor_core ? format_of(p.dtype).min_normal() : 0;
  long double exact = 0, size = 0;
  for (std::size_t i = 0; i < terms.left.size(); ++i) {
    const long double a = terms.left[i], b = terms.right[i];
    exact += a * b;
    if (a != 0 && b != 0)
      size += std::max<long double>(std::abs(a), least) * std::max<long double>(std::abs(b), least);
  }
  std::int64_t runs = 1;
  if (p.conv) runs = name == "dw" ? p.conv->n * p.conv->p() : p.conv->r * p.conv->s;
  const double magnitude = static_cast<double>(size);
  const Bound bound = bound::products({static_cast<double>(exact)}, {&magnitude, 1}, k, arithmetic,
                                      0, 1, std::min(runs, std::max<std::int64_t>(k, 1)));
  if (judge(t.at(at), bound.reference[0], bound.tolerance[0], format)) return {};
  return element(name, at, t.shape(), t.at(at), bound.reference[0], bound.tolerance[0]);
}

}  // namespace

bool is_small(const Problem& p) {
  constexpr double kProducts = 1 << 25, kBytes = 1 << 21;
  return p.flops() <= kProducts && p.footprint() <= kBytes;
}

Verdict verify_all(const Problem& p, const Operands& operands, const NamedTensors& results,
                   std::optional<Accumulator> device_core) {
  const OpParameters parameters(op_signature(p.operation()), p.c.parameters);
  const bool backward = p.pass != BenchPass::forward;
  const bool loss = parameters.signature().loss;
  std::int64_t elements = 0;
  bool empty = !results.empty();
  for (const auto& [name, tensor] : results) {
    const Tensor t = on_host(tensor);
    empty = empty && t.numel() == 0;
    if (!is_floating(t.dtype())) continue;
    JudgedArithmetic judged{.operands = p.dtype, .output = rounded_to(p, name, t.dtype())};
    judged.device_core = device_core;
    judged.saved = loss ? (p.dtype == DType::fp64 ? DType::fp64 : DType::fp32) : p.dtype;
    const NamedBounds bounds = op_bounds(parameters, operands.inputs, operands.dy, judged,
                                         backward ? Pass::backward : Pass::forward);
    const auto bound = bounds.find(name);
    if (bound == bounds.end()) continue;
    const Comparison c = compare(t.const_view(), bound->second);
    if (!c.holds)
      return {false, concat(element(name, c.worst, t.shape(), c.worst_actual, c.worst_reference,
                                    c.worst_tolerance),
                            "; ", c.outside, " of ", t.numel(), " elements are outside")};
    elements += t.numel();
  }
  if (empty) return {true, "the result has no elements"};
  if (elements == 0) return {false, "no result was compared"};
  return {true, concat(elements, " of ", elements, " elements within bounds")};
}

Verdict verify_written(const Problem& p, const Operands& operands, const NamedTensors& results) {
  constexpr std::size_t kElements = 96;
  std::size_t compared = 0;
  for (const auto& [name, tensor] : results) {
    const Tensor t = on_host(tensor);
    const std::vector<std::int64_t> places = written(t, rounded_to(p, name, t.dtype()));
    if (places.empty()) return {false, concat(name, ": nothing was written")};
    // Not the same row or column of every tile.
    const std::size_t step = std::max<std::size_t>(1, places.size() / kElements);
    for (std::size_t i = 0; i < places.size(); i += step + (step > 1 ? i / step % 2 : 0)) {
      if (std::string wrong = judge_element(p, operands, name, t, places[i], {}); !wrong.empty())
        return {false, std::move(wrong)};
      ++compared;
    }
  }
  return {true, concat(compared, " of the elements written within bounds")};
}

Verdict verify_sampled(const Problem& p, const Operands& operands, const NamedTensors& results,
                       std::optional<Accumulator> device_core) {
  constexpr std::int64_t kElements = 96;
  std::int64_t compared = 0, all = 0;
  for (const auto& [name, tensor] : results) {
    const Tensor t = on_host(tensor);
    const std::int64_t n = t.numel();
    all += n;
    // Odd steps meet every row and column of a tile sooner or later.
    const std::int64_t step = std::max<std::int64_t>(1, n / kElements) | 1;
    for (std::int64_t at = 0; at < n; at = at + step < n || at == n - 1 ? at + step : n - 1) {
      if (std::string wrong = judge_element(p, operands, name, t, at, device_core); !wrong.empty())
        return {false, std::move(wrong)};
      ++compared;
    }
  }
  if (compared == 0) return {false, "no result was compared"};
  return {true, concat(compared, " of ", all, " elements within bounds")};
}

}  // namespace roundoff::bench
