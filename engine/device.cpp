#include "engine/device.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace roundoff {

namespace {
// Staging memory for this many copies in flight, each of up to so many bytes.
constexpr std::size_t kStagingBuffers = 32;
constexpr std::size_t kLargestStaging = std::size_t{16} << 20;
constexpr std::size_t kSmallestStaging = 4096;
}  // namespace

DeviceQueue::DeviceQueue(std::shared_ptr<simt::Runtime> runtime) : stream_(std::move(runtime)) {}

DeviceQueue::Staging& DeviceQueue::staging(std::size_t bytes) {
  // The smallest that is free and large enough, so that a batch does not wait for a label.
  Staging* best = nullptr;
  for (Staging& s : staging_) {
    if (s.memory.bytes() < bytes || (best != nullptr && best->memory.bytes() <= s.memory.bytes()))
      continue;
    if (s.copied.query()) best = &s;
  }
  if (best != nullptr) return *best;
  const std::size_t size = std::bit_ceil(std::max(bytes, kSmallestStaging));
  if (staging_.size() < kStagingBuffers) {
    staging_.push_back({simt::PinnedBuffer(stream_.shared_runtime(), size),
                        simt::Event(stream_.shared_runtime())});
    return staging_.back();
  }
  Staging& oldest = staging_[next_];
  next_ = (next_ + 1) % staging_.size();
  oldest.copied.synchronize();
  if (oldest.memory.bytes() < bytes)
    oldest.memory = simt::PinnedBuffer(stream_.shared_runtime(), size);
  return oldest;
}

void DeviceQueue::write(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  ROUNDOFF_CHECK(!stream_.capturing(), "device",
                 "host data is written while a graph is captured, which would repeat it for ever");
  if (bytes > kLargestStaging) return stream_.upload(to, from, bytes);
  Staging& s = staging(bytes);
  std::memcpy(s.memory.data(), from, bytes);
  stream_.copy_to_device(to, s.memory.data(), bytes);
  s.copied.record(stream_);
}

void DeviceQueue::read(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  stream_.download(to, from, bytes);
}

DeviceReports::DeviceReports(std::shared_ptr<DeviceQueue> queue)
    : queue_(std::move(queue)),
      report_(queue_->stream().shared_runtime(), sizeof(DeviceErrors)),
      copies_{Copy{simt::PinnedBuffer(queue_->stream().shared_runtime(), sizeof(DeviceErrors)),
                   simt::Event(queue_->stream().shared_runtime())},
              Copy{simt::PinnedBuffer(queue_->stream().shared_runtime(), sizeof(DeviceErrors)),
                   simt::Event(queue_->stream().shared_runtime())}} {
  queue_->zero(report_.data(), report_.bytes());
}

void DeviceReports::take(Copy& copy) {
  copy.pending = false;
  DeviceErrors found;
  std::memcpy(&found, copy.memory.data(), sizeof(found));
  if (found.code == 0) return;
  queue_->zero(report_.data(), report_.bytes());
  // A copy that is still on its way holds the same report.
  for (Copy& other : copies_) other.pending = false;
  throw DeviceDataError(found);
}

void DeviceReports::request() {
  Copy& copy = copies_[next_];
  next_ = (next_ + 1) % copies_.size();
  if (copy.pending) {
    if (!copy.arrived.query()) copy.arrived.synchronize();
    take(copy);
  }
  queue_->stream().copy_to_host(copy.memory.data(), report_.data(), report_.bytes());
  copy.arrived.record(queue_->stream());
  copy.pending = true;
}

void DeviceReports::check() {
  for (std::size_t i = 0; i < copies_.size(); ++i) {
    Copy& copy = copies_[(next_ + i) % copies_.size()];
    if (copy.pending && copy.arrived.query()) take(copy);
  }
}

void DeviceReports::wait_and_check() {
  request();
  queue_->stream().synchronize();
  check();
}

}  // namespace roundoff
