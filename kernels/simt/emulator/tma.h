// TMA and bulk copies on the emulator (kernels/simt/tma.h says what they do).
#pragma once

#include <cstdint>

#include "kernels/simt/emulator/api.h"
#include "kernels/simt/emulator/tensor_box.h"
#include "kernels/simt/site.h"

namespace roundoff::simt {

ROUNDOFF_SIMT_API void tma_load(void* shared, const TensorMap* map, const int* at, int rank,
                                std::uint64_t* done, Site site);
ROUNDOFF_SIMT_API void tma_load_multicast(void* shared, const TensorMap* map, const int* at,
                                          int rank, std::uint64_t* done, std::uint16_t ranks,
                                          Site site);
ROUNDOFF_SIMT_API void tma_load_im2col(void* shared, const TensorMap* map, const int* at,
                                       const std::uint16_t* offset, int rank, std::uint64_t* done,
                                       Site site);
ROUNDOFF_SIMT_API void tma_load_im2col_multicast(void* shared, const TensorMap* map, const int* at,
                                                 const std::uint16_t* offset, int rank,
                                                 std::uint64_t* done, std::uint16_t ranks,
                                                 Site site);
ROUNDOFF_SIMT_API void tma_store(const TensorMap* map, const int* at, int rank, const void* shared,
                                 bool add, Site site);
ROUNDOFF_SIMT_API void bulk_load(void* shared, const void* global, unsigned bytes,
                                 std::uint64_t* done, Site site);
ROUNDOFF_SIMT_API void bulk_load_multicast(void* shared, const void* global, unsigned bytes,
                                           std::uint64_t* done, std::uint16_t ranks, Site site);
ROUNDOFF_SIMT_API void bulk_store(void* global, const void* shared, unsigned bytes, Site site);
ROUNDOFF_SIMT_API void bulk_commit(Site site);
// `reads`: until the groups' shared memory has been read; else until they have written.
ROUNDOFF_SIMT_API void bulk_wait(unsigned pending, bool reads, Site site);
ROUNDOFF_SIMT_API void tma_prefetch(const TensorMap* map, Site site);
ROUNDOFF_SIMT_API void fence_proxy_async(Site site);

}  // namespace roundoff::simt
