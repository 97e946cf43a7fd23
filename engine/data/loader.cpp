#include "engine/data/loader.h"

#include <algorithm>
#include <numeric>

#include "engine/data/random.h"

namespace roundoff {

namespace {
// Philox numbers epochs and samples with 32 bits.
constexpr std::int64_t kCounterLimit = std::int64_t{1} << 32;
}  // namespace

void epoch_order(std::uint64_t seed, std::int64_t epoch, std::span<std::int64_t> order) {
  std::iota(order.begin(), order.end(), std::int64_t{0});
  RandomStream random(seed, RandomUse::shuffle, static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
}

Sampler::Sampler(const Settings& settings) : settings_(settings) {
  ROUNDOFF_CHECK(settings.count >= 1 && settings.count < kCounterLimit, "sampler", settings.count,
                 " samples, 1 to 2^32 - 1 expected");
  ROUNDOFF_CHECK(settings.batch >= 1, "sampler", "batch size ", settings.batch,
                 ", 1 or more expected");
  ROUNDOFF_CHECK(usable() > 0, "sampler", "batch size ", settings.batch, " of ", settings.count,
                 " samples leaves no batch when the short one is dropped");
  order_.resize(static_cast<std::size_t>(settings.count));
  order_epoch();
}

std::int64_t Sampler::usable() const {
  return settings_.drop_last ? settings_.count / settings_.batch * settings_.batch
                             : settings_.count;
}

std::int64_t Sampler::batches_per_epoch() const {
  return usable() / settings_.batch + (usable() % settings_.batch != 0 ? 1 : 0);
}

void Sampler::order_epoch() {
  if (settings_.shuffle)
    epoch_order(settings_.seed, state_.epoch, order_);
  else
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
}

Sampler::Batch Sampler::next() {
  if (state_.position == usable()) {
    state_ = {state_.epoch + 1, 0};
    order_epoch();
  }
  Batch batch;
  batch.epoch = state_.epoch;
  batch.first = state_.position;
  const std::int64_t n = std::min(settings_.batch, usable() - state_.position);
  batch.indices = std::span<const std::int64_t>(order_).subspan(
      static_cast<std::size_t>(state_.position), static_cast<std::size_t>(n));
  state_.position += n;
  batch.last = state_.position == usable();
  return batch;
}

void Sampler::restore(const SamplerState& state) {
  ROUNDOFF_CHECK(state.epoch >= 0 && state.epoch < kCounterLimit, "sampler", "epoch ", state.epoch,
                 ", 0 to 2^32 - 1 expected");
  ROUNDOFF_CHECK(state.position >= 0 && state.position <= usable() &&
                     (state.position % settings_.batch == 0 || state.position == usable()),
                 "sampler", "position ", state.position, " is no batch's end in an epoch of ",
                 usable(), " samples, ", settings_.batch, " a batch");
  state_ = state;
  order_epoch();
}

BatchReader::BatchReader(const Split& split, const Normalization& normalization)
    : split_(&split), normalization_(normalization) {
  const Shape& shape = split.images.shape;
  ROUNDOFF_CHECK(shape.rank() == 4 && shape[0] == split.size(), "batch", "images of shape ", shape,
                 " with ", split.size(), " labels");
  channels_ = shape[3];
  image_size_ = shape[1] * shape[2] * shape[3];
  ROUNDOFF_CHECK(static_cast<std::int64_t>(normalization.mean.size()) == channels_ &&
                     normalization.deviation.size() == normalization.mean.size(),
                 "batch", "normalisation of ", normalization.mean.size(), " channels, images have ",
                 channels_);
  if (split.images.type == ElementType::u8) {
    table_.resize(static_cast<std::size_t>(channels_));
    for (std::size_t c = 0; c < table_.size(); ++c)
      for (std::size_t pixel = 0; pixel < 256; ++pixel)
        table_[c][pixel] =
            static_cast<float>((static_cast<double>(pixel) / 255 - normalization.mean[c]) /
                               normalization.deviation[c]);
  } else {
    ROUNDOFF_CHECK(split.images.type == ElementType::fp32, "batch", "images of ",
                   name(split.images.type), ", uint8 or fp32 expected");
  }
}

void BatchReader::gather(std::span<const std::int64_t> indices, std::span<float> images,
                         std::span<std::int64_t> labels) const {
  const auto size = static_cast<std::size_t>(image_size_);
  ROUNDOFF_CHECK(images.size() == indices.size() * size && labels.size() == indices.size(), "batch",
                 indices.size(), " samples of ", size, " values do not fill ", images.size(),
                 " values and ", labels.size(), " labels");
  for (const std::int64_t index : indices)
    ROUNDOFF_CHECK(index >= 0 && index < split_->size(), "batch", "sample ", index,
                   " is outside [0, ", split_->size(), ")");
  const auto channels = static_cast<std::size_t>(channels_);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto index = static_cast<std::size_t>(indices[i]);
    labels[i] = split_->labels[index];
    float* to = images.data() + i * size;
    if (table_.empty()) {
      const float* from = split_->images.as<float>().data() + index * size;
      for (std::size_t j = 0; j < size; ++j) {
        const std::size_t c = j % channels;
        to[j] =
            static_cast<float>((from[j] - normalization_.mean[c]) / normalization_.deviation[c]);
      }
    } else {
      const std::uint8_t* from = split_->images.as<std::uint8_t>().data() + index * size;
      if (channels == 1) {
        for (std::size_t j = 0; j < size; ++j) to[j] = table_[0][from[j]];
      } else {
        for (std::size_t j = 0; j < size; ++j) to[j] = table_[j % channels][from[j]];
      }
    }
  }
}

Tensor BatchReader::gather(std::span<const std::int64_t> indices, const Tensor& images,
                           const Tensor& labels, Allocator& host) const {
  ROUNDOFF_CHECK(images.dtype() == DType::fp32 && labels.dtype() == DType::i64, "batch",
                 "images of ", name(images.dtype()), " and labels of ", name(labels.dtype()),
                 ", fp32 and int64 expected");
  const bool copied = images.device() != Device::cpu;
  const Tensor to = copied ? Tensor::empty(host, images.shape(), DType::fp32) : images;
  const Tensor to_labels = copied ? Tensor::empty(host, labels.shape(), DType::i64) : labels;
  gather(indices, {to.data<float>(), static_cast<std::size_t>(to.numel())},
         {to_labels.data<std::int64_t>(), static_cast<std::size_t>(to_labels.numel())});
  if (copied) {
    images.copy_from(to);
    labels.copy_from(to_labels);
  }
  return to_labels;
}

}  // namespace roundoff
