// Groups the accesses of lanes into requests of warps and counts what the memory makes of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "kernels/simt/emulator/cluster.h"
#include "kernels/simt/emulator/monitor.h"
#include "kernels/simt/emulator/profiler/profile.h"
#include "kernels/simt/emulator/sanitizer/lines.h"
#include "kernels/simt/emulator/sanitizer/sanitizer.h"

namespace roundoff::simt {

class Profiler {
 public:
  explicit Profiler(SourceLines& lines) : source_(lines) {}

  void launch_begin(const LaunchConfig& launch);
  void launch_end(Counters& counters);
  void cluster_begin(Cluster& cluster);
  void cluster_end(bool faulted);

  void access(Thread& thread, const Place& place, const void* p, std::size_t bytes, Access kind,
              const void* code, Site site);
  // Addresses of shared memory that one instruction hands over: of a warp, `bytes` each.
  void shared_request(const void* const* addresses, unsigned count, unsigned bytes, Access kind,
                      Site site);

  Profile profile();
  void reset();

 private:
  struct Key {
    std::uintptr_t code = 0;  // or the site's file
    int line = 0;             // of the site
    RequestKind kind{};
    std::uint32_t kernel = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& k) const {
      const std::size_t h = k.code * 0x9E3779B97F4A7C15ULL;
      return h ^ (h >> 29) ^ (static_cast<std::size_t>(k.line) << 8) ^
             (static_cast<std::size_t>(k.kernel) << 24) ^ static_cast<std::size_t>(k.kind);
    }
  };
  struct Line {
    Key key;
    RequestCounts counts;
  };
  struct Request {
    std::uint32_t lanes = 0;
    std::uint32_t bytes = 0;
    std::array<std::uintptr_t, kWarp> address;
  };
  // The requests of one warp from one place that wait for more lanes.
  struct Stream {
    std::array<std::uint32_t, kWarp> next{};  // of each lane
    std::uint32_t first = 0;                  // the number of the first in `open`
    std::deque<Request> open;
  };

  std::uint32_t line_of(const Key& key);
  void add(Thread& thread, std::uint32_t line, std::uintptr_t p, std::uint32_t bytes);
  void finish(std::uint32_t line, const Request& request);
  void count(std::uint32_t line, const RequestCounts& counts);

  SourceLines& source_;
  std::vector<std::string> kernels_;
  std::uint32_t kernel_ = 0;
  std::vector<Line> lines_;
  std::unordered_map<Key, std::uint32_t, Hash> number_;
  std::vector<std::unordered_map<std::uint32_t, Stream>> streams_;  // by rank and warp
  std::vector<LaunchProfile> launches_;
  Cluster* cluster_ = nullptr;
};

}  // namespace roundoff::simt
