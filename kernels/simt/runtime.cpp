#include "kernels/simt/runtime.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/simt/cuda_support.h"
#include "kernels/simt/runtime_sim.h"

namespace roundoff::simt {

RuntimeCounters operator-(const RuntimeCounters& after, const RuntimeCounters& before) {
  RuntimeCounters d;
  for (const auto field :
       {&RuntimeCounters::synchronisations, &RuntimeCounters::queries,
        &RuntimeCounters::allocations, &RuntimeCounters::releases, &RuntimeCounters::launches,
        &RuntimeCounters::copies, &RuntimeCounters::copied_bytes, &RuntimeCounters::fills,
        &RuntimeCounters::callbacks, &RuntimeCounters::graph_launches})
    d.*field = after.*field - before.*field;
  return d;
}

std::string refusal(Device device) {
  return device == Device::cuda ? cuda_refusal(cuda_facts()) : std::string();
}

std::shared_ptr<Runtime> open(Device device, int ordinal) {
  ROUNDOFF_CHECK(device != Device::cpu, "runtime", "cpu computes on the host and has no runtime");
  const std::string why = refusal(device);
  if (!why.empty()) throw DeviceAbsent("[runtime] " + why);
  if (device == Device::cuda) return open_cuda(ordinal);
  ROUNDOFF_CHECK(ordinal == 0, "runtime", "sim has one device, number ", ordinal, " was asked for");
  return open_sim({});
}

// ---- Runtime ------------------------------------------------------------------------------------

void Runtime::forbid_in_capture(const char* what) const {
  ROUNDOFF_CHECK(capturing_ == 0, "runtime", what,
                 " while a graph is captured: work that is captured does not run yet");
}

void Runtime::synchronize() {
  forbid_in_capture("synchronising");
  ++counters_.synchronisations;
  do_synchronize();
}

void* Runtime::allocate(std::size_t bytes) {
  forbid_in_capture("allocating");
  void* memory = do_allocate(bytes);
  ++counters_.allocations;
  allocated_[memory] = bytes;
  allocated_bytes_ += bytes;
  return memory;
}

void Runtime::free(void* memory) noexcept {
  if (memory == nullptr) return;
  if (capturing_ != 0) {
    postponed_.emplace_back(memory, /*pinned=*/false);
    return;
  }
  ++counters_.releases;
  ++counters_.synchronisations;
  if (const auto found = allocated_.find(memory); found != allocated_.end()) {
    allocated_bytes_ -= found->second;
    allocated_.erase(found);
  }
  do_free(memory);
}

void* Runtime::allocate_pinned(std::size_t bytes) {
  forbid_in_capture("allocating");
  void* memory = do_allocate_pinned(bytes);
  ++counters_.allocations;
  pinned_[static_cast<std::byte*>(memory)] = bytes;
  return memory;
}

void Runtime::free_pinned(void* memory) noexcept {
  if (memory == nullptr) return;
  if (capturing_ != 0) {
    postponed_.emplace_back(memory, /*pinned=*/true);
    return;
  }
  ++counters_.releases;
  ++counters_.synchronisations;
  pinned_.erase(static_cast<std::byte*>(memory));
  do_free_pinned(memory);
}

void Runtime::release_postponed() noexcept {
  for (const auto& [memory, pinned] : std::exchange(postponed_, {}))
    pinned ? free_pinned(memory) : free(memory);
}

bool Runtime::is_pinned(const void* memory, std::size_t bytes) const {
  const auto* first = static_cast<const std::byte*>(memory);
  const auto after = pinned_.upper_bound(first);
  if (after == pinned_.begin()) return false;
  const auto& [start, size] = *std::prev(after);
  const auto offset = static_cast<std::size_t>(first - start);
  return offset <= size && bytes <= size - offset;
}

// ---- Stream -------------------------------------------------------------------------------------

Stream::Stream(std::shared_ptr<Runtime> runtime)
    : runtime_(std::move(runtime)), ref_(runtime_->do_create_stream()) {}

Stream::~Stream() { release(); }

Stream::Stream(Stream&& other) noexcept
    : runtime_(std::move(other.runtime_)),
      ref_(std::exchange(other.ref_, {})),
      capturing_(std::exchange(other.capturing_, false)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this == &other) return *this;
  release();
  runtime_ = std::move(other.runtime_);
  ref_ = std::exchange(other.ref_, {});
  capturing_ = std::exchange(other.capturing_, false);
  return *this;
}

void Stream::release() noexcept {
  if (runtime_ == nullptr || ref_.handle == nullptr) return;
  if (capturing_) {
    try {
      (void)end_capture();
    } catch (...) {  // the graph is dropped either way
    }
  }
  runtime_->do_destroy_stream(ref_);
  ref_ = {};
}

void Stream::copy(Runtime::CopyKind kind, void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  ++runtime_->counters_.copies;
  runtime_->counters_.copied_bytes += static_cast<std::int64_t>(bytes);
  runtime_->do_copy(ref_, kind, to, from, bytes);
}

void Stream::copy_to_device(void* to, const void* from_pinned, std::size_t bytes) {
  ROUNDOFF_CHECK(bytes == 0 || runtime_->is_pinned(from_pinned, bytes), "runtime", "copying ",
                 bytes, " bytes to the device: the host's side is not pinned memory");
  copy(Runtime::CopyKind::to_device, to, from_pinned, bytes);
}

void Stream::copy_to_host(void* to_pinned, const void* from, std::size_t bytes) {
  ROUNDOFF_CHECK(bytes == 0 || runtime_->is_pinned(to_pinned, bytes), "runtime", "copying ", bytes,
                 " bytes to the host: the host's side is not pinned memory");
  copy(Runtime::CopyKind::to_host, to_pinned, from, bytes);
}

