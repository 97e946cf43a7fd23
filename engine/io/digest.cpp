// Checksums (OpenSSL) and gzip (zlib) of file.h.
#include <openssl/evp.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "engine/io/file.h"

namespace roundoff {

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  auto* context = static_cast<EVP_MD_CTX*>(context_);
  if (context == nullptr || EVP_DigestInit_ex(context, EVP_sha256(), nullptr) != 1) {
    EVP_MD_CTX_free(context);
    fail("sha256", "the cryptographic library offers no SHA-256");
  }
}

Sha256::~Sha256() { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_)); }

void Sha256::update(std::span<const std::byte> bytes) {
  ROUNDOFF_CHECK(
      EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), bytes.data(), bytes.size()) == 1,
      "sha256", "the digest could not be updated");
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest{};
  ROUNDOFF_CHECK(
      EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), digest.data(), nullptr) == 1, "sha256",
      "the digest could not be finished");
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * digest.size());
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string sha256_of(std::span<const std::byte> bytes) {
  Sha256 digest;
  digest.update(bytes);
  return digest.hex();
}

std::string sha256_of_file(const std::filesystem::path& path) {
  const InputFile file(path);
  Sha256 digest;
  Bytes chunk(1 << 20);
  for (std::uint64_t offset = 0; offset < file.size();) {
    const auto n =
        static_cast<std::size_t>(std::min<std::uint64_t>(chunk.size(), file.size() - offset));
    file.read(offset, std::span(chunk).first(n));
    digest.update(std::span(chunk).first(n));
    offset += n;
  }
  return digest.hex();
}

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

namespace {

// One inflation of a gzip member held in memory.
class Inflater {
 public:
  Inflater(std::span<const std::byte> compressed, std::string_view origin)
      : rest_(compressed), origin_(origin) {
    // 16 asks for the gzip wrapper, whose CRC-32 and length zlib checks.
    ROUNDOFF_CHECK(inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK, "gzip",
                   "zlib could not be started");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Fills `to` as far as the stream goes; returns the number of bytes.
  std::size_t read(std::span<std::byte> to) {
    constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
    std::size_t done = 0;
    while (done < to.size() && !ended_) {
      if (stream_.avail_in == 0) {
        const auto n = std::min(rest_.size(), kMost);
        // zlib reads through this pointer and never writes; its type is older than const.
        stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));
        stream_.avail_in = static_cast<uInt>(n);
        rest_ = rest_.subspan(n);
      }
      const auto room = std::min(to.size() - done, kMost);
      stream_.next_out = reinterpret_cast<Bytef*>(to.data() + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      ended_ = status == Z_STREAM_END;
      if (status == Z_BUF_ERROR) fail_file("gzip", origin_, "the compressed data is truncated");
      if (status != Z_OK && status != Z_STREAM_END)
        fail_file("gzip", origin_, "the compressed data is damaged (",
                  stream_.msg != nullptr ? stream_.msg : "zlib error", ")");
    }
    return done;
  }
  bool ended() const { return ended_; }
  std::size_t unread() const { return rest_.size() + stream_.avail_in; }

 private:
  z_stream stream_{};
  std::span<const std::byte> rest_;
  std::string_view origin_;
  bool ended_ = false;
};

}  // namespace

Bytes gunzip(std::span<const std::byte> compressed, std::size_t prefix,
             const std::function<std::uint64_t(std::span<const std::byte>)>& total_size,
             std::string_view origin) {
  // Deflate codes at most 258 bytes in 2 bits, so nothing grows by more than this factor.
  constexpr std::uint64_t kLargestRatio = 1032;
  // Header and trailer of a member.
  if (compressed.size() < 18 || !is_gzip(compressed))
    fail_file("gzip", origin, "not a gzip file, or truncated: ", compressed.size(), " bytes");
  Inflater inflater(compressed, origin);
  Bytes bytes(prefix);
  bytes.resize(inflater.read(bytes));
  const std::uint64_t total = total_size(bytes);
  if (total < bytes.size())
    fail_file("gzip", origin, "decompresses to more than the ", total, " bytes its header says");
  std::uint32_t trailer = 0;
  for (std::size_t i = 0; i < 4; ++i)
    trailer |= std::to_integer<std::uint32_t>(compressed[compressed.size() - 4 + i]) << (8 * i);
  if (total / kLargestRatio > compressed.size() || static_cast<std::uint32_t>(total) != trailer)
    fail_file("gzip", origin, "its header says ", total, " bytes, ", compressed.size(),
              " compressed bytes with the length ", trailer, " in their trailer cannot give them");
  const std::size_t have = bytes.size();
  bytes.resize(static_cast<std::size_t>(total));
  const std::size_t got = have + inflater.read(std::span(bytes).subspan(have));
  std::array<std::byte, 1> beyond{};
  if (got < total || inflater.read(beyond) != 0)
    fail_file("gzip", origin, "decompresses to ", got < total ? "only " : "more than ",
              std::min<std::uint64_t>(got, total), " bytes, its header says ", total);
  if (!inflater.ended() || inflater.unread() != 0)
    fail_file("gzip", origin, inflater.unread(), " bytes follow the compressed data");
  return bytes;
}

}  // namespace roundoff
