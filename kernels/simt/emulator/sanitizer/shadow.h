// What is remembered of every piece of watched memory: who wrote it last, who has read it since,
// which bytes hold a value. Pieces are as small as the accesses ask for, so neighbours do not meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

namespace roundoff::simt {

// An access: by whom (a number among all threads of all launches; 0: nobody), at which of its
// times, from which place in the code.
struct Event {
  std::uint32_t who = 0, when = 0, where = 0;
};

enum CellFlag : std::uint8_t {
  kStrong = 1,       // the last write was atomic or volatile
  kGeneric = 2,      // ... an ordinary store, not one of the asynchronous proxy
  kStrongReads = 4,  // every read since was atomic or volatile
};

struct Cell {
  Event write;
  Event read;             // the last one
  std::uint32_t set = 0;  // of all readers since the write, where there are several
  std::uint8_t flags = 0;
};

// Readers of one cell: a few, or a time for each thread of the cluster.
struct ReadSet {
  static constexpr unsigned kFew = 6;
  Event few[kFew];
  unsigned count = 0;
  std::uint32_t cluster = 0;         // the first number of the cluster that `dense` is about
  std::vector<std::uint32_t> dense;  // empty: not in use
};

class ReadSets {
 public:
  ReadSets() { reset(); }
  void reset() {
    used_ = 1;
    free_.clear();
  }
  std::uint32_t make();
  std::uint32_t copy(std::uint32_t set);
  void free(std::uint32_t set) { free_.push_back(set); }
  ReadSet& operator[](std::uint32_t set) { return *sets_[set]; }
  // `cluster`, `threads`: of the reader.
  void add(std::uint32_t set, const Event& event, std::uint32_t cluster, std::uint32_t threads);

 private:
  std::vector<std::unique_ptr<ReadSet>> sets_;
  std::vector<std::uint32_t> free_;
  std::uint32_t used_ = 1;
};

// A set of bytes, one bit each.
class ByteSet {
 public:
  void resize(std::size_t bytes, bool value) {
    words_.assign(bytes / 64 + 2, value ? ~std::uint64_t{0} : 0);
  }
  void set(std::size_t first, std::size_t count, bool value);
  bool all(std::size_t first, std::size_t count) const {
    return find(first, count, false) == count;
  }
  bool none(std::size_t first, std::size_t count) const {
    return find(first, count, true) == count;
  }
  // The first of `count` bytes from `first` that is (not) in the set, counted from `first`.
  std::size_t find(std::size_t first, std::size_t count, bool value) const;

 private:
  std::vector<std::uint64_t> words_;
};

class Shadow {
 public:
  Shadow() = default;
  Shadow(std::size_t bytes, bool written) { start(bytes, written); }
  // For other memory; what is remembered of the old one goes, the size of pieces stays.
  void start(std::size_t bytes, bool written);
  // Forgets all accesses.
  void forget();

  std::size_t bytes() const { return bytes_; }
  ByteSet& written() { return written_; }
  struct Range {
    Cell* begin;
    Cell* end;
  };
  // The cells of [offset, offset + bytes), made smaller where the range does not end with them.
  Range cells(std::size_t offset, std::size_t bytes, ReadSets& sets) {
    const std::size_t ends = offset | bytes;
    if (cells_ == nullptr || (ends & ((std::size_t{1} << shift_) - 1)) != 0) refine(ends, sets);
    return {cells_.get() + (offset >> shift_), cells_.get() + ((offset + bytes) >> shift_)};
  }
  // Bytes from the beginning at which a cell stands.
  std::size_t offset(const Cell* cell) const {
    return static_cast<std::size_t>(cell - cells_.get()) << shift_;
  }

 private:
  void refine(std::size_t ends, ReadSets& sets);
  struct Free {
    void operator()(Cell* p) const { std::free(p); }
  };
  std::size_t count() const { return (bytes_ >> shift_) + 1; }

  std::size_t bytes_ = 0;
  std::size_t room_ = 0;  // cells there are
  unsigned shift_ = 4;
  // From calloc, whose pages cost nothing until they are touched.
  std::unique_ptr<Cell, Free> cells_;
  ByteSet written_;
};

}  // namespace roundoff::simt