void Stream::copy_within(void* to, const void* from, std::size_t bytes) {
  copy(Runtime::CopyKind::within, to, from, bytes);
}

void Stream::fill(void* to, unsigned char value, std::size_t bytes) {
  if (bytes == 0) return;
  ++runtime_->counters_.fills;
  runtime_->do_fill(ref_, to, value, bytes);
}

void Stream::upload(void* to, const void* from, std::size_t bytes) {
  runtime_->forbid_in_capture("uploading");
  copy(Runtime::CopyKind::to_device, to, from, bytes);
  synchronize();
}

void Stream::download(void* to, const void* from, std::size_t bytes) {
  runtime_->forbid_in_capture("downloading");
  copy(Runtime::CopyKind::to_host, to, from, bytes);
  synchronize();
}

void Stream::call(std::function<void()> function) {
  ++runtime_->counters_.callbacks;
  runtime_->do_call(ref_, std::move(function));
}

void Stream::wait(const Event& event) {
  ROUNDOFF_CHECK(&event.runtime() == runtime_.get(), "runtime",
                 "a stream cannot wait for an event of another device");
  ROUNDOFF_CHECK(event.in_capture_ == capturing_ || !event.recorded_, "runtime",
                 capturing_ ? "a captured stream cannot wait for work that is not in the graph"
                            : "a stream cannot wait for work that is in a graph");
  runtime_->do_wait(ref_, event.ref_);
}

bool Stream::query() {
  runtime_->forbid_in_capture("querying");
  ++runtime_->counters_.queries;
  return runtime_->do_query(ref_);
}

void Stream::synchronize() {
  runtime_->forbid_in_capture("synchronising");
  ++runtime_->counters_.synchronisations;
  runtime_->do_synchronize(ref_);
}

void Stream::begin_capture() {
  runtime_->forbid_in_capture("capturing another graph");
  runtime_->do_begin_capture(ref_);
  capturing_ = true;
  ++runtime_->capturing_;
}

Graph Stream::end_capture() {
  ROUNDOFF_CHECK(capturing_, "runtime", "no graph is being captured on this stream");
  capturing_ = false;
  --runtime_->capturing_;
  std::int64_t kernels = 0;
  GraphRef graph;
  try {
    graph = runtime_->do_end_capture(ref_, kernels);
  } catch (...) {
    runtime_->release_postponed();
    throw;
  }
  runtime_->release_postponed();
  return {runtime_, graph, kernels};
}

// ---- Event --------------------------------------------------------------------------------------

Event::Event(std::shared_ptr<Runtime> runtime)
    : runtime_(std::move(runtime)), ref_(runtime_->do_create_event()) {}

Event::~Event() { release(); }

Event::Event(Event&& other) noexcept
    : runtime_(std::move(other.runtime_)),
      ref_(std::exchange(other.ref_, {})),
      recorded_(other.recorded_),
      in_capture_(other.in_capture_) {}

Event& Event::operator=(Event&& other) noexcept {
  if (this == &other) return *this;
  release();
  runtime_ = std::move(other.runtime_);
  ref_ = std::exchange(other.ref_, {});
  recorded_ = other.recorded_;
  in_capture_ = other.in_capture_;
  return *this;
}

void Event::release() noexcept {
  if (runtime_ != nullptr && ref_.handle != nullptr) runtime_->do_destroy_event(ref_);
  ref_ = {};
}

void Event::record(Stream& stream) {
  ROUNDOFF_CHECK(&stream.runtime() == runtime_.get(), "runtime",
                 "an event cannot be recorded on another device");
  runtime_->do_record(ref_, stream.ref_);
  recorded_ = true;
  in_capture_ = stream.capturing_;
}

bool Event::query() const {
  runtime_->forbid_in_capture("querying");
  ROUNDOFF_CHECK(!in_capture_, "runtime", "an event that was recorded in a graph has no state");
  ++runtime_->counters_.queries;
  return runtime_->do_query(ref_);
}

void Event::synchronize() const {
  runtime_->forbid_in_capture("synchronising");
  ROUNDOFF_CHECK(!in_capture_, "runtime", "an event that was recorded in a graph has no state");
  ++runtime_->counters_.synchronisations;
  runtime_->do_synchronize(ref_);
}

double Event::milliseconds_since(const Event& earlier) const {
  ROUNDOFF_CHECK(earlier.query() && query() && recorded_ && earlier.recorded_, "runtime",
                 "the time between events whose work is not done");
  return runtime_->do_milliseconds(earlier.ref_, ref_);
}

// ---- Graph --------------------------------------------------------------------------------------

Graph::~Graph() { release(); }

Graph::Graph(Graph&& other) noexcept
    : runtime_(std::move(other.runtime_)),
      ref_(std::exchange(other.ref_, {})),
      kernels_(other.kernels_) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  if (this == &other) return *this;
  release();
  runtime_ = std::move(other.runtime_);
  ref_ = std::exchange(other.ref_, {});
  kernels_ = other.kernels_;
  return *this;
}

void Graph::release() noexcept {
  if (runtime_ != nullptr && ref_.handle != nullptr) runtime_->do_destroy_graph(ref_);
  ref_ = {};
}

void Graph::launch(Stream& stream) {
  ROUNDOFF_CHECK(&stream.runtime() == runtime_.get(), "runtime",
                 "a graph cannot be launched on another device");
  runtime_->forbid_in_capture("launching a graph");
  ++runtime_->counters_.graph_launches;
  runtime_->counters_.launches += kernels_;
  runtime_->do_launch(ref_, stream.ref_);
}

}  // namespace roundoff::simt
