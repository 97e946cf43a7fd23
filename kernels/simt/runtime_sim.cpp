#include "kernels/simt/runtime_sim.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <new>

#include "kernels/simt/emulator/stream.h"

namespace roundoff::simt {

namespace {

using Clock = std::chrono::steady_clock;

// A place in a queue that others wait for.
struct Mark {
  bool reached = false;
  Clock::time_point at;
};

struct Operation {
  std::function<void()> run;        // may be empty
  std::shared_ptr<Mark> waits_for;  // may be null
};

struct SimGraph {
  std::vector<std::function<void()>> operations;
  std::int64_t kernels = 0;
};

struct SimEvent {
  std::shared_ptr<Mark> mark;  // null: never recorded
};

DeviceDescription describe(const Config& config) {
  DeviceDescription d;
  d.device = Device::sim;
  d.capability = config.architecture == SimArchitecture::sm_90a ? 90 : 80;
  d.name = concat("SIMT emulator, ", d.capability == 90 ? "sm_90a" : "sm_80");
  d.multiprocessors = static_cast<int>(config.workers);
  d.shared_per_block = config.max_shared;
  return d;
}

class SimRuntime final : public Runtime {
 public:
  explicit SimRuntime(const SimOptions& options)
      : Runtime(describe(options.emulator)), options_(options), emulator_(options.emulator) {}

  Emulator& device_emulator() { return emulator_; }

 private:
  struct Queue final : SimStream {
    explicit Queue(SimRuntime& r) : SimStream(r.emulator_), runtime(r) {}
    void launch(const LaunchConfig& config, bool checked, std::function<void()> body) override {
      Emulator& emulator = device();
      if (capture != nullptr) {
        ++capture->kernels;
      } else {
        runtime.count_launch();
        if (runtime.immediate()) return emulator.run(config, checked, body);
      }
      runtime.submit(*this, [&emulator, config, checked, body = std::move(body)] {
        emulator.run(config, checked, body);
      });
    }

    SimRuntime& runtime;
    std::deque<Operation> operations;
    std::unique_ptr<SimGraph> capture;
    bool destroyed = false;
  };

  static Queue& queue(StreamRef stream) { return *static_cast<Queue*>(stream.handle); }
  static SimEvent& event(EventRef e) { return *static_cast<SimEvent*>(e.handle); }
  static SimGraph& graph(GraphRef g) { return *static_cast<SimGraph*>(g.handle); }
  bool immediate() const { return options_.order == QueueOrder::immediate; }

  template <class F>
  void submit(Queue& to, F&& run) {
    if (to.capture != nullptr)
      to.capture->operations.emplace_back(std::forward<F>(run));
    else if (immediate())
      run();
    else
      to.operations.push_back({std::forward<F>(run), nullptr});
  }

