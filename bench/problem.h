// What is benchmarked: an operation, one of its passes, shapes and types, as the command line names
// them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/case.h"
#include "verify/cases/product.h"

namespace roundoff::bench {

enum class BenchPass : unsigned char {
  forward,
  dgrad,     // the gradient of the first operand (x, a)
  wgrad,     // of the second (w, b)
  backward,  // of all operands
};
std::string_view name(BenchPass pass);
// Throws UsageError for another text.
BenchPass parse_pass(const std::string& text);

struct Problem {
  BenchPass pass = BenchPass::forward;
  DType dtype = DType::bf16;
  DType out_dtype = DType::bf16;  // of y, or of the gradients that the pass writes
  Case c;                         // operation, parameters, shapes
  // As they were given; the shape of a convolution for conv2d.
  std::vector<std::int64_t> sizes;
  // Set for matmul and linear (which holds B as [n, k]), and for conv2d: what the case says.
  std::optional<cases::MatmulCase> product;
  std::optional<cases::Conv2dCase> conv;

  const std::string& operation() const { return c.operation; }
  // Whether the ladder of kernels/gemm computes it.
  bool is_product() const { return product.has_value() || conv.has_value(); }
  // "4096x4096x4096 nn", "32,56,56,64,64,3,3,1,1", "4096x32000": as it was asked for.
  std::string text() const;
  // The arithmetic of the pass; 0 where it is not counted (gradients of what is no product).
  double flops() const;
  // The least traffic with device memory: what the pass needs read once, its results written once.
  double min_bytes() const;
  // Bytes of all its arrays together.
  double footprint() const;
};

// The same problem with other sizes.
Problem resized(const Problem& problem, const std::vector<std::int64_t>& sizes);

// The same problem, so small that all of it can be run and compared: fewer rows, or samples, or
// channels.
Problem reduced(const Problem& problem);

// What `roundoff bench` was asked for.
struct ProblemRequest {
  std::vector<std::string> operations;     // names of operations(), or "gemm"
  std::vector<std::string> sizes;          // "4096x4096x4096"; empty: each operation's own
  std::vector<std::string> convolutions;   // "N,H,W,C,K,R,S,stride,pad"
  std::vector<std::string> layouts{"nn"};  // nn, nt, tn, tt; of matmul
  std::vector<DType> dtypes{DType::bf16};
  std::optional<DType> out_dtype;  // absent: the dtype, fp32 for losses and gradients of weights
  BenchPass pass = BenchPass::forward;
};
// Throws UsageError, one line, for what cannot be read or does not fit the operation.
std::vector<Problem> make_problems(const ProblemRequest& request);

// What can be benchmarked, and how its --size reads.
struct OperationInfo {
  std::string_view name;
  std::string_view size;   // "MxNxK"; of a convolution what --conv takes
  std::string_view usual;  // where none is given
};
std::span<const OperationInfo> operations();

}  // namespace roundoff::bench
