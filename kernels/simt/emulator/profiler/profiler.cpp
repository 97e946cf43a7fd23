#include "kernels/simt/emulator/profiler/profiler.h"

#include <algorithm>
#include <bit>

namespace roundoff::simt {

namespace {

constexpr std::uintptr_t kSector = 32;
constexpr std::uintptr_t kBankBytes = 4;
constexpr std::size_t kBanks = 32;
constexpr std::uint32_t kWidest = 16;  // bytes a lane in one request

bool is_shared(RequestKind kind) { return kind >= RequestKind::shared_load; }

RequestKind request_kind(bool shared, Access kind) {
  unsigned k = shared ? 3 : 0;
  if (kind == Access::atomic) k += 2;
  if (kind == Access::write || kind == Access::strong_write) k += 1;
  return static_cast<RequestKind>(k);
}

RequestCounts& of(LaunchProfile& launch, RequestKind kind) {
  RequestCounts* const all[] = {&launch.global_loads,   &launch.global_stores,
                                &launch.global_atomics, &launch.shared_loads,
                                &launch.shared_stores,  &launch.shared_atomics};
  return *all[static_cast<int>(kind)];
}

std::uint64_t distinct(std::uintptr_t* begin, std::uintptr_t* end) {
  std::sort(begin, end);
  return static_cast<std::uint64_t>(std::unique(begin, end) - begin);
}

// Passes over the banks for accesses that are served together: a bank gives one word a pass, to all
// who ask for it. Atomics of one word take turns.
std::uint64_t passes(const std::uintptr_t* addresses, unsigned count, std::uint32_t bytes,
                     bool atomic) {
  std::uintptr_t words[kWarp * (kWidest / kBankBytes + 1)];
  std::uintptr_t* end = words;
  for (unsigned i = 0; i < count; ++i)
    for (std::uintptr_t w = addresses[i] / kBankBytes; w <= (addresses[i] + bytes - 1) / kBankBytes;
         ++w)
      *end++ = w;
  if (!atomic) end = words + distinct(words, end);
  std::array<std::uint64_t, kBanks> asked{};
  for (const std::uintptr_t* w = words; w != end; ++w) ++asked[*w % kBanks];
  return *std::max_element(asked.begin(), asked.end());
}

}  // namespace

void Profiler::launch_begin(const LaunchConfig& launch) {
  const auto known = std::find(kernels_.begin(), kernels_.end(), launch.name);
  kernel_ = static_cast<std::uint32_t>(known - kernels_.begin());
  if (known == kernels_.end()) kernels_.emplace_back(launch.name);
  launches_.push_back({});
  launches_.back().kernel = launch.name;
}

void Profiler::launch_end(Counters& counters) {
  const LaunchProfile& launch = launches_.back();
  counters.global_load_requests += launch.global_loads.requests;
  counters.global_load_sectors += launch.global_loads.sectors;
  counters.global_load_bytes += launch.global_loads.bytes;
  counters.global_store_requests += launch.global_stores.requests;
  counters.global_store_sectors += launch.global_stores.sectors;
  counters.global_store_bytes += launch.global_stores.bytes;
  counters.shared_load_requests += launch.shared_loads.requests;
  counters.shared_load_wavefronts += launch.shared_loads.wavefronts;
  counters.shared_store_requests += launch.shared_stores.requests;
  counters.shared_store_wavefronts += launch.shared_stores.wavefronts;
  counters.shared_excess_wavefronts += launch.shared_loads.excess_wavefronts +
                                       launch.shared_stores.excess_wavefronts +
                                       launch.shared_atomics.excess_wavefronts;
}

void Profiler::cluster_begin(Cluster& cluster) {
  cluster_ = &cluster;
  streams_.resize(std::size_t{cluster.blocks} * kMaxWarps);
}

void Profiler::cluster_end(bool faulted) {
  for (auto& warp : streams_) {
    if (!faulted)
      for (const auto& [line, stream] : warp)
        for (const Request& request : stream.open) finish(line, request);
    warp.clear();
  }
}

std::uint32_t Profiler::line_of(const Key& key) {
  const auto [at, is_new] = number_.try_emplace(key, static_cast<std::uint32_t>(lines_.size()));
  if (is_new) lines_.push_back({key, {}});
  return at->second;
}

void Profiler::access(Thread& thread, const Place& place, const void* p, std::size_t bytes,
                      Access kind, const void* code, Site site) {
  Key key;
  key.code = code != nullptr ? reinterpret_cast<std::uintptr_t>(code)
                             : reinterpret_cast<std::uintptr_t>(site.file);
  key.line = code != nullptr ? 0 : site.line;
  key.kind = request_kind(place.space == Place::Space::shared, kind);
  key.kernel = kernel_;
  const std::uint32_t line = line_of(key);
  // As the hardware sees it; a block's window is aligned far beyond a bank's or a sector's size.
  auto at = reinterpret_cast<std::uintptr_t>(p);
  while (bytes != 0) {
    const auto here = static_cast<std::uint32_t>(std::min<std::size_t>(bytes, kWidest));
    add(thread, line, at, here);
    at += here;
    bytes -= here;
  }
}

void Profiler::add(Thread& thread, std::uint32_t line, std::uintptr_t p, std::uint32_t bytes) {
  const std::size_t warp = thread.geometry->cluster_rank * kMaxWarps + thread.warp;
  Stream& stream = streams_[warp][line];
  const std::uint32_t number = stream.next[thread.lane]++ - stream.first;
  while (stream.open.size() <= number) stream.open.emplace_back();
  Request& request = stream.open[number];
  request.address[thread.lane] = p;
  request.bytes = std::max(request.bytes, bytes);
  request.lanes |= 1U << thread.lane;
  const std::uint32_t live = thread.block->warps[thread.warp].live;
  // In the order of their numbers: those before have all lanes that will come.
  while (!stream.open.empty() && (stream.open.front().lanes & live) == live) {
    finish(line, stream.open.front());
    stream.open.pop_front();
    ++stream.first;
  }
}

void Profiler::count(std::uint32_t line, const RequestCounts& counts) {
  lines_[line].counts += counts;
  of(launches_.back(), lines_[line].key.kind) += counts;
}

void Profiler::finish(std::uint32_t line, const Request& request) {
  const RequestKind kind = lines_[line].key.kind;
  RequestCounts c;
  c.requests = 1;
  c.lanes = static_cast<std::uint64_t>(std::popcount(request.lanes));
  c.bytes = c.lanes * request.bytes;
  if (!is_shared(kind)) {
    std::uintptr_t sectors[2 * kWarp];
    std::uintptr_t addresses[kWarp];
    std::uintptr_t* end = sectors;
    std::uintptr_t* last = addresses;
    for (std::uint32_t m = request.lanes; m != 0; m &= m - 1) {
      const std::uintptr_t p = request.address[static_cast<std::size_t>(std::countr_zero(m))];
      *last++ = p;
      for (std::uintptr_t s = p / kSector; s <= (p + request.bytes - 1) / kSector; ++s) *end++ = s;
    }
    c.sectors = distinct(sectors, end);
    c.least_sectors = (distinct(addresses, last) * request.bytes + kSector - 1) / kSector;
  } else {
    const unsigned together = request.bytes <= 4 ? 32 : request.bytes <= 8 ? 16 : 8;
    for (unsigned first = 0; first < kWarp; first += together) {
      std::uintptr_t addresses[kWarp];
      unsigned n = 0;
      for (unsigned lane = first; lane < first + together; ++lane)
        if ((request.lanes >> lane & 1U) != 0) addresses[n++] = request.address[lane];
      if (n == 0) continue;
      const std::uint64_t w =
          passes(addresses, n, request.bytes, kind == RequestKind::shared_atomic);
      c.wavefronts += w;
      c.excess_wavefronts += w - 1;
    }
  }
  count(line, c);
}

void Profiler::shared_request(const void* const* addresses, unsigned n, unsigned bytes, Access kind,
                              Site site) {
  if (n == 0 || bytes == 0) return;
  Key key;
  key.code = reinterpret_cast<std::uintptr_t>(site.file);
  key.line = site.line;
  key.kind = request_kind(true, kind);
  key.kernel = kernel_;
  RequestCounts c;
  c.requests = 1;
  c.lanes = n;
  c.bytes = std::uint64_t{n} * bytes;
  const unsigned together = bytes <= 4 ? 32 : bytes <= 8 ? 16 : 8;
  for (unsigned first = 0; first < n; first += together) {
    std::uintptr_t group[kWarp];
    const unsigned here = std::min(together, n - first);
    for (unsigned i = 0; i < here; ++i)
      group[i] = reinterpret_cast<std::uintptr_t>(addresses[first + i]);
    const std::uint64_t w = passes(group, here, bytes, false);
    c.wavefronts += w;
    c.excess_wavefronts += w - 1;
  }
  count(line_of(key), c);
}

Profile Profiler::profile() {
  Profile all;
  all.launches = launches_;
  for (const Line& l : lines_) {
    LineProfile line;
    line.kernel = kernels_[l.key.kernel];
    line.kind = l.key.kind;
    line.counts = l.counts;
    if (l.key.line != 0) {
      line.file = reinterpret_cast<const char*>(l.key.code);
      line.line = l.key.line;
    } else {
      const SourcePlace& place = source_.find(reinterpret_cast<const void*>(l.key.code));
      line.file = place.file;
      line.line = place.line;
      line.function = place.function;
    }
    // Several instructions of one line are shown as one.
    const auto same = std::find_if(all.lines.begin(), all.lines.end(), [&](const LineProfile& o) {
      return o.line == line.line && o.kind == line.kind && o.kernel == line.kernel &&
             o.file == line.file && (line.line != 0 || o.function == line.function);
    });
    if (same == all.lines.end()) {
      all.lines.push_back(std::move(line));
    } else {
      same->counts += l.counts;
    }
  }
  std::sort(all.lines.begin(), all.lines.end(), [](const LineProfile& a, const LineProfile& b) {
    const std::uint64_t x = a.counts.sectors + a.counts.wavefronts;
    const std::uint64_t y = b.counts.sectors + b.counts.wavefronts;
    if (x != y) return x > y;
    if (a.kernel != b.kernel) return a.kernel < b.kernel;
    if (a.file != b.file) return a.file < b.file;
    if (a.line != b.line) return a.line < b.line;
    if (a.kind != b.kind) return a.kind < b.kind;
    return a.function < b.function;
  });
  return all;
}

void Profiler::reset() {
  kernels_.clear();
  lines_.clear();
  number_.clear();
  launches_.clear();
}

}  // namespace roundoff::simt
