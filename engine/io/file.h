// Files: bounded reading, writing that never loses what was there before, checksums and gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/check.h"

namespace roundoff {

// A file that cannot be read or written, or whose contents contradict themselves.
class FileError : public Error {
 public:
  using Error::Error;
};

// Something that a run needs is not on this machine (a data set that is not installed).
class AbsentError : public Error {
 public:
  using Error::Error;
};

using Bytes = std::vector<std::byte>;

// Throws FileError "[operation] origin: parts...", where origin says which file.
template <class... Parts>
[[noreturn]] void fail_file(std::string_view operation, std::string_view origin,
                            const Parts&... parts) {
  throw FileError(concat("[", operation, "] ", origin, ": ", parts...));
}

// Text that came out of a file, fit for an error's one line: in quotes, at most 40 characters, what
// is not printable ASCII as \xHH.
std::string in_quotes(std::string_view text);

// An open regular file. Reading neither moves a position nor depends on one.
class InputFile {
 public:
  // Throws FileError for a file that is absent, unreadable or not a regular one (a pipe, a device).
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Bytes, when the file was opened.
  std::uint64_t size() const { return size_; }
  const std::string& origin() const { return origin_; }
  // Fills `to` from `offset` on; throws FileError where the file ends before that.
  void read(std::uint64_t offset, std::span<std::byte> to) const;

 private:
  std::string origin_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

inline constexpr std::uint64_t kDefaultReadLimit = std::uint64_t{4} << 30;

// The whole file. A file larger than `limit` bytes is refused before anything is allocated.
Bytes read_file(const std::filesystem::path& path, std::uint64_t limit = kDefaultReadLimit);

// A file that appears under its name whole or not at all: written beside it under a temporary name,
// synced, renamed, and the folder synced. Until commit() returns, a file that was there before
// stays; whatever fails, and without commit(), the temporary is removed. A temporary that a killed
// process left is removed by the next write of the same file.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void commit();

 private:
  void discard() noexcept;
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// SHA-256 (FIPS 180-4), fed in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  // 64 lower-case hexadecimal digits. Ends this object's use.
  std::string hex();

 private:
  void* context_;
};

std::string sha256_of(std::span<const std::byte> bytes);
std::string sha256_of_file(const std::filesystem::path& path);

// True where the bytes start as a gzip file does (RFC 1952).
bool is_gzip(std::span<const std::byte> bytes);

// Decompresses a gzip file of one member whose contents say themselves how long they are:
// `total_size` gets their first `prefix` bytes (fewer where they end before) and returns the size
// of the whole, or throws. A size that the compressed bytes cannot give, or that is not the one in
// the trailer, is refused before it is allocated; a stream longer or shorter than that size is
// refused too. Throws FileError.
Bytes gunzip(std::span<const std::byte> compressed, std::size_t prefix,
             const std::function<std::uint64_t(std::span<const std::byte>)>& total_size,
             std::string_view origin);

}  // namespace roundoff
