// What bench/cuda declares of the vendor's interfaces is what their headers say: compared where a
// build with CUDA finds them. Nothing of this file runs.
#include "bench/cuda/cublas_lt_api.h"
#include "bench/cuda/cudnn_api.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace roundoff::bench::cublas {
namespace {

#define SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
SAME(kSuccess, CUBLAS_STATUS_SUCCESS);
SAME(Type::fp32, CUDA_R_32F);
SAME(Type::fp64, CUDA_R_64F);
SAME(Type::fp16, CUDA_R_16F);
SAME(Type::bf16, CUDA_R_16BF);
SAME(Compute::fp32, CUBLAS_COMPUTE_32F);
SAME(Compute::fp64, CUBLAS_COMPUTE_64F);
SAME(Compute::fast_tf32, CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(Transpose::no, CUBLAS_OP_N);
SAME(Transpose::yes, CUBLAS_OP_T);
SAME(Epilogue::none, CUBLASLT_EPILOGUE_DEFAULT);
SAME(Epilogue::relu, CUBLASLT_EPILOGUE_RELU);
SAME(Epilogue::bias, CUBLASLT_EPILOGUE_BIAS);
SAME(Epilogue::relu_bias, CUBLASLT_EPILOGUE_RELU_BIAS);
SAME(MatmulAttribute::transpose_a, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(MatmulAttribute::transpose_b, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(MatmulAttribute::epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(MatmulAttribute::bias_pointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(MatmulAttribute::bias_type, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(LayoutAttribute::batch_count, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(LayoutAttribute::batch_stride, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(PreferenceAttribute::workspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(PreferenceAttribute::reduction_schemes, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(PreferenceAttribute::alignment_a, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(PreferenceAttribute::alignment_b, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(PreferenceAttribute::alignment_c, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(PreferenceAttribute::alignment_d, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(kAddInComputeType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
SAME(sizeof(Algorithm), sizeof(cublasLtMatmulAlgo_t));
SAME(sizeof(Heuristic), sizeof(cublasLtMatmulHeuristicResult_t));
SAME(offsetof(Heuristic, workspace), offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
SAME(offsetof(Heuristic, state), offsetof(cublasLtMatmulHeuristicResult_t, state));

// The functions, as calls that compile.
[[maybe_unused]] void calls(cublasLtHandle_t h, cublasLtMatmulDesc_t m, cublasLtMatrixLayout_t l,
                            cublasLtMatmulPreference_t p, cublasLtMatmulHeuristicResult_t* found,
                            void* x) {
  const void* in = x;
  int n = 0;
  (void)cublasLtMatmulDescCreate(&m, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  (void)cublasLtMatmulDescSetAttribute(m, CUBLASLT_MATMUL_DESC_EPILOGUE, in, sizeof(int));
  (void)cublasLtMatrixLayoutCreate(&l, CUDA_R_32F, std::uint64_t{1}, std::uint64_t{1},
                                   std::int64_t{1});
  (void)cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, in,
                                             sizeof(std::uint64_t));
  (void)cublasLtMatmulAlgoGetHeuristic(h, m, l, l, l, l, p, 8, found, &n);
  (void)cublasLtMatmul(h, m, in, in, l, in, l, in, in, l, x, l, &found->algo, x, std::size_t{0},
                       nullptr);
}

}  // namespace
}  // namespace roundoff::bench::cublas
#undef SAME
#endif

#if __has_include(<cudnn_backend.h>) || __has_include(<cudnn_graph.h>)
#include <cudnn.h>

namespace roundoff::bench::cudnn {
namespace {

#define SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))
SAME(kSuccess, CUDNN_STATUS_SUCCESS);
SAME(Type::fp32, CUDNN_DATA_FLOAT);
SAME(Type::fp64, CUDNN_DATA_DOUBLE);
SAME(Type::fp16, CUDNN_DATA_HALF);
SAME(Type::bf16, CUDNN_DATA_BFLOAT16);
SAME(kCrossCorrelation, CUDNN_CROSS_CORRELATION);
SAME(Pointwise::add, CUDNN_POINTWISE_ADD);
SAME(Pointwise::relu, CUDNN_POINTWISE_RELU_FWD);
SAME(Heuristic::fallback, CUDNN_HEUR_MODE_FALLBACK);
SAME(Heuristic::a, CUDNN_HEUR_MODE_A);
SAME(Kind::pointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(Kind::convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
SAME(Kind::engine_config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(Kind::heuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(Kind::plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(Kind::forward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
SAME(Kind::grad_weight, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
SAME(Kind::grad_input, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
SAME(Kind::pointwise_operation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(Kind::graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(Kind::variant_pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(Kind::tensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(AttributeType::handle, CUDNN_TYPE_HANDLE);
SAME(AttributeType::data_type, CUDNN_TYPE_DATA_TYPE);
SAME(AttributeType::boolean, CUDNN_TYPE_BOOLEAN);
SAME(AttributeType::int64, CUDNN_TYPE_INT64);
SAME(AttributeType::fp32, CUDNN_TYPE_FLOAT);
SAME(AttributeType::pointer, CUDNN_TYPE_VOID_PTR);
SAME(AttributeType::convolution_mode, CUDNN_TYPE_CONVOLUTION_MODE);
SAME(AttributeType::heuristic, CUDNN_TYPE_HEUR_MODE);
SAME(AttributeType::pointwise_mode, CUDNN_TYPE_POINTWISE_MODE);
SAME(AttributeType::descriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(Attribute::pointwise_mode, CUDNN_ATTR_POINTWISE_MODE);
SAME(Attribute::pointwise_precision, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(Attribute::convolution_type, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
SAME(Attribute::convolution_mode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
SAME(Attribute::convolution_dilations, CUDNN_ATTR_CONVOLUTION_DILATIONS);
SAME(Attribute::convolution_strides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
SAME(Attribute::convolution_post_paddings, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
SAME(Attribute::convolution_pre_paddings, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
SAME(Attribute::convolution_dimensions, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
SAME(Attribute::heuristic_mode, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(Attribute::heuristic_graph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(Attribute::heuristic_results, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(Attribute::plan_handle, 400);  // deprecated by name in version 9
SAME(Attribute::plan_config, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(Attribute::plan_workspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(Attribute::forward_alpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
SAME(Attribute::forward_beta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
SAME(Attribute::forward_convolution, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
SAME(Attribute::forward_w, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
SAME(Attribute::forward_x, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
SAME(Attribute::forward_y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
SAME(Attribute::grad_input_alpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
SAME(Attribute::grad_input_beta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
SAME(Attribute::grad_input_convolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
SAME(Attribute::grad_input_w, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
SAME(Attribute::grad_input_dx, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
SAME(Attribute::grad_input_dy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
SAME(Attribute::grad_weight_alpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
SAME(Attribute::grad_weight_beta, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
SAME(Attribute::grad_weight_convolution, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
SAME(Attribute::grad_weight_dw, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
SAME(Attribute::grad_weight_x, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
SAME(Attribute::grad_weight_dy, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
SAME(Attribute::pointwise_operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
SAME(Attribute::pointwise_x, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
SAME(Attribute::pointwise_b, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
SAME(Attribute::pointwise_y, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
SAME(Attribute::graph_handle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(Attribute::graph_operations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(Attribute::tensor_alignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(Attribute::tensor_type, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(Attribute::tensor_dimensions, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(Attribute::tensor_strides, CUDNN_ATTR_TENSOR_STRIDES);
SAME(Attribute::tensor_id, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(Attribute::tensor_virtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(Attribute::pack_ids, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(Attribute::pack_pointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(Attribute::pack_workspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);

[[maybe_unused]] void calls(cudnnHandle_t h, cudnnBackendDescriptor_t d, void* x) {
  std::int64_t n = 0;
  (void)cudnnSetStream(h, nullptr);
  (void)cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &d);
  (void)cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, n, x);
  (void)cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, n, &n, x);
  (void)cudnnBackendFinalize(d);
  (void)cudnnBackendExecute(h, d, d);
}

}  // namespace
}  // namespace roundoff::bench::cudnn
#undef SAME
#endif
