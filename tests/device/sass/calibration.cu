// Kernels that say what a few instructions are in machine code: each holds a known number of one
// PTX instruction, and little else (calibration_test.cpp has the table). None is ever run.
#include <cstdint>

#define KERNEL extern "C" __global__ void
// Three times an instruction, at addresses 1024 bytes apart.
#define THREE(before, after) before "0" after before "1024" after before "2048" after

// What was loaded is kept by one 32-bit store, so that nothing is left out.
#define LOADS(space, type, constraint)                                                          \
  KERNEL ld_##space##_32(type from, std::uint32_t* kept) {                                      \
    std::uint32_t a, b, c;                                                                      \
    asm volatile("ld." #space ".b32 %0, [%1];" : "=r"(a) : constraint(from));                   \
    asm volatile("ld." #space ".b32 %0, [%1+1024];" : "=r"(b) : constraint(from));              \
    asm volatile("ld." #space ".b32 %0, [%1+2048];" : "=r"(c) : constraint(from));              \
    *kept = a ^ b ^ c;                                                                          \
  }                                                                                             \
  KERNEL ld_##space##_64(type from, std::uint32_t* kept) {                                      \
    std::uint32_t a, b, c, d;                                                                   \
    asm volatile("ld." #space ".v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : constraint(from)); \
    asm volatile("ld." #space ".v2.b32 {%0, %1}, [%2+1024];"                                    \
                 : "=r"(c), "=r"(d)                                                             \
                 : constraint(from));                                                           \
    *kept = a ^ b ^ c ^ d;                                                                      \
  }                                                                                             \
  KERNEL ld_##space##_128(type from, std::uint32_t* kept) {                                     \
    std::uint32_t a, b, c, d;                                                                   \
    asm volatile("ld." #space ".v4.b32 {%0, %1, %2, %3}, [%4];"                                 \
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)                                           \
                 : constraint(from));                                                           \
    *kept = a ^ b ^ c ^ d;                                                                      \
  }                                                                                             \
  KERNEL ld_##space##_16(type from, std::uint32_t* kept) {                                      \
    std::uint16_t a;                                                                            \
    asm volatile("ld." #space ".u16 %0, [%1];" : "=h"(a) : constraint(from));                   \
    *kept = a;                                                                                  \
  }
LOADS(global, const void*, "l")
LOADS(shared, std::uint32_t, "r")
LOADS(local, std::uint32_t, "r")
LOADS(volatile, const void*, "l")  // by generic addresses
#undef LOADS
KERNEL ld_constant_128(const std::uint32_t* from, std::uint32_t* kept) {
  std::uint32_t a, b, c, d;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "l"(from));
  *kept = a ^ b ^ c ^ d;
}

