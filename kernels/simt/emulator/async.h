// What a block has in flight: copies, mbarriers, warpgroup products.
#pragma once

#include "kernels/simt/emulator/cluster.h"

namespace roundoff::simt {

struct AsyncState {};

// A new cluster starts in this block; nothing is in flight.
inline void async_reset(Block&) {}
// Faults where a thread exits with something in flight that it had to wait for.
inline void async_thread_exit(Thread&) {}

}  // namespace roundoff::simt
