#include "engine/io/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

namespace roundoff {

namespace {

constexpr std::string_view kMetadataName = "__metadata__";

struct Code {
  std::string_view text;
  ElementType type;
};
constexpr std::array<Code, kElementTypes> kCodes{{
    {"F64", ElementType::fp64},
    {"F32", ElementType::fp32},
    {"F16", ElementType::fp16},
    {"BF16", ElementType::bf16},
    {"I64", ElementType::i64},
    {"I32", ElementType::i32},
    {"I16", ElementType::i16},
    {"I8", ElementType::i8},
    {"U64", ElementType::u64},
    {"U32", ElementType::u32},
    {"U16", ElementType::u16},
    {"U8", ElementType::u8},
    {"BOOL", ElementType::boolean},
}};

std::string_view code_of(ElementType type) {
  return std::find_if(kCodes.begin(), kCodes.end(), [&](const Code& c) { return c.type == type; })
      ->text;
}

struct Entry {
  std::string name;
  ElementType type = ElementType::fp32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::vector<Entry> entries;  // in the order of their data
  Metadata metadata;
};

// Receives the header's JSON piece by piece. No tree is built, so a header costs little more than
// its own length, nesting is refused as it starts, and a duplicate name is seen.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string_view origin) : origin_(origin) {}

  Header take() { return std::move(header_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("true or false"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    unexpected("a number that is no 64-bit count");
  }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::shape) {
      if (rank_ == extents_.size())
        complain(about(), "has more than ", kMaxRank, " axes, the most that are taken");
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        complain(about(), "has an extent of ", value);
      extents_[rank_++] = static_cast<std::int64_t>(value);
    } else if (at_ == At::offsets) {
      if (offsets_ == 2) complain(about(), "has more than two data_offsets");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      unexpected("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (at_ == At::metadata_value) {
      header_.metadata[key_] = std::move(value);
      at_ = At::metadata;
    } else if (at_ == At::dtype) {
      const auto code = std::find_if(kCodes.begin(), kCodes.end(),
                                     [&](const Code& c) { return c.text == value; });
      if (code == kCodes.end())
        complain(about(), "has the dtype ", in_quotes(value),
                 "; F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8 or BOOL expected");
      entry_.type = code->type;
      at_ = At::entry;
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (at_ == At::start) {
      at_ = At::names;
    } else if (at_ == At::name_value) {
      entry_ = {};
      entry_.name = key_;
      rank_ = 0;
      offsets_ = 0;
      seen_ = {};
      at_ = At::entry;
    } else if (at_ == At::metadata_start) {
      at_ = At::metadata;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    if (at_ == At::names) {
      if (!names_.insert(key_).second) complain("the name ", in_quotes(key_), " comes twice");
      at_ = key_ == kMetadataName ? At::metadata_start : At::name_value;
    } else if (at_ == At::metadata) {
      if (header_.metadata.contains(key_))
        complain("the metadata key ", in_quotes(key_), " comes twice");
      at_ = At::metadata_value;
    } else {
      constexpr std::array<std::string_view, 3> kKeys{"dtype", "shape", "data_offsets"};
      constexpr std::array<At, 3> kStates{At::dtype, At::shape_start, At::offsets_start};
      const auto which =
          static_cast<std::size_t>(std::find(kKeys.begin(), kKeys.end(), key_) - kKeys.begin());
      if (which == kKeys.size()) complain(about(), "has an unknown key ", in_quotes(key_));
      if (std::exchange(seen_[which], true)) complain(about(), "has ", key_, " twice");
      at_ = kStates[which];
    }
    return true;
  }

  bool end_object() override {
    if (at_ == At::metadata) {
      at_ = At::names;
    } else if (at_ == At::entry) {
      finish_entry();
      at_ = At::names;
    } else {
      at_ = At::end;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ == At::shape_start)
      at_ = At::shape;
    else if (at_ == At::offsets_start)
      at_ = At::offsets;
    else
      unexpected("an array");
    return true;
  }

  bool end_array() override {
    if (at_ == At::offsets && offsets_ != 2) complain(about(), "needs two data_offsets");
    at_ = At::entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    complain("no JSON from its byte ", position, " on");
  }

 private:
  enum class At : unsigned char {
    start,
    names,
    name_value,
    metadata_start,
    metadata,
    metadata_value,
    entry,
    dtype,
    shape_start,
    shape,
    offsets_start,
    offsets,
    end
  };

  template <class... Parts>
  [[noreturn]] void complain(const Parts&... parts) const {
    fail_file("safetensors", origin_, "header: ", parts...);
  }
  [[noreturn]] void unexpected(std::string_view what) const {
    complain(what, " where none belongs",
             key_.empty() ? std::string() : concat(", after the key ", in_quotes(key_)));
  }
  std::string about() const { return concat("tensor ", in_quotes(entry_.name), " "); }

  void finish_entry() {
    if (!seen_[0] || !seen_[1] || !seen_[2])
      complain(about(), "has no ", !seen_[0] ? "dtype" : !seen_[1] ? "shape" : "data_offsets");
    const std::span<const std::int64_t> extents(extents_.data(), rank_);
    const auto bytes = byte_count(entry_.type, extents);
    if (!bytes) complain(about(), "has more elements than any file holds");
    entry_.shape = Shape(extents);
    if (entry_.begin > entry_.end || entry_.end - entry_.begin != *bytes)
      complain(about(), "lies at [", entry_.begin, ", ", entry_.end, "), ", code_of(entry_.type),
               " of shape ", entry_.shape, " needs ", *bytes, " bytes");
    header_.entries.push_back(std::move(entry_));
  }

  std::string_view origin_;
  Header header_;
  At at_ = At::start;
  std::string key_;
  std::unordered_set<std::string> names_;
  Entry entry_;
  std::array<std::int64_t, kMaxRank> extents_{};
  std::size_t rank_ = 0;
  int offsets_ = 0;
  std::array<bool, 3> seen_{};  // dtype, shape, data_offsets of the entry being read
};

// Order of the data; tensors without any go by name.
void sort_by_data(std::vector<Entry>& entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
}

std::uint64_t parse_header_length(std::span<const std::byte> first, std::uint64_t size,
                                  std::string_view origin) {
  if (first.size() < 8)
    fail_file("safetensors", origin, "truncated: ", size, " bytes, the header's length takes 8");
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) length |= std::to_integer<std::uint64_t>(first[i]) << (8 * i);
  if (length > kMostSafetensorsHeader)
    fail_file("safetensors", origin, "a header of ", length, " bytes, at most ",
              kMostSafetensorsHeader, " are allowed");
  if (length > size - 8)
    fail_file("safetensors", origin, "truncated: a header of ", length, " bytes in a file of ",
              size);
  return length;
}

Header parse_header(std::span<const std::byte> text, std::uint64_t data_bytes,
                    std::string_view origin) {
  if (text.empty() || text.front() != std::byte{'{'})
    fail_file("safetensors", origin, "header: does not start with {");
  HeaderReader reader(origin);
  const auto* begin = reinterpret_cast<const char*>(text.data());
  nlohmann::json::sax_parse(begin, begin + text.size(), &reader);
  Header header = reader.take();
  sort_by_data(header.entries);
  std::uint64_t expected = 0;
  const Entry* before = nullptr;
  for (const Entry& entry : header.entries) {
    if (entry.end > data_bytes)
      fail_file("safetensors", origin, "tensor ", in_quotes(entry.name), " lies at [", entry.begin,
                ", ", entry.end, "), the file has ", data_bytes, " bytes of data");
    if (entry.begin < expected)
      fail_file("safetensors", origin, "tensors ", in_quotes(before->name), " and ",
                in_quotes(entry.name), " overlap");
    if (entry.begin > expected)
      fail_file("safetensors", origin, "the data has a gap of ", entry.begin - expected,
                " bytes before tensor ", in_quotes(entry.name));
    expected = entry.end;
    before = &entry;
  }
  if (expected != data_bytes)
    fail_file("safetensors", origin, data_bytes - expected, " bytes of data belong to no tensor");
  return header;
}

// Feeds what a file means, apart from its data, to the checksum. Every string goes with its length,
// so that no two different contents read the same.
void digest_contents(Sha256& digest, const std::vector<Entry>& entries, const Metadata& metadata) {
  const auto feed = [&](std::string_view text) {
    digest.update(std::to_string(text.size()) + ":");
    digest.update(text);
  };
  for (const auto& [key, value] : metadata) {
    if (key == kChecksumKey) continue;
    digest.update("metadata ");
    feed(key);
    feed(value);
  }
  for (const Entry& entry : entries) {
    digest.update("tensor ");
    feed(entry.name);
    feed(code_of(entry.type));
    for (const std::int64_t extent : entry.shape.extents()) feed(std::to_string(extent));
  }
  digest.update("data ");
}

// Builds the result; fill(offset, to) reads data, in order.
template <class Fill>
SafetensorsFile load(Header header, std::string_view origin, Fill&& fill) {
  SafetensorsFile file;
  const auto carried = header.metadata.find(std::string(kChecksumKey));
  file.checksummed = carried != header.metadata.end();
  Sha256 digest;
  if (file.checksummed) digest_contents(digest, header.entries, header.metadata);
  for (const Entry& entry : header.entries) {
    HostArray array(entry.type, entry.shape);
    fill(entry.begin, std::span(array.bytes));
    if (file.checksummed) digest.update(array.bytes);
    if (entry.type == ElementType::boolean) {
      for (const std::byte value : array.bytes)
        if (value > std::byte{1})
          fail_file("safetensors", origin, "tensor ", in_quotes(entry.name), ": a BOOL holds ",
                    std::to_integer<int>(value), ", 0 or 1 expected");
    }
    file.tensors.emplace(entry.name, std::move(array));
  }
  if (file.checksummed) {
    const std::string actual = digest.hex();
    if (actual != carried->second)
      fail_file("safetensors", origin, "damaged: its SHA-256 is ", actual, ", its metadata says ",
                in_quotes(carried->second));
    header.metadata.erase(carried);
  }
  file.metadata = std::move(header.metadata);
  return file;
}

// The header of a file of these tensors, and the order in which their data follows.
struct Layout {
  std::string preamble;  // length and JSON
  std::vector<const TensorBytes*> order;
};

Layout plan(std::span<const TensorBytes> tensors, const Metadata& metadata) {
  Layout layout;
  for (const TensorBytes& tensor : tensors) {
    ROUNDOFF_CHECK(byte_count(tensor.type, tensor.shape.extents()) == tensor.bytes.size(),
                   "safetensors", "tensor ", in_quotes(tensor.name), " has ", tensor.bytes.size(),
                   " bytes, ", name(tensor.type), " of shape ", tensor.shape, " needs others");
    ROUNDOFF_CHECK(tensor.name != kMetadataName, "safetensors", "no tensor may be named ",
                   kMetadataName);
    layout.order.push_back(&tensor);
  }
  ROUNDOFF_CHECK(!metadata.contains(std::string(kChecksumKey)), "safetensors", "the metadata key ",
                 kChecksumKey, " is the file's own");
  std::sort(layout.order.begin(), layout.order.end(),
            [](const TensorBytes* a, const TensorBytes* b) {
              if (size_of(a->type) != size_of(b->type)) return size_of(a->type) > size_of(b->type);
              return a->name < b->name;
            });
  std::unordered_set<std::string_view> names;
  std::vector<Entry> entries;
  std::uint64_t offset = 0;
  for (const TensorBytes* tensor : layout.order) {
    ROUNDOFF_CHECK(names.insert(tensor->name).second, "safetensors", "two tensors are named ",
                   in_quotes(tensor->name));
    entries.push_back(
        {tensor->name, tensor->type, tensor->shape, offset, offset + tensor->bytes.size()});
    offset += tensor->bytes.size();
  }
  sort_by_data(
      entries);  // as the reader does, or empty tensors could stand elsewhere in its digest
  Sha256 digest;
  digest_contents(digest, entries, metadata);
  for (const TensorBytes* tensor : layout.order) digest.update(tensor->bytes);
  Metadata complete = metadata;
  complete.emplace(kChecksumKey, digest.hex());

  const auto json = [](std::string_view text) {
    try {
      return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
      fail("safetensors", "the name or metadata ", in_quotes(text), " is not UTF-8");
    }
  };
  std::string text = "{";
  text.append(json(kMetadataName)).append(":{");
  for (const auto& [key, value] : complete) {
    if (text.back() != '{') text += ',';
    text.append(json(key)).append(":").append(json(value));
  }
  text += '}';
  // to_string, not a stream: a stream may group digits in the user's locale.
  for (const Entry& entry : entries) {
    text.append(",").append(json(entry.name)).append(":{\"dtype\":\"").append(code_of(entry.type));
    text.append("\",\"shape\":[");
    for (int axis = 0; axis < entry.shape.rank(); ++axis) {
      if (axis > 0) text += ',';
      text.append(std::to_string(entry.shape[axis]));
    }
    text.append("],\"data_offsets\":[").append(std::to_string(entry.begin)).append(",");
    text.append(std::to_string(entry.end)).append("]}");
  }
  text += '}';
  while (text.size() % 8 != 0) text += ' ';
  ROUNDOFF_CHECK(text.size() <= kMostSafetensorsHeader, "safetensors", "a header of ", text.size(),
                 " bytes, at most ", kMostSafetensorsHeader, " are allowed");
  for (int shift = 0; shift < 64; shift += 8)
    layout.preamble += static_cast<char>(text.size() >> shift & 0xFF);
  layout.preamble += text;
  return layout;
}

}  // namespace

SafetensorsFile parse_safetensors(std::span<const std::byte> bytes, std::string_view origin) {
  const auto first = bytes.first(std::min<std::size_t>(bytes.size(), 8));
  const std::uint64_t length = parse_header_length(first, bytes.size(), origin);
  const auto data = bytes.subspan(8 + length);
  return load(parse_header(bytes.subspan(8, length), data.size(), origin), origin,
              [&](std::uint64_t offset, std::span<std::byte> to) {
                const auto from = data.subspan(offset, to.size());
                std::copy(from.begin(), from.end(), to.begin());
              });
}

SafetensorsFile read_safetensors(const std::filesystem::path& path) {
  const InputFile file(path);
  std::array<std::byte, 8> first{};
  const auto known = std::span(first).first(
      static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), first.size())));
  file.read(0, known);
  const std::uint64_t length = parse_header_length(known, file.size(), file.origin());
  Header header;
  {
    Bytes text(static_cast<std::size_t>(length));
    file.read(8, text);
    header = parse_header(text, file.size() - 8 - length, file.origin());
  }
  return load(std::move(header), file.origin(), [&](std::uint64_t offset, std::span<std::byte> to) {
    file.read(8 + length + offset, to);
  });
}

Bytes serialize_safetensors(std::span<const TensorBytes> tensors, const Metadata& metadata) {
  const Layout layout = plan(tensors, metadata);
  const auto preamble = std::as_bytes(std::span(layout.preamble));
  Bytes file(preamble.begin(), preamble.end());
  for (const TensorBytes* tensor : layout.order)
    file.insert(file.end(), tensor->bytes.begin(), tensor->bytes.end());
  return file;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorBytes> tensors,
                       const Metadata& metadata) {
  const Layout layout = plan(tensors, metadata);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(layout.preamble)));
  for (const TensorBytes* tensor : layout.order) file.write(tensor->bytes);
  file.commit();
}

}  // namespace roundoff
