#include "engine/io/npy.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <numeric>

namespace roundoff {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// Larger headers than any array of at most kMaxRank axes needs, padded however it likes.
constexpr std::uint64_t kMostHeader = 1 << 20;
constexpr std::size_t kLongestPreamble = 12;

struct Code {
  std::string_view text;  // without the byte order
  ElementType type;
};
constexpr Code kCodes[] = {
    {"f8", ElementType::fp64}, {"f4", ElementType::fp32}, {"f2", ElementType::fp16},
    {"i8", ElementType::i64},  {"i4", ElementType::i32},  {"i2", ElementType::i16},
    {"i1", ElementType::i8},   {"u8", ElementType::u64},  {"u4", ElementType::u32},
    {"u2", ElementType::u16},  {"u1", ElementType::u8},   {"b1", ElementType::boolean},
};

struct Header {
  ElementType type = ElementType::fp32;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
  std::uint64_t data_bytes = 0;
};

// The part of Python's literals that headers are written in; every deviation is an error.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  Header parse() {
    Header header;
    std::array<bool, 3> seen{};
    expect('{');
    while (peek() != '}') {
      const std::string_view key = string();
      constexpr std::array<std::string_view, 3> kKeys{"descr", "fortran_order", "shape"};
      const auto which =
          static_cast<std::size_t>(std::find(kKeys.begin(), kKeys.end(), key) - kKeys.begin());
      if (which == kKeys.size()) complain("an unknown key ", in_quotes(key));
      if (std::exchange(seen[which], true)) complain("the key ", in_quotes(key), " twice");
      expect(':');
      if (which == 0) descr(header);
      if (which == 1) header.fortran_order = boolean();
      if (which == 2) shape();
      if (peek() != '}') expect(',');
    }
    expect('}');
    for (; at_ < text_.size(); ++at_)
      if (text_[at_] != ' ') complain("something behind its dictionary");
    if (!seen[0] || !seen[1] || !seen[2])
      complain("no ", !seen[0] ? "descr" : !seen[1] ? "fortran_order" : "shape");
    const std::span<const std::int64_t> extents(extents_.data(), rank_);
    const auto bytes = byte_count(header.type, extents);
    if (!bytes) complain("more elements than any file holds");
    header.data_bytes = *bytes;
    header.shape = Shape(extents);
    return header;
  }

 private:
  template <class... Parts>
  [[noreturn]] void complain(const Parts&... parts) const {
    fail_file("npy", origin_, "its header has ", parts..., " (at character ", at_, ")");
  }
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  void expect(char c) {
    if (peek() != c || at_ >= text_.size()) complain("no '", c, "' where one belongs");
    ++at_;
  }
  std::string_view string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') complain("no string where one belongs");
    const std::size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) ++at_;
    const std::string_view value = text_.substr(begin, at_ - begin);
    expect(quote);
    return value;
  }
  bool boolean() {
    const std::string_view rest = peek() != '\0' ? text_.substr(at_) : std::string_view();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (!rest.starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    complain("neither True nor False for fortran_order");
  }
  void descr(Header& header) {
    if (peek() == '[') complain("a structured type, which is not taken");
    const std::string_view text = string();
    if (text.empty()) complain("an empty descr");
    const char order = text.front();
    const auto* code = std::find_if(std::begin(kCodes), std::end(kCodes),
                                    [&](const Code& c) { return c.text == text.substr(1); });
    const bool known = code != std::end(kCodes) && (order == '<' || order == '>' || order == '=' ||
                                                    (order == '|' && size_of(code->type) == 1));
    if (!known)
      complain("the type ", in_quotes(text),
               "; f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8 and b1 are "
               "taken, after < or >");
    header.type = code->type;
    header.big_endian = order == '>';
  }
  void shape() {
    expect('(');
    while (peek() != ')') {
      if (rank_ == extents_.size()) complain("more than ", kMaxRank, " axes");
      const char* const begin = text_.data() + at_;
      const char* const end = text_.data() + text_.size();
      std::int64_t extent = -1;
      const auto [stop, error] = std::from_chars(begin, end, extent);
      if (error != std::errc() || extent < 0) complain("an extent that is no 63-bit count");
      at_ += static_cast<std::size_t>(stop - begin);
      // Python 2 wrote long integers as 5L.
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;
      extents_[rank_++] = extent;
      // (5) is a number to Python, not a tuple.
      if (peek() != ')' || rank_ == 1) expect(',');
    }
    expect(')');
  }

  std::string_view text_;
  std::string_view origin_;
  std::size_t at_ = 0;
  std::array<std::int64_t, kMaxRank> extents_{};
  std::size_t rank_ = 0;
};

