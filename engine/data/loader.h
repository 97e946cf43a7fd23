// Batches: seeded, resumable order, and the gathering of images into a network's input.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/dataset.h"
#include "engine/tensor.h"

namespace roundoff {

// Where a Sampler stands; what a checkpoint keeps of it.
struct SamplerState {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // samples of this epoch already given

  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

// Gives the indices of a data set of `count` samples in batches, epoch after epoch. The order of
// epoch e is a pure function of (seed, e, count), whatever the batch size: Fisher-Yates driven by
// Philox. With `shuffle` off every epoch is 0, 1, 2, ...
class Sampler {
 public:
  struct Settings {
    std::uint64_t seed = 0;
    std::int64_t count = 0;  // >= 1
    std::int64_t batch = 1;  // >= 1
    bool shuffle = true;
    bool drop_last = false;  // leaves out a last batch that is short; then batch <= count
  };
  struct Batch {
    std::int64_t epoch = 0;
    std::int64_t first = 0;  // position in the epoch's order: sample i of the batch is first + i
    std::span<const std::int64_t> indices;  // into the data set; valid until the next call
    bool last = false;                      // the epoch ends with it
  };

  explicit Sampler(const Settings& settings);

  // The next batch; after an epoch's last one, the first of the next epoch.
  Batch next();
  std::int64_t batches_per_epoch() const;
  const Settings& settings() const { return settings_; }
  SamplerState state() const { return state_; }
  // Throws for a state that no Sampler of these settings can have; then nothing changes.
  void restore(const SamplerState& state);

 private:
  std::int64_t usable() const;
  void order_epoch();
  Settings settings_;
  SamplerState state_;
  std::vector<std::int64_t> order_;
};

// The order of one epoch: a permutation of 0 .. order.size() - 1.
void epoch_order(std::uint64_t seed, std::int64_t epoch, std::span<std::int64_t> order);

// Turns samples of a split into normalised fp32 images. Allocates when it is made, never later.
class BatchReader {
 public:
  // Keeps a reference to `split`.
  BatchReader(const Split& split, const Normalization& normalization);

  // images [indices.size(), H, W, C], labels [indices.size()]; both must have exactly that size.
  void gather(std::span<const std::int64_t> indices, std::span<float> images,
              std::span<std::int64_t> labels) const;
  // The same into tensors of any device, fp32 and int64; `host` serves what goes on to a device.
  // Labels as the host holds them come back.
  Tensor gather(std::span<const std::int64_t> indices, const Tensor& images, const Tensor& labels,
                Allocator& host) const;
  std::int64_t image_size() const { return image_size_; }

 private:
  const Split* split_;
  std::int64_t image_size_ = 0;
  std::int64_t channels_ = 0;
  std::vector<std::array<float, 256>> table_;  // uint8 images: value of each pixel, a channel
  Normalization normalization_;
};

}  // namespace roundoff
