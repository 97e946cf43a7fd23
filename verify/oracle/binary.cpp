#include "verify/oracle/binary.h"

#include <algorithm>

namespace roundoff::oracle {

Shape broadcast(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> extents(static_cast<std::size_t>(rank));
  for (int i = 1; i <= rank; ++i) {  // from the right
    const std::int64_t ea = i <= a.rank() ? a[-i] : 1;
    const std::int64_t eb = i <= b.rank() ? b[-i] : 1;
    ROUNDOFF_CHECK(ea == eb || ea == 1 || eb == 1, "broadcast oracle", a, " against ", b);
    extents[static_cast<std::size_t>(rank - i)] = ea == 1 ? eb : ea;
  }
  return Shape(extents);
}

std::vector<std::size_t> broadcast_source(const Shape& operand, const Shape& result) {
  std::vector<std::size_t> source(at(result.numel()));
  for (std::size_t flat = 0; flat < source.size(); ++flat) {
    auto rest = static_cast<std::int64_t>(flat);
    std::int64_t stride = 1;
    std::int64_t index = 0;
    for (int i = 1; i <= result.rank(); ++i) {  // from the right
      const std::int64_t coordinate = rest % result[-i];
      rest /= result[-i];
      if (i > operand.rank()) continue;
      if (operand[-i] != 1) index += coordinate * stride;
      stride *= operand[-i];
    }
    source[flat] = at(index);
  }
  return source;
}

Values binary(Binary f, In a, const Shape& a_shape, In b, const Shape& b_shape) {
  check_size("binary oracle", "a", a, a_shape.numel());
  check_size("binary oracle", "b", b, b_shape.numel());
  const Shape shape = broadcast(a_shape, b_shape);
  const auto ia = broadcast_source(a_shape, shape);
  const auto ib = broadcast_source(b_shape, shape);
  Values y(ia.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double u = a[ia[i]];
    const double v = b[ib[i]];
    switch (f) {
      case Binary::add:
        y[i] = u + v;
        break;
      case Binary::sub:
        y[i] = u - v;
        break;
      case Binary::mul:
        y[i] = u * v;
        break;
      case Binary::div:
        y[i] = u / v;
        break;
    }
  }
  return y;
}

BinaryGradients binary_backward(Binary f, In a, const Shape& a_shape, In b, const Shape& b_shape,
                                In dy) {
  check_size("binary oracle", "a", a, a_shape.numel());
  check_size("binary oracle", "b", b, b_shape.numel());
  const Shape shape = broadcast(a_shape, b_shape);
  check_size("binary oracle", "dy", dy, shape.numel());
  const auto ia = broadcast_source(a_shape, shape);
  const auto ib = broadcast_source(b_shape, shape);
  Sums da = zeros(a_shape.numel());
  Sums db = zeros(b_shape.numel());
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const long double u = a[ia[i]];
    const long double v = b[ib[i]];
    const long double g = dy[i];
    switch (f) {
      case Binary::add:
        da[ia[i]] += g;
        db[ib[i]] += g;
        break;
      case Binary::sub:
        da[ia[i]] += g;
        db[ib[i]] -= g;
        break;
      case Binary::mul:
        da[ia[i]] += g * v;
        db[ib[i]] += g * u;
        break;
      case Binary::div:
        da[ia[i]] += g / v;
        db[ib[i]] -= g * u / (v * v);
        break;
    }
  }
  return {rounded(da), rounded(db)};
}

}  // namespace roundoff::oracle