struct Preamble {
  std::uint64_t text_begin = 0;
  std::uint64_t data_begin = 0;
};

// Reads magic, version and header length from a file's first bytes; `size` is the whole file's.
Preamble parse_preamble(std::span<const std::byte> bytes, std::uint64_t size,
                        std::string_view origin) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint64_t>(bytes[i]); };
  if (bytes.size() < 10)
    fail_file("npy", origin, "truncated: ", size, " bytes, a header takes 10 or more");
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    fail_file("npy", origin, "not a .npy file: it does not start with \\x93NUMPY");
  if (at(6) < 1 || at(6) > 3 || at(7) != 0)
    fail_file("npy", origin, "version ", at(6), ".", at(7), ", 1.0, 2.0 or 3.0 expected");
  Preamble preamble;
  std::uint64_t length = at(8) | at(9) << 8;
  preamble.text_begin = 10;
  if (at(6) > 1) {
    if (bytes.size() < kLongestPreamble)
      fail_file("npy", origin, "truncated: ", size, " bytes, a header takes 12 or more");
    length |= at(10) << 16 | at(11) << 24;
    preamble.text_begin = 12;
  }
  if (length > size - preamble.text_begin)
    fail_file("npy", origin, "truncated: a header of ", length, " bytes in a file of ", size);
  if (length > kMostHeader)
    fail_file("npy", origin, "a header of ", length, " bytes, at most ", kMostHeader, " are taken");
  preamble.data_begin = preamble.text_begin + length;
  return preamble;
}

Header parse_header(std::span<const std::byte> text, std::uint64_t data_bytes,
                    std::string_view origin) {
  std::string_view characters(reinterpret_cast<const char*>(text.data()), text.size());
  if (!characters.ends_with('\n')) fail_file("npy", origin, "its header does not end in a newline");
  characters.remove_suffix(1);
  const Header header = HeaderParser(characters, origin).parse();
  if (header.data_bytes != data_bytes)
    fail_file("npy", origin, data_bytes, " bytes of data, ", name(header.type), " of shape ",
              header.shape, " needs ", header.data_bytes);
  return header;
}

void swap_bytes(std::span<std::byte> bytes, std::size_t element) {
  if (element == 1) return;
  for (std::size_t i = 0; i < bytes.size(); i += element)
    std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                 bytes.begin() + static_cast<std::ptrdiff_t>(i + element));
}

// Copies elements that lie column-major under `shape` into row-major order, or the other way round.
std::vector<std::byte> reorder(std::span<const std::byte> from, const Shape& shape,
                               std::size_t element, bool to_row_major) {
  std::vector<std::byte> to(from.size());
  const int rank = shape.rank();
  std::array<std::int64_t, kMaxRank> stride{};
  std::int64_t step = 1;
  for (int axis = 0; axis < rank; ++axis) {
    stride[static_cast<std::size_t>(axis)] = step;
    step *= shape[axis];
  }
  // `column` follows the row-major walk through the column-major array.
  std::array<std::int64_t, kMaxRank> index{};
  std::int64_t column = 0;
  const std::int64_t n = from.empty() ? 0 : shape.numel();
  for (std::int64_t row = 0; row < n; ++row) {
    const auto source = static_cast<std::size_t>(to_row_major ? column : row) * element;
    const auto target = static_cast<std::size_t>(to_row_major ? row : column) * element;
    std::memcpy(to.data() + target, from.data() + source, element);
    for (int axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<std::size_t>(axis);
      column += stride[a];
      if (++index[a] < shape[axis]) break;
      column -= stride[a] * shape[axis];
      index[a] = 0;
    }
  }
  return to;
}

// Finishes an array whose bytes are as the file has them.
void settle(HostArray& array, const Header& header, std::string_view origin) {
  if (header.big_endian) swap_bytes(array.bytes, size_of(header.type));
  if (header.type == ElementType::boolean) {
    for (const std::byte value : array.bytes)
      if (value > std::byte{1})
        fail_file("npy", origin, "a bool holds ", std::to_integer<int>(value), ", 0 or 1 expected");
  }
  if (header.fortran_order && header.shape.rank() > 1)
    array.bytes = reorder(array.bytes, header.shape, size_of(header.type), true);
}