#define STORES(space, type, constraint)                                                       \
  KERNEL st_##space##_16(type to, std::uint16_t a) {                                          \
    asm volatile(THREE("st." #space ".b16 [%0+", "], %1;")::constraint(to), "h"(a));          \
  }                                                                                           \
  KERNEL st_##space##_32(type to, std::uint32_t a) {                                          \
    asm volatile(THREE("st." #space ".b32 [%0+", "], %1;")::constraint(to), "r"(a));          \
  }                                                                                           \
  KERNEL st_##space##_64(type to, std::uint32_t a) {                                          \
    asm volatile(THREE("st." #space ".v2.b32 [%0+", "], {%1, %1};")::constraint(to), "r"(a)); \
  }                                                                                           \
  KERNEL st_##space##_128(type to, std::uint32_t a) {                                         \
    asm volatile(THREE("st." #space ".v4.b32 [%0+", "], {%1, %1, %1, %1};")::constraint(to),  \
                 "r"(a));                                                                     \
  }
STORES(global, void*, "l")
STORES(shared, std::uint32_t, "r")
STORES(local, std::uint32_t, "r")
STORES(volatile, void*, "l")
#undef STORES

KERNEL ldmatrix_1_2_4(std::uint32_t from, std::uint32_t* kept) {
  std::uint32_t a, b, c, d, e, f, g;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
               : "r"(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(e), "=r"(f)
               : "r"(from));
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(g) : "r"(from));
  *kept = a ^ b ^ c ^ d ^ e ^ f ^ g;
}

#define COPIES(bytes, cache)                                                                      \
  KERNEL cp_async_##bytes(std::uint32_t to, const void* from) {                                   \
    asm volatile(THREE("cp.async." cache ".shared.global [%0+", "], [%1], " #bytes ";")::"r"(to), \
                 "l"(from));                                                                      \
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");                   \
  }
COPIES(4, "ca")
COPIES(8, "ca")
COPIES(16, "cg")
#undef COPIES

#define MMA "mma.sync.aligned."
#define MMA_OPERANDS " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#define PRODUCTS(kernel, shape)                                                             \
  KERNEL kernel(const std::uint32_t* in, float* out) {                                      \
    float d[4] = {out[0], out[1], out[2], out[3]};                                          \
    asm volatile(MMA shape MMA_OPERANDS MMA shape MMA_OPERANDS MMA shape MMA_OPERANDS       \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                           \
                 : "r"(in[0]), "r"(in[1]), "r"(in[2]), "r"(in[3]), "r"(in[4]), "r"(in[5])); \
    for (int i = 0; i < 4; ++i) out[i] = d[i];                                              \
  }
PRODUCTS(mma_fp16, "m16n8k16.row.col.f32.f16.f16.f32")
PRODUCTS(mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
PRODUCTS(mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef PRODUCTS

KERNEL fma_single(float* x) {
  x[0] = __fmaf_rn(__fmaf_rn(__fmaf_rn(x[0], x[1], x[2]), x[1], x[0]), x[2], x[1]);
}
KERNEL fma_double(double* x) {
  x[0] = __fma_rn(__fma_rn(__fma_rn(x[0], x[1], x[2]), x[1], x[0]), x[2], x[1]);
}
KERNEL add_mul(float* x) {
  const float product = __fmul_rn(__fmul_rn(__fmul_rn(x[2], x[3]), x[4]), x[5]);
  x[0] = __fadd_rn(__fadd_rn(x[0], x[1]), product);
}
KERNEL special(float* x) {
  float y = x[0];
  asm volatile("rcp.approx.ftz.f32 %0, %0; ex2.approx.ftz.f32 %0, %0; tanh.approx.f32 %0, %0;"
               : "+f"(y));
  x[0] = y;
}
KERNEL shuffles(int* x) {
  int y = x[threadIdx.x];
  y = __shfl_xor_sync(~0U, y, 16);
  y += __shfl_down_sync(~0U, y, 8);
  y += __shfl_sync(~0U, y, y & 31);
  x[threadIdx.x] = y;
}
KERNEL barriers(int* x) {
  x[0] = 1;
  __syncthreads();
  x[1] = 1;
  __syncthreads();
  x[2] = 1;
  asm volatile("bar.sync 3, 64;" ::: "memory");
}
KERNEL reductions(int* x, float* y) {
  atomicAdd(x, 1);
  atomicAdd(y, 2.0F);
  atomicMax(x + 1, 7);
}
KERNEL atomics(int* x) { x[9] = atomicAdd(x, 1) ^ atomicExch(x + 2, 3) ^ atomicCAS(x + 3, 1, 2); }
KERNEL shared_atomics(int* x) {
  __shared__ int s[4];
  x[9] = atomicAdd(s, x[0]) ^ atomicExch(s + 2, x[2]) ^ atomicCAS(s + 3, x[1], x[3]);
}
KERNEL nothing() {}

// Twelve products in the loop, three before it; cold code that jumps back is no loop.
KERNEL loop_of_products(float* x, int n) {
  float y = __fmaf_rn(__fmaf_rn(__fmaf_rn(x[0], x[1], x[2]), x[3], x[4]), x[5], x[6]);
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int j = 0; j < 12; ++j) y = __fmaf_rn(y, y, x[i + 100]);
    x[i] = y;
  }
  x[n] = y;
}
// Two loops, one inside the other; one product in the outer, two in the inner one.
KERNEL nested_loops(float* x, int n) {
  float y = x[0];
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    y = __fmaf_rn(y, x[i], 1.0F);
#pragma unroll 1
    for (int j = 0; j < n; ++j) y = __fmaf_rn(__fmaf_rn(y, x[j], 2.0F), y, 3.0F);
  }
  x[0] = y;
}

// Resources.
KERNEL __launch_bounds__(192) bounded_192(float* x) { x[threadIdx.x] = 0; }
KERNEL static_shared(float* x) {
  __shared__ float s[3000];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[x[0] > 0 ? 2999 : 0];
}
KERNEL stack_1200(float* p, int i) {
  float values[300];
  for (int j = 0; j < 300; ++j) values[j] = p[j];
  p[0] = values[i];
}
// More values alive than 1024 threads have registers for.
KERNEL __launch_bounds__(1024, 2) spilling(const float4* in, float4* out) {
  float4 v[24];
#pragma unroll
  for (int i = 0; i < 24; ++i) v[i] = in[threadIdx.x + 1024 * i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 24; ++i) out[threadIdx.x + 1024 * i] = v[23 - i];
}

// What only sm_90a has; for another architecture these kernels are empty.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER(...) __VA_ARGS__
#else
#define HOPPER(...)
#endif
#define TENSOR_LOAD "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
KERNEL tensor_load(std::uint32_t to, const void* map, std::uint32_t done) {
  HOPPER(asm volatile(THREE(TENSOR_LOAD " [%0+", "], [%1, {%2, %2}], [%3];")::"r"(to), "l"(map),
                      "r"(0), "r"(done)
                      : "memory");)
}
KERNEL tensor_load_multicast(std::uint32_t to, const void* map, std::uint32_t done) {
  HOPPER(asm volatile(
             THREE(TENSOR_LOAD ".multicast::cluster [%0+", "], [%1, {%2, %2}], [%3], %4;")::"r"(to),
             "l"(map), "r"(0), "r"(done), "h"(static_cast<short>(3))
             : "memory");)
}
KERNEL tensor_load_im2col(std::uint32_t to, const void* map, std::uint32_t done) {
  HOPPER(
      asm volatile(
          THREE(
              "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
              "[%0+",
              "], [%1, {%2, %2, %2, %2}], [%3], {%4, %4};")::"r"(to),
          "l"(map), "r"(0), "r"(done), "h"(static_cast<short>(0))
          : "memory");)
}
KERNEL tensor_store(std::uint32_t from, const void* map) {
  HOPPER(asm volatile(
             THREE("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %1}], [%2+",
                   "];")::"l"(map),
             "r"(0), "r"(from)
             : "memory");)
}
KERNEL tensor_add(std::uint32_t from, const void* map) {
  HOPPER(asm volatile(
             THREE("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, "
                   "{%1, %1}], [%2+",
                   "];")::"l"(map),
             "r"(0), "r"(from)
             : "memory");)
}
KERNEL bulk_load(std::uint32_t to, const void* from, std::uint32_t done) {
  HOPPER(
      asm volatile(THREE("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0+",
                         "], [%1], 128, [%2];")::"r"(to),
                   "l"(from), "r"(done)
                   : "memory");)
}
KERNEL mbarrier_init_arrive_inval(std::uint32_t barrier) {
  HOPPER(asm volatile(
             "mbarrier.init.shared::cta.b64 [%0], 1; mbarrier.arrive.shared::cta.b64 _, [%0]; "
             "mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier)
             : "memory");)
}
KERNEL mbarrier_expect(std::uint32_t barrier) {
  HOPPER(asm volatile(
             THREE("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0+", "], 64;")::"r"(barrier)
             : "memory");)
}
KERNEL mbarrier_try_wait(std::uint32_t barrier, std::uint32_t* x) {
  HOPPER(std::uint32_t a; asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, "
                                       "[%1], 0; selp.b32 %0, 1, 0, p;}"
                                       : "=r"(a)
                                       : "r"(barrier)
                                       : "memory");
         *x = a;)
}
KERNEL store_matrix(std::uint32_t to, std::uint32_t a) {
  HOPPER(asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1}; "
                      "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0+1024], {%1, %1}; "
                      "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0+2048], {%1};" ::"r"(to),
                      "r"(a)
                      : "memory");)
}
#define WGMMA(a, b)                                                                       \
  asm volatile(                                                                           \
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 1, " \
      "1, 1, 0, 0;"                                                                       \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                    \
      : "l"(a), "l"(b))
KERNEL warpgroup_products(std::uint64_t a, std::uint64_t b, float* out) {
  HOPPER(float d[4] = {out[0], out[1], out[2], out[3]}; asm volatile("wgmma.fence.sync.aligned;" ::
                                                                         : "memory");
         WGMMA(a, b); WGMMA(a + 2, b + 2); WGMMA(a + 4, b + 4);
         asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::
                          : "memory");
         for (int i = 0; i < 4; ++i) out[i] = d[i];)
}
KERNEL __launch_bounds__(384, 1) register_counts(float* x) {
  HOPPER(
      if (threadIdx.x < 128) { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
      } x[threadIdx.x] = 1;)
}
KERNEL cluster_barriers(int* x) {
  HOPPER(asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::
                          : "memory");
         x[0] = 1;)
}
