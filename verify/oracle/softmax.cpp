#include "verify/oracle/softmax.h"

#include <cmath>
#include <limits>

namespace roundoff::oracle {

namespace {

// Calls row(index) for every row, where index(i) is the flat index of its element i.
template <class F>
void for_each_row(const SoftmaxParams& p, F row) {
  for (std::int64_t o = 0; o < p.outer; ++o)
    for (std::int64_t k = 0; k < p.inner; ++k)
      row([&, o, k](std::int64_t i) { return at((o * p.n + i) * p.inner + k); });
}

// log of the softmax of one row: x_i - max - log(sum of exp(x_j - max)).
template <class Index>
Sums log_probabilities(const SoftmaxParams& p, In x, Index index) {
  long double largest = -std::numeric_limits<long double>::infinity();
  for (std::int64_t i = 0; i < p.n; ++i)
    if (!(x[index(i)] <= largest)) largest = x[index(i)];
  long double sum = 0;
  for (std::int64_t i = 0; i < p.n; ++i) sum += std::exp(x[index(i)] - largest);
  Sums log_p(at(p.n));
  for (std::int64_t i = 0; i < p.n; ++i) log_p[at(i)] = x[index(i)] - largest - std::log(sum);
  return log_p;
}

}  // namespace

Values log_softmax(const SoftmaxParams& p, In x) {
  check_size("log_softmax oracle", "x", x, p.size());
  Values y(x.size());
  for_each_row(p, [&](auto index) {
    const Sums log_p = log_probabilities(p, x, index);
    for (std::int64_t i = 0; i < p.n; ++i) y[index(i)] = static_cast<double>(log_p[at(i)]);
  });
  return y;
}

Values softmax(const SoftmaxParams& p, In x) {
  check_size("softmax oracle", "x", x, p.size());
  Values y(x.size());
  for_each_row(p, [&](auto index) {
    const Sums log_p = log_probabilities(p, x, index);
    for (std::int64_t i = 0; i < p.n; ++i)
      y[index(i)] = static_cast<double>(std::exp(log_p[at(i)]));
  });
  return y;
}

Values softmax_backward(const SoftmaxParams& p, In x, In dy) {
  check_size("softmax oracle", "x", x, p.size());
  check_size("softmax oracle", "dy", dy, p.size());
  Values dx(x.size());
  for_each_row(p, [&](auto index) {
    const Sums log_p = log_probabilities(p, x, index);
    long double dot = 0;
    for (std::int64_t i = 0; i < p.n; ++i) dot += dy[index(i)] * std::exp(log_p[at(i)]);
    for (std::int64_t i = 0; i < p.n; ++i)
      dx[index(i)] = static_cast<double>(std::exp(log_p[at(i)]) * (dy[index(i)] - dot));
  });
  return dx;
}

Values log_softmax_backward(const SoftmaxParams& p, In x, In dy) {
  check_size("log_softmax oracle", "x", x, p.size());
  check_size("log_softmax oracle", "dy", dy, p.size());
  Values dx(x.size());
  for_each_row(p, [&](auto index) {
    const Sums log_p = log_probabilities(p, x, index);
    long double sum = 0;
    for (std::int64_t i = 0; i < p.n; ++i) sum += dy[index(i)];
    for (std::int64_t i = 0; i < p.n; ++i)
      dx[index(i)] = static_cast<double>(dy[index(i)] - std::exp(log_p[at(i)]) * sum);
  });
  return dx;
}

}  // namespace roundoff::oracle