HostArray start(const Header& header) {
  HostArray array;
  array.type = header.type;
  array.shape = header.shape;
  return array;
}

}  // namespace

HostArray parse_npy(std::span<const std::byte> bytes, std::string_view origin) {
  const Preamble preamble = parse_preamble(bytes, bytes.size(), origin);
  const auto text = bytes.first(preamble.data_begin).subspan(preamble.text_begin);
  const auto data = bytes.subspan(preamble.data_begin);
  const Header header = parse_header(text, data.size(), origin);
  HostArray array = start(header);
  array.bytes.assign(data.begin(), data.end());
  settle(array, header, origin);
  return array;
}

HostArray read_npy(const std::filesystem::path& path) {
  const InputFile file(path);
  std::array<std::byte, kLongestPreamble> first{};
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), first.size()));
  file.read(0, std::span(first).first(n));
  const Preamble preamble = parse_preamble(std::span(first).first(n), file.size(), file.origin());
  Bytes text(preamble.data_begin - preamble.text_begin);
  file.read(preamble.text_begin, text);
  const Header header = parse_header(text, file.size() - preamble.data_begin, file.origin());
  HostArray array = start(header);
  array.bytes.resize(static_cast<std::size_t>(header.data_bytes));
  file.read(preamble.data_begin, array.bytes);
  settle(array, header, file.origin());
  return array;
}

Bytes serialize_npy(ElementType type, const Shape& shape, std::span<const std::byte> data,
                    const NpyOptions& options) {
  ROUNDOFF_CHECK(options.version >= 1 && options.version <= 3, "npy", "version ", options.version,
                 ", 1, 2 or 3 expected");
  const std::size_t element = size_of(type);
  ROUNDOFF_CHECK(byte_count(type, shape.extents()) == data.size(), "npy", data.size(),
                 " bytes do not fill ", name(type), " of shape ", shape);
  if (type == ElementType::bf16) type = ElementType::u16;
  const auto* code = std::find_if(std::begin(kCodes), std::end(kCodes),
                                  [&](const Code& c) { return c.type == type; });
  // Streams may group digits in the user's locale; to_string never does.
  std::string text = "{'descr': '";
  text += element == 1 ? '|' : options.big_endian ? '>' : '<';
  text += code->text;
  text += "', 'fortran_order': ";
  text += options.fortran_order ? "True" : "False";
  text += ", 'shape': (";
  for (int axis = 0; axis < shape.rank(); ++axis) {
    text += std::to_string(shape[axis]);
    if (axis == 0 || axis + 1 < shape.rank()) text += ',';
    if (axis + 1 < shape.rank()) text += ' ';
  }
  text += "), }";
  const std::size_t preamble = options.version == 1 ? 10 : 12;
  // The data starts at a multiple of 64 bytes, with the newline just before it.
  while ((preamble + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';

  Bytes file(preamble + text.size() + data.size());
  std::memcpy(file.data(), kMagic.data(), kMagic.size());
  file[6] = static_cast<std::byte>(options.version);
  for (std::size_t i = 8; i < preamble; ++i)
    file[i] = static_cast<std::byte>(text.size() >> (8 * (i - 8)) & 0xFF);
  std::memcpy(file.data() + preamble, text.data(), text.size());
  const std::span<std::byte> target = std::span(file).subspan(preamble + text.size());
  if (options.fortran_order && shape.rank() > 1) {
    const auto columns = reorder(data, shape, element, false);
    std::copy(columns.begin(), columns.end(), target.begin());
  } else {
    std::copy(data.begin(), data.end(), target.begin());
  }
  if (options.big_endian) swap_bytes(target, element);
  return file;
}

void write_npy(const std::filesystem::path& path, const HostArray& array,
               const NpyOptions& options) {
  write_file_atomically(path, serialize_npy(array.type, array.shape, array.bytes, options));
}

void write_npy(const std::filesystem::path& path, const ConstView& array,
               const NpyOptions& options) {
  const std::span bytes(array.as<std::byte>(),
                        static_cast<std::size_t>(array.numel()) * size_of(array.dtype));
  write_file_atomically(path,
                        serialize_npy(element_type(array.dtype), array.shape, bytes, options));
}

}  // namespace roundoff
