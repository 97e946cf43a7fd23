// The part of cuDNN's C interface that is used here (the backend interface of versions 8 and 9),
// declared after its public documentation, so that neither its headers nor the library are needed
// to build. Where a build has the headers, bench/cuda/headers.cpp compares.
#pragma once

#include <cstddef>
#include <cstdint>

namespace roundoff::bench::cudnn {

using Status = int;  // cudnnStatus_t
inline constexpr Status kSuccess = 0;

enum class Type : int { fp32 = 0, fp64 = 1, fp16 = 2, bf16 = 9 };  // cudnnDataType_t
inline constexpr int kCrossCorrelation = 1;                        // cudnnConvolutionMode_t
enum class Pointwise : int { add = 0, relu = 100 };                // cudnnPointwiseMode_t
enum class Heuristic : int { fallback = 2, a = 3 };                // cudnnBackendHeurMode_t

enum class Kind : int {  // cudnnBackendDescriptorType_t
  pointwise = 0,
  convolution = 1,
  engine_config = 3,
  heuristic = 4,
  plan = 5,
  forward = 10,
  grad_weight = 11,
  grad_input = 12,
  pointwise_operation = 13,
  graph = 15,
  variant_pack = 16,
  tensor = 17
};

enum class AttributeType : int {  // cudnnBackendAttributeType_t
  handle = 0,
  data_type = 1,
  boolean = 2,
  int64 = 3,
  fp32 = 4,
  pointer = 6,
  convolution_mode = 7,
  heuristic = 8,
  pointwise_mode = 14,
  descriptor = 15
};

enum class Attribute : int {  // cudnnBackendAttributeName_t
  pointwise_mode = 0,
  pointwise_precision = 1,
  convolution_type = 100,
  convolution_mode = 101,
  convolution_dilations = 102,
  convolution_strides = 103,
  convolution_post_paddings = 104,
  convolution_pre_paddings = 105,
  convolution_dimensions = 106,
  heuristic_mode = 200,
  heuristic_graph = 201,
  heuristic_results = 202,
  plan_handle = 400,
  plan_config = 401,
  plan_workspace = 402,
  forward_alpha = 700,
  forward_beta = 701,
  forward_convolution = 702,
  forward_w = 703,
  forward_x = 704,
  forward_y = 705,
  grad_input_alpha = 706,
  grad_input_beta = 707,
  grad_input_convolution = 708,
  grad_input_w = 709,
  grad_input_dx = 710,
  grad_input_dy = 711,
  grad_weight_alpha = 712,
  grad_weight_beta = 713,
  grad_weight_convolution = 714,
  grad_weight_dw = 715,
  grad_weight_x = 716,
  grad_weight_dy = 717,
  pointwise_operation = 750,
  pointwise_x = 751,
  pointwise_b = 752,
  pointwise_y = 753,
  graph_handle = 800,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_dimensions = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_virtual = 907,
  pack_ids = 1000,
  pack_pointers = 1001,
  pack_workspace = 1003
};

using Handle = void*;
using Descriptor = void*;
using CudaStream = void*;

struct Functions {
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  Status (*set_stream)(Handle, CudaStream);
  std::size_t (*version)();
  const char* (*error_string)(Status);
  Status (*descriptor_create)(Kind, Descriptor*);
  Status (*descriptor_destroy)(Descriptor);
  Status (*set)(Descriptor, Attribute, AttributeType, std::int64_t count, const void*);
  Status (*get)(Descriptor, Attribute, AttributeType, std::int64_t wanted, std::int64_t* count,
                void*);
  Status (*finalize)(Descriptor);
  Status (*execute)(Handle, Descriptor plan, Descriptor pack);
};

}  // namespace roundoff::bench::cudnn
