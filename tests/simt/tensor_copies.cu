#include "tests/simt/tensor_copies.h"

#include "kernels/base/check.h"
#include "kernels/simt/simt.h"
#include "kernels/simt/tma.h"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  constexpr unsigned kBytes = 16 * 1024;

  template <int kRank>
  ROUNDOFF_DEVICE void load_ranked(void* to, const TensorMap* map, const Coordinates& c,
                                   Mbarrier* done) {
    int at[kRank];
    for (int i = 0; i < kRank; ++i) at[i] = c.at[i];
    tma_load(to, map, at, done);
  }

  ROUNDOFF_DEVICE void fill_shared(unsigned char* shared, unsigned value) {
    for (unsigned i = threadIdx.x; i < kBytes; i += blockDim.x)
      shared[i] = static_cast<unsigned char>(value);
  }
  ROUNDOFF_DEVICE void return_shared(const unsigned char* shared, std::uint8_t* out) {
    for (unsigned i = threadIdx.x; i < kBytes; i += blockDim.x) out[i] = shared[i];
  }

  template <int kRank>
  __global__ void tensor_load(const __grid_constant__ TensorMap map, Coordinates at, unsigned bytes,
                              unsigned place, std::uint8_t* out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, done, [1]);
    fill_shared(shared, 0xEE);
    fence_proxy_async();
    if (threadIdx.x == 0) {
      tma_prefetch(&map);
      mbarrier_init(done, 1);
      fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(done, bytes);
      load_ranked<kRank>(shared + place, &map, at, done);
    }
    mbarrier_wait(done, 0);
    return_shared(shared, out);
  }

  __global__ void im2col_load(const __grid_constant__ TensorMap map, Coordinates at,
                              std::uint16_t offset_w, std::uint16_t offset_h, unsigned bytes,
                              std::uint8_t* out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, done, [1]);
    fill_shared(shared, 0xEE);
    fence_proxy_async();
    if (threadIdx.x == 0) {
      mbarrier_init(done, 1);
      fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect_tx(done, bytes);
      tma_load_im2col(shared, &map, {at.at[0], at.at[1], at.at[2], at.at[3]}, {offset_w, offset_h},
                      done);
    }
    mbarrier_wait(done, 0);
    return_shared(shared, out);
  }

  template <int kRank>
  __global__ void tensor_store(const __grid_constant__ TensorMap map, Coordinates c, bool add,
                               unsigned bytes, const std::uint8_t* image) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    for (unsigned i = threadIdx.x; i < bytes; i += blockDim.x) shared[i] = image[i];
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      int at[kRank];
      for (int i = 0; i < kRank; ++i) at[i] = c.at[i];
      if (add) {
        tma_reduce_add(&map, at, shared);
      } else {
        tma_store(&map, at, shared);
      }
      tma_store_commit();
      tma_store_wait<0>();
    }
  }

  __global__ void multicast(const __grid_constant__ TensorMap map, bool tensor,
                            const std::uint8_t* x, unsigned bytes, std::uint8_t* out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, done, [1]);
    const unsigned rank = cluster_rank(), size = cluster_size();
    if (threadIdx.x == 0) {
      mbarrier_init(done, 1);
      fence_mbarrier_init();
      mbarrier_arrive_expect_tx(done, bytes * size);
    }
    cluster_sync();
    if (threadIdx.x == 0) {
      const auto all = static_cast<std::uint16_t>((1U << size) - 1);
      const unsigned at = rank * bytes;
      if (tensor) {
        tma_load_multicast(shared + at, &map, {static_cast<int>(at)}, done, all);
      } else {
        bulk_load_multicast(shared + at, x + at, bytes, done, all);
      }
    }
    mbarrier_wait(done, 0);
    for (unsigned i = threadIdx.x; i < bytes * size; i += blockDim.x)
      out[blockIdx.x * bytes * size + i] = shared[i];
    cluster_sync();
  }

  constexpr int kStages = 3, kBoxRows = 8, kBoxColumns = 32, kBox = kBoxRows * kBoxColumns;

  // Warp 0 loads; warps 1 to 4 add and store.
  __global__ void tensor_pipeline(const __grid_constant__ TensorMap x,
                                  const __grid_constant__ TensorMap y, int rows, int columns) {
    ROUNDOFF_DYNAMIC_SHARED(bytes);
    auto* stage = reinterpret_cast<float*>(bytes);
    float* result = stage + kStages * kBox;
    ROUNDOFF_SHARED(Mbarrier, full, [kStages]);
    ROUNDOFF_SHARED(Mbarrier, empty, [kStages]);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread == 0) {
      for (int s = 0; s < kStages; ++s) {
        mbarrier_init(&full[s], 1);
        mbarrier_init(&empty[s], 4);
      }
      fence_mbarrier_init();
    }
    __syncthreads();
    const int across = (columns + kBoxColumns - 1) / kBoxColumns;
    const int boxes = across * ((rows + kBoxRows - 1) / kBoxRows);
    const int first = static_cast<int>(blockIdx.x), by = static_cast<int>(gridDim.x);
    int step = 0;
    if (thread < 32) {
      if (elect_one()) {
        for (int box = first; box < boxes; box += by, ++step) {
          const int s = step % kStages;
          mbarrier_wait(&empty[s], static_cast<unsigned>(step / kStages % 2) ^ 1U);
          mbarrier_arrive_expect_tx(&full[s], kBox * 4);
          tma_load(stage + s * kBox, &x, {box % across * kBoxColumns, box / across * kBoxRows},
                   &full[s]);
        }
      }
      return;
    }
    const int worker = thread - 32;
    for (int box = first; box < boxes; box += by, ++step) {
      const int s = step % kStages;
      float* to = result + step % 2 * kBox;
      // The store before the last has left `to`.
      if (worker == 0) tma_store_wait_read<1>();
      bar_sync(1, 128);
      mbarrier_wait(&full[s], static_cast<unsigned>(step / kStages % 2));
      for (int i = worker; i < kBox; i += 128) to[i] = stage[s * kBox + i] + 1;
      __syncwarp();
      if (worker % 32 == 0) mbarrier_arrive(&empty[s]);
      fence_proxy_async();
      bar_sync(1, 128);
      if (worker == 0) {
        tma_store(&y, {box % across * kBoxColumns, box / across * kBoxRows}, to);
        tma_store_commit();
      }
    }
    if (worker == 0) tma_store_wait<0>();
  }

  __global__ void write_then_load(const __grid_constant__ TensorMap map, float* x, float* out) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, done, [1]);
    if (threadIdx.x == 0) {
      mbarrier_init(done, 1);
      fence_mbarrier_init();
      for (int i = 0; i < 64; ++i) x[i] = static_cast<float>(i);
      fence_proxy_async_global();
      mbarrier_arrive_expect_tx(done, 256);
      tma_load(shared, &map, {0}, done);
    }
    __syncthreads();
    mbarrier_wait(done, 0);
    for (unsigned i = threadIdx.x; i < 64; i += blockDim.x)
      out[i] = reinterpret_cast<const float*>(shared)[i];
  }

  __global__ void tensor_misuse(const __grid_constant__ TensorMap tiles,
                                const __grid_constant__ TensorMap im2col, TensorMisuse misuse,
                                std::uint8_t* x) {
    ROUNDOFF_DYNAMIC_SHARED(shared);
    ROUNDOFF_SHARED(Mbarrier, done, [1]);
    if (threadIdx.x != 0) return;
    mbarrier_init(done, 1);
    constexpr unsigned kBoxBytes = 8 * 32 * 4;  // of `tiles`
    switch (misuse) {
      case TensorMisuse::misaligned_box:
        tma_load(shared + 16, &tiles, {0, 0}, done);
        break;
      case TensorMisuse::wrong_rank:
        tma_load(shared, &tiles, {0, 0, 0}, done);
        break;
      case TensorMisuse::no_map:
        tma_load(shared, reinterpret_cast<const TensorMap*>(shared), {0, 0}, done);
        break;
      case TensorMisuse::wrong_mode:
        tma_load_im2col(shared, &im2col, {0, 0, 0, 0}, {0, 0}, done);
        tma_load(shared, &im2col, {0, 0, 0, 0}, done);
        break;
      case TensorMisuse::beyond_allocation:
        tma_load(shared, &tiles, {0, 0}, done);
        break;
      case TensorMisuse::too_few_bytes:
        mbarrier_arrive_expect_tx(done, kBoxBytes - 16);
        tma_load(shared, &tiles, {0, 0}, done);
        mbarrier_wait(done, 0);
        break;
      case TensorMisuse::too_many_bytes:
        mbarrier_arrive_expect_tx(done, kBoxBytes + 16);
        tma_load(shared, &tiles, {0, 0}, done);
        mbarrier_wait(done, 0);
        break;
      case TensorMisuse::early_exit_of_store:
        tma_store(&tiles, {0, 0}, shared);
        tma_store_commit();
        break;
      case TensorMisuse::mask_outside:
        tma_load_multicast(shared, &tiles, {0, 0}, done, 2);
        break;
      case TensorMisuse::misaligned_run:
        bulk_load(shared, x + 4, 16, done);
        break;
      case TensorMisuse::im2col_start:
        tma_load_im2col(shared, &im2col, {0, 100, 0, 0}, {0, 0}, done);
        break;
      case TensorMisuse::no_store_wait:
        // Shared memory is used again while the store may still read it.
        for (int i = 0; i < 256; ++i) reinterpret_cast<float*>(shared)[i] = 1;
        fence_proxy_async();
        tma_store(&tiles, {0, 0}, shared);
        tma_store_commit();
        for (int i = 0; i < 256; ++i) reinterpret_cast<float*>(shared)[i] = 2;
        tma_store_wait<0>();
        break;
    }
  }

  // Calls f with the rank as a constant.
  template <class F>
  void with_rank(int rank, F&& f) {
    if (rank == 1) f.template operator()<1>();
    if (rank == 2) f.template operator()<2>();
    if (rank == 3) f.template operator()<3>();
    if (rank == 4) f.template operator()<4>();
    if (rank == 5) f.template operator()<5>();
  }

}  // namespace

