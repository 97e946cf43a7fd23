// The part of cuBLASLt's C interface that is used here, declared after its public documentation
// (cuBLAS 12 and 13), so that neither its headers nor the library are needed to build. Where a
// build has the headers, bench/cuda/headers.cpp compares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace roundoff::bench::cublas {

using Status = int;  // cublasStatus_t
inline constexpr Status kSuccess = 0;

enum class Type : int { fp32 = 0, fp64 = 1, fp16 = 2, bf16 = 14 };  // cudaDataType_t
enum class Compute : int { fp32 = 68, fp64 = 70, fast_tf32 = 77 };  // cublasComputeType_t
enum class Transpose : int { no = 0, yes = 1 };                     // cublasOperation_t
enum class Epilogue : int {                                         // cublasLtEpilogue_t
  none = 1,
  relu = 2,
  bias = 4,
  relu_bias = 6
};
enum class MatmulAttribute : int {  // cublasLtMatmulDescAttributes_t
  transpose_a = 3,
  transpose_b = 4,
  epilogue = 7,
  bias_pointer = 8,
  bias_type = 26
};
enum class LayoutAttribute : int { batch_count = 5, batch_stride = 6 };  // cublasLtMatrixLayout-
enum class PreferenceAttribute : int {  // cublasLtMatmulPreference-
  workspace = 1,
  reduction_schemes = 3,
  alignment_a = 5,
  alignment_b = 6,
  alignment_c = 7,
  alignment_d = 8
};
// Sums in parts are added in the compute type (cublasLtReductionScheme_t); none is always allowed.
inline constexpr std::uint32_t kAddInComputeType = 2;

struct Algorithm {  // cublasLtMatmulAlgo_t
  std::uint64_t data[8];
};
struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  std::size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};

using Handle = void*;
using Matmul = void*;
using Layout = void*;
using Preference = void*;
using CudaStream = void*;

struct Functions {
  Status (*create)(Handle*);
  Status (*destroy)(Handle);
  std::size_t (*version)();
  const char* (*status_name)(Status);
  Status (*matmul_create)(Matmul*, Compute, Type scale);
  Status (*matmul_destroy)(Matmul);
  Status (*matmul_set)(Matmul, MatmulAttribute, const void*, std::size_t);
  Status (*layout_create)(Layout*, Type, std::uint64_t rows, std::uint64_t columns,
                          std::int64_t leading);
  Status (*layout_destroy)(Layout);
  Status (*layout_set)(Layout, LayoutAttribute, const void*, std::size_t);
  Status (*preference_create)(Preference*);
  Status (*preference_destroy)(Preference);
  Status (*preference_set)(Preference, PreferenceAttribute, const void*, std::size_t);
  Status (*heuristic)(Handle, Matmul, Layout a, Layout b, Layout c, Layout d, Preference,
                      int requested, Heuristic* results, int* returned);
  Status (*matmul)(Handle, Matmul, const void* alpha, const void* a, Layout, const void* b, Layout,
                   const void* beta, const void* c, Layout, void* d, Layout, const Algorithm*,
                   void* workspace, std::size_t workspace_bytes, CudaStream);
};

}  // namespace roundoff::bench::cublas