  // splitmix64 (Steele, Lea and Flood 2014).
  std::uint64_t draw() {
    std::uint64_t z = (random_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  // Runs one piece of work of a stream that can go on; false where there is none. An event that is
  // waited for was recorded earlier, so streams never wait in a circle.
  bool advance() {
    std::size_t ready = 0;
    for (const auto& q : queues_) ready += can_advance(*q);
    if (ready == 0) return false;
    std::size_t chosen = draw() % ready;
    for (const auto& q : queues_) {
      if (!can_advance(*q) || chosen-- != 0) continue;
      const Operation operation = std::move(q->operations.front());
      q->operations.pop_front();
      try {
        if (operation.run) operation.run();
      } catch (...) {
        if (error_ == nullptr) error_ = std::current_exception();
      }
      break;
    }
    std::erase_if(queues_, [](const auto& q) { return q->destroyed && q->operations.empty(); });
    return true;
  }
  static bool can_advance(const Queue& q) {
    if (q.operations.empty()) return false;
    const auto& mark = q.operations.front().waits_for;
    return mark == nullptr || mark->reached;
  }
  void throw_error() {
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  template <class Done>
  void advance_until(Done done) {
    while (!done() && advance()) {
    }
    throw_error();
  }
  // Asking lets some of the queued work happen, but not all of it.
  template <class Done>
  bool ask(Done done) {
    for (std::uint64_t pieces = 1 + draw() % 4; pieces != 0 && !done() && advance(); --pieces) {
    }
    if (!done()) return false;
    throw_error();
    return true;
  }

  void do_synchronize() override {
    advance_until([] { return false; });
  }
  void* do_allocate(std::size_t bytes) override { return emulator_.allocate(bytes); }
  void do_free(void* memory) noexcept override {
    while (advance()) {
    }
    try {
      emulator_.free(memory);
    } catch (...) {
      if (error_ == nullptr) error_ = std::current_exception();
    }
  }
  static constexpr std::align_val_t kPinnedAlignment{256};
  void* do_allocate_pinned(std::size_t bytes) override {
    void* memory = ::operator new(std::max<std::size_t>(bytes, 1), kPinnedAlignment, std::nothrow);
    ROUNDOFF_CHECK(memory != nullptr, "runtime", "cannot allocate ", bytes,
                   " bytes of pinned memory");
    return memory;
  }
  void do_free_pinned(void* memory) noexcept override {
    while (advance()) {
    }
    ::operator delete(memory, kPinnedAlignment);
  }

  StreamRef do_create_stream() override {
    queues_.push_back(std::make_unique<Queue>(*this));
    return {queues_.back().get()};
  }
  void do_destroy_stream(StreamRef stream) noexcept override {
    queue(stream).destroyed = true;  // what is queued still runs
    std::erase_if(queues_, [](const auto& q) { return q->destroyed && q->operations.empty(); });
  }
  void do_synchronize(StreamRef stream) override {
    advance_until([&q = queue(stream)] { return q.operations.empty(); });
  }
  bool do_query(StreamRef stream) override {
    return ask([&q = queue(stream)] { return q.operations.empty(); });
  }
  void do_copy(StreamRef stream, CopyKind kind, void* to, const void* from,
               std::size_t bytes) override {
    Emulator& e = emulator_;
    switch (kind) {
      case CopyKind::to_device:
        return submit(queue(stream), [&e, to, from, bytes] { e.copy_in(to, from, bytes); });
      case CopyKind::to_host:
        return submit(queue(stream), [&e, to, from, bytes] { e.copy_out(to, from, bytes); });
      case CopyKind::within:
        return submit(queue(stream), [&e, to, from, bytes] { e.copy_within(to, from, bytes); });
    }
  }
  void do_fill(StreamRef stream, void* to, unsigned char value, std::size_t bytes) override {
    Emulator& e = emulator_;
    submit(queue(stream), [&e, to, value, bytes] { e.fill(to, value, bytes); });
  }
  void do_call(StreamRef stream, std::function<void()> function) override {
    submit(queue(stream), std::move(function));
  }

  EventRef do_create_event() override { return {new SimEvent}; }
  void do_destroy_event(EventRef e) noexcept override { delete &event(e); }
  void do_record(EventRef e, StreamRef stream) override {
    event(e).mark = std::make_shared<Mark>();
    submit(queue(stream), [mark = event(e).mark] {
      mark->reached = true;
      mark->at = Clock::now();
    });
  }
  void do_wait(StreamRef stream, EventRef e) override {
    Queue& q = queue(stream);
    const auto& mark = event(e).mark;
    // In a graph the mark is of the same stream, which is in order anyway.
    if (mark == nullptr || mark->reached || q.capture != nullptr) return;
    q.operations.push_back({nullptr, mark});
  }
  static bool reached(const SimEvent& e) { return e.mark == nullptr || e.mark->reached; }
  bool do_query(EventRef e) override {
    return ask([&e = event(e)] { return reached(e); });
  }
  void do_synchronize(EventRef e) override {
    advance_until([&e = event(e)] { return reached(e); });
  }
  double do_milliseconds(EventRef from, EventRef to) override {
    return std::chrono::duration<double, std::milli>(event(to).mark->at - event(from).mark->at)
        .count();
  }

  void do_begin_capture(StreamRef stream) override {
    queue(stream).capture = std::make_unique<SimGraph>();
  }
  GraphRef do_end_capture(StreamRef stream, std::int64_t& kernels) override {
    kernels = queue(stream).capture->kernels;
    return {queue(stream).capture.release()};
  }
  void do_launch(GraphRef g, StreamRef stream) override {
    for (const std::function<void()>& operation : graph(g).operations) {
      if (immediate())
        operation();
      else
        queue(stream).operations.push_back({operation, nullptr});
    }
  }
  void do_destroy_graph(GraphRef g) noexcept override { delete &graph(g); }

  SimOptions options_;
  Emulator emulator_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::exception_ptr error_;
  std::uint64_t random_ = options_.order_seed;
};

}  // namespace

std::shared_ptr<Runtime> open_sim(const SimOptions& options) {
  return std::make_shared<SimRuntime>(options);
}

Emulator& emulator(Runtime& runtime) {
  auto* sim = dynamic_cast<SimRuntime*>(&runtime);
  ROUNDOFF_CHECK(sim != nullptr, "runtime", "only a runtime of sim has an emulator");
  return sim->device_emulator();
}

}  // namespace roundoff::simt
