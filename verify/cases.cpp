#include "verify/cases.h"

#include <algorithm>

#include "verify/cases/elementwise.h"
#include "verify/cases/loss.h"
#include "verify/cases/move.h"
#include "verify/cases/norm.h"
#include "verify/cases/pool.h"
#include "verify/cases/product.h"
#include "verify/cases/reduce.h"
#include "verify/cases/softmax.h"

namespace roundoff {

namespace {

template <std::size_t N>
bool among(std::string_view word, const std::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

}  // namespace

std::vector<Case> list_cases(CaseSet set, std::string_view operation) {
  const bool full = set == CaseSet::full;
  std::vector<Case> all;
  for (const auto family : {cases::products, cases::softmaxes, cases::losses, cases::elementwise,
                            cases::reductions, cases::pools, cases::norms, cases::moves})
    for (Case& c : family(full))
      if (operation.empty() || c.operation == operation) all.push_back(std::move(c));
  return all;
}

Case draw_case(std::string_view op, CaseDraw& d) {
  if (op == "matmul") return cases::draw_matmul(d);
  if (op == "linear") return cases::draw_linear(d);
  if (op == "conv2d") return cases::draw_conv2d(d);
  if (op == "cross_entropy") return cases::draw_cross_entropy(d);
  if (op == "dropout") return cases::draw_dropout(d);
  if (op == "embedding") return cases::draw_embedding(d);
  if (op == "reshape" || op == "flatten") {
    for (;;)
      if (Case c = cases::draw_reshape(d); c.operation == op) return c;
  }
  if (op == "transpose") return cases::draw_transpose(d);
  if (op == "unscale_clip") return cases::draw_unscale_clip(d);
  if (op == "layer_norm") return cases::draw_layer_norm(d);
  if (op == "batch_norm") return cases::draw_batch_norm(d);
  if (among(op, cases::kSoftmax)) return cases::draw_softmax(op, d);
  if (among(op, cases::kPointwiseLosses)) return cases::draw_pointwise_loss(op, d);
  if (among(op, cases::kUnary)) return cases::draw_unary(op, d);
  if (among(op, cases::kBinary)) return cases::draw_binary(op, d);
  if (among(op, cases::kReductions)) return cases::draw_reduce(op, d);
  if (among(op, cases::kPools)) return cases::draw_pool2d(op, d);
  fail("check", "no case can be drawn for '", op, "'");
}

}  // namespace roundoff
