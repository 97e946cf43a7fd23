// One implementation of a problem (a kernel of ours, or a vendor's library) with its rotating
// arrays, run once to be verified and captured to be replayed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/cuda/timing.h"
#include "bench/operands.h"
#include "engine/context.h"
#include "ops/product_library.h"

namespace roundoff::bench {

class Implementation {
 public:
  // `sets` copies of the operands in memory of its own. A library that is given computes products
  // in place of our kernels, where it takes them.
  Implementation(const std::shared_ptr<simt::Runtime>& runtime, const Problem& problem,
                 const Operands& operands, ProductLibrary* library, int sets);

  // Runs every set once; results start as NaN. Those of the first set, on the host.
  NamedTensors run();
  // Captures the passes of all sets. Throws where replaying them does not give what `results`, of
  // run(), hold.
  void capture(const NamedTensors& results);
  // Valid while this lives.
  Replay replay();
  // Kernels of one pass.
  double kernels() const;

  simt::Stream& stream() { return context_.queue()->stream(); }

 private:
  // Everything that is handed out starts as NaN, where nothing is being captured.
  class Poison final : public AllocationObserver {
   public:
    void watch(Context& context) { context_ = &context; }
    void allocated(const Allocation& block) override;
    void released(const Allocation&) override {}

   private:
    Context* context_ = nullptr;
  };

  NamedTensors results();

  Problem problem_;
  Poison poison_;  // outlives the context's memory
  Context context_;
  Allocator::Reserve reserve_;
  std::vector<std::unique_ptr<PassRun>> runs_;
  std::vector<simt::Graph> graphs_;  // one, or one a set
};

}  // namespace roundoff::bench
