// The running thread of a simulated kernel, as kernels see it.
#pragma once

#include <cstdint>

#include "kernels/simt/emulator/api.h"

// CUDA's own names and layouts; nvcc's files have CUDA's definitions of them.
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};

namespace roundoff::simt {

struct Block;
struct FiberContext;

enum class ThreadState : std::uint8_t { ready, waiting, exited };

// A block's place, in CUDA's terms.
struct Geometry {
  uint3 block_index{};
  dim3 block_dim;
  dim3 grid_dim;
  uint3 cluster_index{};  // of the block inside its cluster
  dim3 cluster_dim;
  unsigned cluster_rank = 0;
};

struct Thread {
  uint3 index{};
  const Geometry* geometry = nullptr;
  Block* block = nullptr;
  std::uint16_t linear = 0;  // in the block
  std::uint8_t warp = 0;
  std::uint8_t lane = 0;
  ThreadState state = ThreadState::exited;
  bool started = false;
  std::uint16_t stack = 0;
  // What a waiting thread waits for, for a deadlock's report.
  const char* waits_for = "";
  std::uint64_t wait_value = 0;
  const char* wait_file = "";
  int wait_line = 0;
  // What the one that wakes it hands over.
  std::uint64_t answer = 0;
  void* stack_pointer = nullptr;
};

// Null outside kernels. A thread stays on its OS thread, so the address of this variable is fixed.
extern ROUNDOFF_SIMT_API __thread Thread* t_current __attribute__((tls_model("initial-exec")));

inline Thread* current() { return t_current; }

}  // namespace roundoff::simt
