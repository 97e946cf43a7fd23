// The simulated device's runtime: an emulator, and queues that run their work at once or put it
// off.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/simt/emulator/emulator.h"
#include "kernels/simt/runtime.h"

namespace roundoff::simt {

// When queued work runs.
enum class QueueOrder : std::uint8_t {
  // At once: what a launch does wrong, that launch throws.
  immediate,
  // When the host waits or asks, one piece after the other from streams drawn by the seed, as far
  // as events allow. A wait that is missing then shows: the host reads what stood there before, and
  // streams overtake each other. What work does wrong, the wait throws; work behind it still runs.
  deferred
};

struct SimOptions {
  Config emulator = {};
  QueueOrder order = QueueOrder::immediate;
  std::uint64_t order_seed = 1;
};

std::shared_ptr<Runtime> open_sim(const SimOptions& options);

// The emulator behind a runtime of `sim`: counters, schedules, sanitizer. Throws for another.
Emulator& emulator(Runtime& runtime);

}  // namespace roundoff::simt
