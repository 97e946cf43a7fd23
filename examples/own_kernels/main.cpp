// What is checked, and against what: the kernels' launchers, and the operations that they should
// be.
#include "my_gemm.h"
#include "my_softmax.h"
#include "verify/cases/product.h"
#include "verify/check_main.h"

using namespace roundoff;

int main(int argc, char** argv) {
  OwnKernel softmax;
  softmax.name = "my_softmax";
  softmax.oracle = "softmax";
  softmax.forward = launcher([](auto target, const KernelCall& call) {
    my_softmax(target, call.in("x"), call.out("y").view);
  });
  softmax.backward = launcher([](auto target, const KernelCall& call) {
    my_softmax_backward(target, call.in("y"), call.in("dy"), call.out("dx").view);
  });
  // The oracle's own cases, those along the last axis.
  softmax.takes = [](const Case& c) {
    const std::string axis = c.parameters.at("axis");
    return axis == "-1" || axis == std::to_string(c.y.rank() - 1);
  };

  OwnKernel gemm;
  gemm.name = "my_gemm";
  gemm.oracle = "matmul";
  gemm.forward = launcher([](auto target, const KernelCall& call) {
    my_gemm(target, call.in("a"), call.in("b"), call.out("y").view);
  });
  gemm.gradients = {};
  gemm.dtypes = {DType::bf16};
  gemm.accumulator = Accumulator::h100;  // what wgmma adds in, and what the bound is computed for
  constexpr std::int64_t kSizes[][3] = {{1, 1, 8}, {64, 64, 64}, {65, 63, 72}, {130, 200, 264}};
  for (const auto& size : kSizes)
    gemm.cases.push_back(
        cases::matmul({.m = size[0], .n = size[1], .k = size[2], .trans_b = true}));

  return check_main(argc, argv, {softmax, gemm});
}
