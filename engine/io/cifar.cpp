#include "engine/io/cifar.h"

#include "engine/io/file.h"

namespace roundoff {

Cifar10 parse_cifar10(std::span<const std::byte> bytes, std::string_view origin) {
  constexpr std::size_t kPixels = 32 * 32;
  constexpr std::size_t kRecord = 1 + 3 * kPixels;
  if (bytes.empty() || bytes.size() % kRecord != 0)
    fail_file("cifar10", origin, bytes.size(), " bytes, a multiple of ", kRecord, " expected");
  const std::size_t n = bytes.size() / kRecord;
  for (std::size_t i = 0; i < n; ++i)
    if (bytes[i * kRecord] > std::byte{9})
      fail_file("cifar10", origin, "label ", std::to_integer<int>(bytes[i * kRecord]),
                " of record ", i, " is outside [0, 10)");
  Cifar10 batch;
  batch.images = HostArray(ElementType::u8, {static_cast<std::int64_t>(n), 32, 32, 3});
  batch.labels.reserve(n);
  std::byte* to = batch.images.bytes.data();
  for (std::size_t i = 0; i < n; ++i) {
    const std::byte* record = bytes.data() + i * kRecord;
    batch.labels.push_back(std::to_integer<std::int64_t>(record[0]));
    for (std::size_t pixel = 0; pixel < kPixels; ++pixel)
      for (std::size_t c = 0; c < 3; ++c) *to++ = record[1 + c * kPixels + pixel];
  }
  return batch;
}

}  // namespace roundoff