template <DeviceTarget T>
void launch_tensor_load(T target, const TiledMap& map, const Coordinates& at, unsigned bytes,
                        unsigned place, std::uint8_t* out) {
  const TensorMap encoded = encode_tiled(map);
  with_rank(map.rank, [&]<int kRank>() {
    launch(target,
           {.name = "tensor_load",
            .grid = {1},
            .block = {64},
            .shared = kBytes,
            .needs = Architecture::sm_90a},
           tensor_load<kRank>, encoded, at, bytes, place, out);
  });
}

template <DeviceTarget T>
void launch_im2col_load(T target, const Im2colMap& map, const Coordinates& at,
                        std::uint16_t offset_w, std::uint16_t offset_h, unsigned bytes,
                        std::uint8_t* out) {
  launch(target,
         {.name = "im2col_load",
          .grid = {1},
          .block = {64},
          .shared = kBytes,
          .needs = Architecture::sm_90a},
         im2col_load, encode_im2col(map), at, offset_w, offset_h, bytes, out);
}

template <DeviceTarget T>
void launch_tensor_store(T target, const TiledMap& map, const Coordinates& at, bool add,
                         unsigned bytes, const std::uint8_t* image) {
  const TensorMap encoded = encode_tiled(map);
  with_rank(map.rank, [&]<int kRank>() {
    launch(target,
           {.name = "tensor_store",
            .grid = {1},
            .block = {64},
            .shared = kBytes,
            .needs = Architecture::sm_90a},
           tensor_store<kRank>, encoded, at, add, bytes, image);
  });
}

