#include "kernels/simt/emulator/emulator.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/memory.h"
#include "kernels/simt/emulator/watcher.h"

namespace roundoff::simt {

const char* name(Schedule schedule) {
  constexpr const char* kNames[] = {"depth-first", "breadth-first", "reverse", "random"};
  return kNames[static_cast<int>(schedule)];
}
const char* name(Async async) {
  constexpr const char* kNames[] = {"eager", "late", "random"};
  return kNames[static_cast<int>(async)];
}

Config with_schedule(Config config, std::uint64_t k) {
  config.schedule = static_cast<Schedule>(k % 4);
  config.async = static_cast<Async>((k + k / 4) % 3);
  config.seed = k + 1;
  constexpr unsigned kPreempt[] = {0, 50, 7, 300};
  config.preempt_one_in = kPreempt[k / 2 % 4];
  config.shuffle_blocks = k % 4 == 3 || k % 8 == 6;
  return config;
}

std::string schedule_text(const Config& config) {
  std::string text = concat("schedule ", name(config.schedule), ", copies ", name(config.async),
                            ", seed ", config.seed);
  if (config.preempt_one_in != 0) text = concat(text, ", preempted one in ", config.preempt_one_in);
  if (config.shuffle_blocks) text += ", blocks shuffled";
  return text;
}

namespace {

// f(field of a, field of b) into a, for every field.
template <class F>
void for_each_field(Counters& a, const Counters& b, F f) {
  static_assert(std::is_trivially_copyable_v<Counters> &&
                sizeof(Counters) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t kFields = sizeof(Counters) / sizeof(std::uint64_t);
  std::uint64_t mine[kFields];
  std::uint64_t others[kFields];
  std::memcpy(mine, &a, sizeof(Counters));
  std::memcpy(others, &b, sizeof(Counters));
  for (std::size_t i = 0; i < kFields; ++i) mine[i] = f(mine[i], others[i]);
  std::memcpy(static_cast<void*>(&a), mine, sizeof(Counters));
}

}  // namespace

Counters& Counters::operator+=(const Counters& other) {
  for_each_field(*this, other, [](std::uint64_t a, std::uint64_t b) { return a + b; });
  return *this;
}

Counters LaunchRecord::scaled() const {
  Counters all = counters;
  if (ran == 0 || ran == clusters) return all;
  for_each_field(all, all, [this](std::uint64_t count, std::uint64_t) {
    // count = whole ran + rest, so that nothing overflows that the result does not.
    const std::uint64_t whole = count / ran, rest = count % ran;
    return whole * clusters + (2 * rest * clusters + ran) / (2 * ran);
  });
  all.launches = counters.launches;
  return all;
}

// The worker threads, each with the state of a cluster; the host's own thread is the first.
struct Emulator::Workers {
  explicit Workers(Emulator& emulator) : device(emulator) {}
  ~Workers() {
    {
      const std::lock_guard lock(mutex);
      quit = true;
    }
    begin.notify_all();
    for (std::thread& t : threads) t.join();
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  Cluster& cluster(std::size_t worker) {
    while (clusters.size() <= worker) clusters.push_back(std::make_unique<Cluster>(device));
    return *clusters[worker];
  }

  // Calls job(worker) on `count` workers and waits for all of them. A job does not throw.
  void run(unsigned count, const std::function<void(unsigned)>& job) {
    for (unsigned w = 0; w < count; ++w) cluster(w);
    if (count == 1) {
      job(0);
      return;
    }
    while (threads.size() + 1 < count)
      threads.emplace_back([this, id = static_cast<unsigned>(threads.size()) + 1] { serve(id); });
    {
      const std::lock_guard lock(mutex);
      current = &job;
      wanted = count;
      left = count - 1;
      ++generation;
    }
    begin.notify_all();
    job(0);
    std::unique_lock lock(mutex);
    done.wait(lock, [this] { return left == 0; });
    current = nullptr;
  }

  void serve(unsigned id) {
    std::uint64_t seen = 0;
    for (;;) {
      const std::function<void(unsigned)>* job = nullptr;
      {
        std::unique_lock lock(mutex);
        begin.wait(lock, [&] { return quit || (generation != seen && current != nullptr); });
        if (quit) return;
        seen = generation;
        if (id >= wanted) continue;
        job = current;
      }
      (*job)(id);
      const std::lock_guard lock(mutex);
      if (--left == 0) done.notify_one();
    }
  }

  Emulator& device;
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable begin, done;
  const std::function<void(unsigned)>* current = nullptr;
  std::uint64_t generation = 0;
  unsigned wanted = 0;
  unsigned left = 0;
  bool quit = false;
};

Emulator::Emulator(const Config& c)
    : config(c), memory_(std::make_unique<Memory>()), workers_(std::make_unique<Workers>(*this)) {}
Emulator::~Emulator() = default;

void* Emulator::allocate(std::size_t bytes) {
  if (config.sanitize) monitor();
  const Memory::Open open(*memory_, config.guard_host);
  void* p = memory_->allocate(bytes);
  if (watcher_ != nullptr) watcher_->allocated(p, bytes);
  return p;
}

void Emulator::free(void* p) {
  if (p == nullptr) return;
  const Allocation* a = memory_->find(p);
  const std::size_t bytes = a != nullptr ? a->bytes : 0;
  memory_->free(p);
  if (watcher_ != nullptr) watcher_->freed(p, bytes);
}

std::size_t Emulator::allocated_bytes() const { return memory_->allocated_bytes(); }
bool Emulator::owns(const void* p) const { return memory_->owns(p); }

void Emulator::copy_in(void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return;
  memory_->check_range(device, bytes, "copy to the device");
  const Memory::Open open(*memory_, config.guard_host);
  std::memcpy(device, host, bytes);
  if (watcher_ != nullptr) watcher_->host_wrote(device, bytes);
}

void Emulator::copy_out(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return;
  memory_->check_range(device, bytes, "copy from the device");
  const Memory::Open open(*memory_, config.guard_host);
  std::memcpy(host, device, bytes);
}

void Emulator::copy_within(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  memory_->check_range(from, bytes, "copy on the device");
  memory_->check_range(to, bytes, "copy on the device");
  const Memory::Open open(*memory_, config.guard_host);
  std::memmove(to, from, bytes);
  if (watcher_ != nullptr) watcher_->host_wrote(to, bytes);
}

void Emulator::fill(void* device, int byte, std::size_t bytes) {
  if (bytes == 0) return;
  memory_->check_range(device, bytes, "fill on the device");
  const Memory::Open open(*memory_, config.guard_host);
  std::memset(device, byte, bytes);
  if (watcher_ != nullptr) watcher_->host_wrote(device, bytes);
}

namespace {

void check_launch(const LaunchConfig& launch, const Config& config) {
  const std::size_t threads = launch.block.count();
  ROUNDOFF_CHECK(launch.grid.count() != 0 && launch.grid.x <= 0x7FFFFFFFU &&
                     launch.grid.y <= 65535 && launch.grid.z <= 65535,
                 launch.name, "grid ", launch.grid.x, "x", launch.grid.y, "x", launch.grid.z,
                 ": 1 to 2147483647 x 65535 x 65535 blocks expected");
  ROUNDOFF_CHECK(threads != 0 && threads <= kMaxThreads && launch.block.z <= 64, launch.name,
                 "block ", launch.block.x, "x", launch.block.y, "x", launch.block.z,
                 ": 1 to 1024 threads expected");
  ROUNDOFF_CHECK(launch.shared <= config.max_shared, launch.name, launch.shared,
                 " bytes of dynamic shared memory, at most ", config.max_shared, " expected");
  const std::size_t cluster = launch.cluster.count();
  ROUNDOFF_CHECK(cluster != 0 && cluster <= kMaxCluster && launch.grid.x % launch.cluster.x == 0 &&
                     launch.grid.y % launch.cluster.y == 0 && launch.grid.z % launch.cluster.z == 0,
                 launch.name, "clusters of ", launch.cluster.x, "x", launch.cluster.y, "x",
                 launch.cluster.z, " do not divide the grid ", launch.grid.x, "x", launch.grid.y,
                 "x", launch.grid.z, ", or have more than 16 blocks");
  ROUNDOFF_CHECK(config.architecture == SimArchitecture::sm_90a ||
                     (launch.needs == Architecture::any && cluster == 1),
                 launch.name, "is written for ",
                 launch.needs == Architecture::sm_90a ? "sm_90a" : "clusters (sm_90 and later)",
                 ", this simulated device is sm_80; its body would be empty here");
}

TensorCoreModel model_of(const LaunchConfig& launch) {
  switch (*launch.tensor_core) {
    case Accumulator::fp32:
      return TensorCoreModel::fp32;
    case Accumulator::v100:
      return TensorCoreModel::v100;
    case Accumulator::a100:
      return TensorCoreModel::a100;
    case Accumulator::h100:
      return TensorCoreModel::h100;
    default:
      fail(launch.name, "no tensor cores add in ", name(*launch.tensor_core));
  }
}

}  // namespace

Monitor& Emulator::monitor() {
  if (watcher_ == nullptr) watcher_ = std::make_unique<Watcher>(*this);
  return *watcher_;
}

Profile Emulator::profile() const { return watcher_ == nullptr ? Profile{} : watcher_->profile(); }
void Emulator::reset_profile() {
  if (watcher_ != nullptr) watcher_->reset_profile();
}

void Emulator::run(const LaunchConfig& launch, bool checked, const std::function<void()>& body) {
  ROUNDOFF_CHECK(current() == nullptr, launch.name, "launched from inside a kernel");
  check_launch(launch, config);
  Monitor* watcher = checked && (config.sanitize || config.profile) ? &monitor() : nullptr;
  const std::size_t clusters = launch.grid.count() / launch.cluster.count();
  const std::size_t wanted =
      config.sample_clusters == 0 ? clusters : std::min(clusters, config.sample_clusters);
  std::vector<std::uint32_t> order;
  if (config.shuffle_blocks || wanted != clusters) {
    order.resize(wanted);
    // One of each of as many pieces of the grid: the middle of a few, and of many a place that is
    // drawn, always alike, so that they do not fall into step with rows of the grid.
    constexpr std::size_t kFew = 8;
    std::mt19937_64 places(wanted);
    for (std::size_t i = 0; i < wanted; ++i) {
      const std::size_t first = i * clusters / wanted, end = (i + 1) * clusters / wanted;
      order[i] = static_cast<std::uint32_t>(wanted <= kFew || wanted == clusters
                                                ? (2 * i + 1) * clusters / (2 * wanted)
                                                : first + places() % (end - first));
    }
  }
  if (config.shuffle_blocks) {
    std::mt19937_64 random(config.seed);
    std::shuffle(order.begin(), order.end(), random);
  }
  const auto count = static_cast<unsigned>(
      watcher != nullptr ? 1 : std::clamp<std::size_t>(config.workers, 1, wanted));

  const Memory::Open open(*memory_, config.guard_host);
  const Counters before = counters_;
  ++counters_.launches;
  if (watcher != nullptr) watcher->launch_begin(launch);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::exception_ptr error;
  std::size_t error_at = 0;
  const std::function<void(unsigned)> work = [&](unsigned worker) {
    Cluster& cluster = *workers_->clusters[worker];
    cluster.config = config;
    if (launch.tensor_core) cluster.config.tensor_core = model_of(launch);
    cluster.monitor = watcher;
    while (!stop.load(std::memory_order_relaxed)) {
      const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= wanted) break;
      try {
        cluster.run(launch, body, order.empty() ? i : order[i]);
      } catch (...) {
        // Blocks are started in order, so the first fault in that order is the one that one worker
        // would have met.
        const std::lock_guard lock(mutex);
        if (error == nullptr || i < error_at) {
          error = std::current_exception();
          error_at = i;
        }
        stop = true;
      }
    }
  };
  workers_->run(count, work);
  for (unsigned w = 0; w < count; ++w) {
    counters_ += workers_->clusters[w]->counters;
    workers_->clusters[w]->counters = {};
  }
  if (watcher != nullptr) {
    watcher->launch_end(counters_);
  } else if (watcher_ != nullptr) {
    watcher_->unwatched();
  }
  if (error != nullptr) std::rethrow_exception(error);
  if (config.record_launches) {
    LaunchRecord record{launch, clusters, wanted, counters_};
    for_each_field(record.counters, before, [](std::uint64_t a, std::uint64_t b) { return a - b; });
    launches_.push_back(record);
  }
}

}  // namespace roundoff::simt
