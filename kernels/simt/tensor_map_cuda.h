// Tensor maps by the CUDA driver, which is looked up at run time. For nvcc.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/base/check.h"
#include "kernels/simt/tensor_map.h"

namespace roundoff::tensor_map_cuda {

inline CUtensorMapDataType type_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DType::fp32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::fp16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::i64:
      return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case DType::i32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::u8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
  fail("tensor_map", "unknown type");
}

// The entry point of a driver that knows CUDA 12.0, where tensor maps came.
inline void* entry_point(const char* symbol) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(symbol, &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(symbol, &function, cudaEnableDefault, &found);
#endif
  ROUNDOFF_CHECK(status == cudaSuccess && found == cudaDriverEntryPointSuccess, "tensor_map",
                 "this driver has no ", symbol, " (CUDA 12.0 or later expected)");
  return function;
}

template <class Map>
struct Common {
  explicit Common(const Map& map)
      : type(type_of(map.dtype)),
        rank(static_cast<cuuint32_t>(map.rank)),
        address(const_cast<void*>(map.address)),
        swizzle(static_cast<CUtensorMapSwizzle>(map.swizzle)),
        promotion(static_cast<CUtensorMapL2promotion>(map.promotion)),
        fill(static_cast<CUtensorMapFloatOOBfill>(map.fill)) {}

  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  CUtensorMapSwizzle swizzle;
  CUtensorMapL2promotion promotion;
  CUtensorMapFloatOOBfill fill;
};
static_assert(static_cast<int>(Swizzle::span128) == CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(static_cast<int>(L2Promotion::bytes256) == CU_TENSOR_MAP_L2_PROMOTION_L2_256B);

inline CUtensorMap encode(const TiledMap& map) {
  check(map);
  const auto function =
      reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry_point("cuTensorMapEncodeTiled"));
  const Common common(map);
  CUtensorMap encoded{};
  const CUresult status =
      function(&encoded, common.type, common.rank, common.address,
               reinterpret_cast<const cuuint64_t*>(map.size),
               reinterpret_cast<const cuuint64_t*>(map.stride_bytes + 1), map.box, map.step,
               CU_TENSOR_MAP_INTERLEAVE_NONE, common.swizzle, common.promotion, common.fill);
  ROUNDOFF_CHECK(status == CUDA_SUCCESS, "tensor_map", "cuTensorMapEncodeTiled failed with code ",
                 static_cast<int>(status));
  return encoded;
}

inline CUtensorMap encode(const Im2colMap& map) {
  check(map);
  const auto function =
      reinterpret_cast<decltype(&cuTensorMapEncodeIm2col)>(entry_point("cuTensorMapEncodeIm2col"));
  const Common common(map);
  CUtensorMap encoded{};
  const CUresult status =
      function(&encoded, common.type, common.rank, common.address,
               reinterpret_cast<const cuuint64_t*>(map.size),
               reinterpret_cast<const cuuint64_t*>(map.stride_bytes + 1), map.lower, map.upper,
               map.channels, map.pixels, map.step, CU_TENSOR_MAP_INTERLEAVE_NONE, common.swizzle,
               common.promotion, common.fill);
  ROUNDOFF_CHECK(status == CUDA_SUCCESS, "tensor_map", "cuTensorMapEncodeIm2col failed with code ",
                 static_cast<int>(status));
  return encoded;
}

}  // namespace roundoff::tensor_map_cuda
