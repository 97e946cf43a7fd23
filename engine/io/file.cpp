#include "engine/io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <random>
#include <system_error>
#include <utility>

namespace roundoff {

namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// Closes a descriptor at the end of a scope.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  int descriptor = -1;
  do {
    descriptor = ::open(path, flags, mode);
  } while (descriptor < 0 && errno == EINTR);
  return descriptor;
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr std::size_t kTokenLength = 8;

std::string temporary_prefix(const std::filesystem::path& path) {
  return concat(".", path.filename().string(), ".");
}

std::string random_token() {
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuv";
  std::random_device source;
  std::string token(kTokenLength, '0');
  for (char& digit : token) digit = kDigits[source() % kDigits.size()];
  return token;
}

// A writer holds a lock on its temporary as long as it lives, so one that can be locked was left
// behind by a process that is gone. Failing to clean up is no reason not to write.
void remove_stale_temporaries(const std::filesystem::path& path) {
  const std::string prefix = temporary_prefix(path);
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder_of(path), error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (file.size() != prefix.size() + kTokenLength + kTemporarySuffix.size() ||
        !file.starts_with(prefix) || !file.ends_with(kTemporarySuffix))
      continue;
    const Descriptor stale{open_retrying(entry->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
    if (stale.value >= 0 && ::flock(stale.value, LOCK_EX | LOCK_NB) == 0)
      ::unlink(entry->path().c_str());
  }
}

}  // namespace

std::string in_quotes(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr std::size_t kMost = 40;
  std::string out = "\"";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  out += text.size() > kMost ? "...\"" : "\"";
  return out;
}

InputFile::InputFile(const std::filesystem::path& path) : origin_(path.string()) {
  // Non-blocking, so that a pipe is refused rather than waited for.
  Descriptor file{open_retrying(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0) fail_file("read", origin_, reason(errno));
  struct stat status {};
  if (::fstat(file.value, &status) != 0) fail_file("read", origin_, reason(errno));
  if (!S_ISREG(status.st_mode)) fail_file("read", origin_, "not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
  descriptor_ = std::exchange(file.value, -1);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> to) const {
  if (offset > size_ || to.size() > size_ - offset)
    fail_file("read", origin_, "ends at byte ", size_, ", bytes ", offset, " to ",
              offset + to.size(), " are needed");
  while (!to.empty()) {
    const ssize_t got = ::pread(descriptor_, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file("read", origin_, reason(errno));
    if (got == 0) fail_file("read", origin_, "became shorter while it was read");
    to = to.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

Bytes read_file(const std::filesystem::path& path, std::uint64_t limit) {
  const InputFile file(path);
  if (file.size() > limit)
    fail_file("read", file.origin(), file.size(), " bytes, at most ", limit, " are taken");
  Bytes bytes(static_cast<std::size_t>(file.size()));
  file.read(0, bytes);
  return bytes;
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  if (!path_.has_filename()) fail_file("write", path_.string(), "names no file");
  remove_stale_temporaries(path_);
  for (int attempt = 0; attempt < 100; ++attempt) {
    temporary_ =
        folder_of(path_) / concat(temporary_prefix(path_), random_token(), kTemporarySuffix);
    descriptor_ = open_retrying(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno == EEXIST) continue;
    if (descriptor_ < 0) fail_file("write", path_.string(), reason(errno));
    // A file system without locks only loses the cleaning-up.
    const bool taken = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat status {};
    if (!taken && ::fstat(descriptor_, &status) == 0 && status.st_nlink > 0) return;
    // Another process took the new file for a stale one before the lock was held.
    discard();
  }
  fail_file("write", path_.string(), "no temporary file could be made beside it");
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ < 0) return;
  ::unlink(temporary_.c_str());
  ::close(std::exchange(descriptor_, -1));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) fail_file("write", path_.string(), "written to after it was closed");
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int error = errno;
      discard();
      fail_file("write", path_.string(), reason(error));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void AtomicFile::commit() {
  if (descriptor_ < 0) fail_file("write", path_.string(), "committed after it was closed");
  // The rename must not reach the disk before the contents do.
  if (::fsync(descriptor_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    discard();
    fail_file("write", path_.string(), reason(error));
  }
  ::close(std::exchange(descriptor_, -1));
  const Descriptor folder{
      open_retrying(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  // Some file systems cannot sync a folder and say so with EINVAL.
  if (folder.value < 0 || (::fsync(folder.value) != 0 && errno != EINVAL))
    fail_file("write", path_.string(),
              "written, but its folder could not be synced: ", reason(errno));
}

void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

}  // namespace roundoff