template <DeviceTarget T>
void launch_multicast(T target, unsigned cluster, bool tensor, const TiledMap& map,
                      const std::uint8_t* x, unsigned bytes, std::uint8_t* out) {
  launch(target,
         {.name = "multicast",
          .grid = {cluster},
          .block = {32},
          .shared = kBytes,
          .cluster = {cluster},
          .needs = Architecture::sm_90a},
         multicast, encode_tiled(map), tensor, x, bytes, out);
}

template <DeviceTarget T>
void launch_tensor_pipeline(T target, unsigned blocks, const TiledMap& x, const TiledMap& y,
                            int rows, int columns) {
  launch(target,
         {.name = "tensor_pipeline",
          .grid = {blocks},
          .block = {160},
          .shared = (kStages + 2) * kBox * 4,
          .needs = Architecture::sm_90a},
         tensor_pipeline, encode_tiled(x), encode_tiled(y), rows, columns);
}

template <DeviceTarget T>
void launch_write_then_load(T target, const TiledMap& map, float* x, float* out) {
  launch(target,
         {.name = "write_then_load",
          .grid = {1},
          .block = {32},
          .shared = 256,
          .needs = Architecture::sm_90a},
         write_then_load, encode_tiled(map), x, out);
}

template <DeviceTarget T>
void launch_tensor_misuse(T target, TensorMisuse misuse, const TiledMap& tiles,
                          const Im2colMap& im2col, std::uint8_t* x) {
  launch(target,
         {.name = "tensor_misuse",
          .grid = {1},
          .block = {32},
          .shared = kBytes,
          .needs = Architecture::sm_90a},
         tensor_misuse, encode_tiled(tiles), encode_im2col(im2col), misuse, x);
}

template void launch_tensor_load(Target, const TiledMap&, const Coordinates&, unsigned, unsigned,
                                 std::uint8_t*);
template void launch_im2col_load(Target, const Im2colMap&, const Coordinates&, std::uint16_t,
                                 std::uint16_t, unsigned, std::uint8_t*);
template void launch_tensor_store(Target, const TiledMap&, const Coordinates&, bool, unsigned,
                                  const std::uint8_t*);
template void launch_multicast(Target, unsigned, bool, const TiledMap&, const std::uint8_t*,
                               unsigned, std::uint8_t*);
template void launch_tensor_pipeline(Target, unsigned, const TiledMap&, const TiledMap&, int, int);
template void launch_write_then_load(Target, const TiledMap&, float*, float*);
template void launch_tensor_misuse(Target, TensorMisuse, const TiledMap&, const Im2colMap&,
                                   std::uint8_t*);

}  // namespace roundoff
