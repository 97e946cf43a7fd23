#include "bench/cuda/implementation.h"

#include <cstring>

namespace roundoff::bench {

namespace {

// A pass between whose sets nothing else is queued: they are one graph. A gradient that is held in
// the operands' 16-bit type is widened behind the pass, and that is no part of it.
bool is_bare(const Problem& p) {
  return p.pass == BenchPass::forward || p.out_dtype != p.dtype || !is_16bit(p.dtype);
}

}  // namespace

void Implementation::Poison::allocated(const Allocation& block) {
  simt::Stream& stream = context_->queue()->stream();
  if (block.bytes != 0 && !stream.capturing()) stream.fill(block.data, 0xFF, block.bytes);
}

Implementation::Implementation(const std::shared_ptr<simt::Runtime>& runtime,
                               const Problem& problem, const Operands& operands,
                               ProductLibrary* library, int sets)
    : problem_(problem), context_(runtime), reserve_(context_.allocator) {
  poison_.watch(context_);
  context_.allocator.observe(&poison_);
  context_.products = library;
  for (int i = 0; i < sets; ++i)
    runs_.push_back(std::make_unique<PassRun>(context_, problem_, operands));
}

NamedTensors Implementation::results() {
  Allocator host;
  NamedTensors on_host;
  for (const auto& [name, t] : runs_.front()->results()) on_host[name] = t.to(host);
  return on_host;
}

NamedTensors Implementation::run() {
  reserve_.enter();
  for (const auto& run : runs_) (*run)();
  context_.synchronize();
  NamedTensors first = results();
  reserve_.leave();
  return first;
}

void Implementation::capture(const NamedTensors& before) {
  simt::Stream& s = stream();
  const auto begin = [&] { s.begin_capture(); };
  const auto end = [&] { graphs_.push_back(s.end_capture()); };
  reserve_.enter();
  try {
    if (is_bare(problem_)) {
      begin();
      for (const auto& run : runs_) (*run)();
      end();
    } else {
      for (const auto& run : runs_) (*run)({.begin = begin, .end = end});
    }
  } catch (...) {
    if (s.capturing()) (void)s.end_capture();
    reserve_.leave();
    throw;
  }
  reserve_.leave();
  ROUNDOFF_CHECK(kernels() > 0 || context_.products != nullptr, problem_.operation(),
                 "the captured pass holds no kernel");
  if (problem_.pass != BenchPass::forward) return;
  // The arrays that the graph writes, as NaN; then it has to write them again.
  for (const auto& [name, t] : runs_.front()->results())
    if (t.bytes() != 0) s.fill(const_cast<void*>(t.raw()), 0xFF, t.bytes());
  replay().queue();
  for (const auto& [name, t] : results()) {
    const auto found = before.find(name);
    ROUNDOFF_CHECK(
        found != before.end() && found->second.bytes() == t.bytes() &&
            (t.bytes() == 0 || std::memcmp(found->second.raw(), t.raw(), t.bytes()) == 0),
        problem_.operation(), "the replayed graph gives other bits in ", name,
        " than the pass by itself");
  }
}

Replay Implementation::replay() {
  return {.stream = &stream(),
          .queue =
              [this] {
                for (simt::Graph& graph : graphs_) graph.launch(stream());
              },
          .passes = static_cast<int>(runs_.size())};
}

double Implementation::kernels() const {
  std::int64_t all = 0;
  for (const simt::Graph& graph : graphs_) all += graph.kernels();
  return static_cast<double>(all) / static_cast<double>(runs_.size());
}

}  // namespace roundoff::bench
