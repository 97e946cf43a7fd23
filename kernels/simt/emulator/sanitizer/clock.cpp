#include "kernels/simt/emulator/sanitizer/clock.h"

namespace roundoff::simt {

void ClockPool::reset(std::size_t length) {
  if (length != length_) {
    all_.clear();
    length_ = length;
  }
  free_.clear();
  for (const auto& node : all_) {
    node->users = 0;
    free_.push_back(node.get());
  }
}

ClockPool::Node* ClockPool::make() {
  if (free_.empty()) {
    all_.push_back(std::make_unique<Node>());
    Node* node = all_.back().get();
    node->pool = this;
    node->time.assign(length_, 0);
    return node;
  }
  Node* node = free_.back();
  free_.pop_back();
  std::fill(node->time.begin(), node->time.end(), 0U);
  return node;
}

ClockPool::Node* ClockPool::make(const Node& from) {
  if (free_.empty()) {
    Node* node = make();
    node->time = from.time;
    return node;
  }
  Node* node = free_.back();
  free_.pop_back();
  node->time = from.time;
  return node;
}

void Clock::own(ClockPool& pool) {
  if (node_ == nullptr) {
    node_ = pool.make();
    node_->users = 1;
  } else if (node_->users > 1) {
    ClockPool::Node* copy = pool.make(*node_);
    --node_->users;
    copy->users = 1;
    node_ = copy;
  }
}

void Clock::join(const Clock& other) {
  if (other.node_ == nullptr || other.node_ == node_) return;
  if (node_ == nullptr) {
    *this = other;
    return;
  }
  const std::size_t n = node_->time.size();
  const std::uint32_t* b = other.node_->time.data();
  {
    const std::uint32_t* a = node_->time.data();
    std::uint32_t more = 0;
    std::uint32_t less = 0;
    for (std::size_t i = 0; i < n; ++i) {
      more |= a[i] > b[i] ? 1U : 0U;
      less |= a[i] < b[i] ? 1U : 0U;
    }
    if (less == 0) return;
    if (more == 0) {
      *this = other;
      return;
    }
  }
  own(*node_->pool);
  std::uint32_t* a = node_->time.data();
  for (std::size_t i = 0; i < n; ++i) a[i] = std::max(a[i], b[i]);
}

void Clock::join(ClockPool& pool, const std::vector<std::uint32_t>& times) {
  own(pool);
  for (std::size_t i = 0; i < times.size(); ++i)
    node_->time[i] = std::max(node_->time[i], times[i]);
}

void Clock::raise(ClockPool& pool, std::size_t first, const std::array<std::uint32_t, 32>& values) {
  own(pool);
  std::uint32_t* a = node_->time.data() + first;
  for (std::size_t l = 0; l < 32; ++l) a[l] = std::max(a[l], values[l]);
}

void Clock::raise(ClockPool& pool, std::size_t i, std::uint32_t value) {
  own(pool);
  node_->time[i] = std::max(node_->time[i], value);
}

void join(Foreign& mine, const Foreign& other) {
  if (other == nullptr || other == mine) return;
  if (mine == nullptr) {
    mine = other;
    return;
  }
  ForeignMap both = *mine;
  for (const auto& [cluster, times] : *other) {
    auto& here = both[cluster];
    if (here == nullptr) {
      here = times;
    } else if (here != times) {
      std::vector<std::uint32_t> joined = *here;
      for (std::size_t i = 0; i < joined.size(); ++i) joined[i] = std::max(joined[i], (*times)[i]);
      here = std::make_shared<const std::vector<std::uint32_t>>(std::move(joined));
    }
  }
  mine = std::make_shared<const ForeignMap>(std::move(both));
}

}  // namespace roundoff::simt
