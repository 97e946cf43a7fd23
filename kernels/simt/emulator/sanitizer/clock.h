// Vector clocks: for every thread of a cluster, up to which of its times something is known. They
// are shared until one is written, because after a barrier all threads know the same.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace roundoff::simt {

// Memory of clocks of one length. A fault leaves a kernel's stacks without running destructors, so
// what they held is taken back as a whole by reset().
class ClockPool {
 public:
  struct Node {
    ClockPool* pool = nullptr;
    unsigned users = 0;
    std::vector<std::uint32_t> time;
  };
  // No clock may be in use.
  void reset(std::size_t length);
  Node* make();
  Node* make(const Node& from);
  void give_back(Node* node) { free_.push_back(node); }

 private:
  std::size_t length_ = 0;
  std::vector<std::unique_ptr<Node>> all_;
  std::vector<Node*> free_;
};

// A handle of a clock; an empty one knows nothing.
class Clock {
 public:
  Clock() = default;
  explicit Clock(ClockPool& pool) : node_(pool.make()) { ++node_->users; }
  Clock(const Clock& other) : node_(other.node_) {
    if (node_ != nullptr) ++node_->users;
  }
  Clock(Clock&& other) noexcept : node_(std::exchange(other.node_, nullptr)) {}
  Clock& operator=(Clock other) noexcept {
    std::swap(node_, other.node_);
    return *this;
  }
  ~Clock() {
    if (node_ != nullptr && --node_->users == 0) node_->pool->give_back(node_);
  }

  explicit operator bool() const { return node_ != nullptr; }
  bool same(const Clock& other) const { return node_ == other.node_; }
  // Drops the handle without a word to the pool, which is about to be reset.
  void abandon() { node_ = nullptr; }
  std::uint32_t operator[](std::size_t i) const { return node_ == nullptr ? 0 : node_->time[i]; }
  const std::vector<std::uint32_t>& times() const { return node_->time; }

  // Knows afterwards what either knew.
  void join(const Clock& other);
  void join(ClockPool& pool, const std::vector<std::uint32_t>& times);
  // The 32 entries from `first` on become at least `values`.
  void raise(ClockPool& pool, std::size_t first, const std::array<std::uint32_t, 32>& values);
  void raise(ClockPool& pool, std::size_t i, std::uint32_t value);

 private:
  void own(ClockPool& pool);
  ClockPool::Node* node_ = nullptr;
};

// What is known of clusters that ran before in the same launch: by the cluster's number.
using ForeignMap = std::map<std::uint32_t, std::shared_ptr<const std::vector<std::uint32_t>>>;
using Foreign = std::shared_ptr<const ForeignMap>;
void join(Foreign& mine, const Foreign& other);

// A thread's knowledge of its cluster. What it knows of its own warp stands apart, so that warps
// that meet need not write whole clocks.
struct Known {
  Clock base;
  std::array<std::uint32_t, 32> warp{};
  bool any = false;

  bool knows(std::uint32_t thread, std::uint32_t time, std::uint32_t my_warp) const {
    return (thread / 32 == my_warp ? warp[thread % 32] : base[thread]) >= time;
  }
  void join(const Clock& other, std::uint32_t my_warp) {
    if (!other) return;
    base.join(other);
    for (std::size_t l = 0; l < 32; ++l) warp[l] = std::max(warp[l], other[my_warp * 32 + l]);
    any = true;
  }
  void add_to(ClockPool& pool, Clock& clock, std::uint32_t my_warp) const {
    clock.join(base);
    clock.raise(pool, std::size_t{my_warp} * 32, warp);
  }
};

}  // namespace roundoff::simt
