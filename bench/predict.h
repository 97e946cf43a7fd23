// What is predicted of a row: the floor of its problem on each GPU of bench/evidence's table, and
// the cycle model's time of its kernel as a share of that floor.
#pragma once

#include <optional>

#include "bench/evidence/cycle_model.h"
#include "bench/evidence/device_spec.h"
#include "bench/problem.h"
#include "bench/result.h"
#include "bench/roofline.h"
#include "kernels/gemm/kernel.h"

namespace roundoff::bench {

// The arithmetic whose rate bounds a problem: the operands'; of what is no product fp32, or fp64.
evidence::Arithmetic arithmetic_of(const Problem& problem);

// The product that a pass of a product or a convolution is. Throws for another problem.
evidence::ProductShape product_shape(const Problem& problem);

// The kernel's predicted time on the device; empty where the device lacks what the kernel needs, or
// the model knows nothing of it. What is no product moves its least traffic, or what was counted.
std::optional<evidence::Prediction> predict_row(const evidence::DeviceSpec& device,
                                                const Problem& problem, ProductKernel kernel,
                                                const Row& row);

// Adds "A100_floor_us", "A100_model_us" and "A100_floor/model", and so on, to a row.
void add_predictions(Row& row, const Problem& problem, ProductKernel kernel);

// The roofs of the architecture's GPUs, and a point for each row that has a rate: measured, where
// it was, or as the model predicts it for the first of these GPUs.
Roofline roofline_of(const Report& report, int capability);

}  // namespace roundoff::bench
