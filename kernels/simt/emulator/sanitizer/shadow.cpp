#include "kernels/simt/emulator/sanitizer/shadow.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace roundoff::simt {

std::uint32_t ReadSets::make() {
  std::uint32_t set = used_;
  if (!free_.empty()) {
    set = free_.back();
    free_.pop_back();
  } else {
    ++used_;
    while (sets_.size() < used_) sets_.push_back(std::make_unique<ReadSet>());
  }
  ReadSet& s = *sets_[set];
  s.count = 0;
  s.dense.clear();
  return set;
}

std::uint32_t ReadSets::copy(std::uint32_t from) {
  const std::uint32_t set = make();
  *sets_[set] = *sets_[from];
  return set;
}

void ReadSets::add(std::uint32_t set, const Event& event, std::uint32_t cluster,
                   std::uint32_t threads) {
  ReadSet& s = *sets_[set];
  const auto mine = [&](const Event& e) { return e.who - cluster < threads; };
  if (!s.dense.empty() && s.cluster != cluster) {
    // Of an earlier cluster one reader is kept.
    const auto last = std::max_element(s.dense.begin(), s.dense.end());
    const auto thread = static_cast<std::uint32_t>(last - s.dense.begin());
    if (s.count < ReadSet::kFew) s.few[s.count++] = {s.cluster + thread, *last, 0};
    s.dense.clear();
  }
  if (!s.dense.empty() && mine(event)) {
    s.dense[event.who - cluster] = event.when;
    return;
  }
  for (unsigned i = 0; i < s.count; ++i)
    if (s.few[i].who == event.who) {
      s.few[i] = event;
      return;
    }
  if (s.count < ReadSet::kFew) {
    s.few[s.count++] = event;
    return;
  }
  s.dense.assign(threads, 0);
  s.cluster = cluster;
  unsigned kept = 0;
  for (unsigned i = 0; i < s.count; ++i) {
    if (mine(s.few[i])) {
      s.dense[s.few[i].who - cluster] = s.few[i].when;
    } else {
      s.few[kept++] = s.few[i];
    }
  }
  s.count = std::min(kept, ReadSet::kFew - 1);
  s.dense[event.who - cluster] = event.when;
}

void ByteSet::set(std::size_t first, std::size_t count, bool value) {
  while (count > 0) {
    const std::size_t bit = first % 64;
    const std::size_t here = std::min<std::size_t>(64 - bit, count);
    const std::uint64_t ones = here == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1;
    std::uint64_t& word = words_[first / 64];
    word = value ? word | ones << bit : word & ~(ones << bit);
    first += here;
    count -= here;
  }
}

std::size_t ByteSet::find(std::size_t first, std::size_t count, bool value) const {
  std::size_t done = 0;
  while (done < count) {
    const std::size_t bit = (first + done) % 64;
    const std::size_t here = std::min<std::size_t>(64 - bit, count - done);
    const std::uint64_t ones = here == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << here) - 1;
    std::uint64_t word = words_[(first + done) / 64] >> bit;
    if (!value) word = ~word;
    if ((word & ones) != 0) return done + static_cast<std::size_t>(std::countr_zero(word & ones));
    done += here;
  }
  return count;
}

void Shadow::start(std::size_t bytes, bool written) {
  bytes_ = bytes;
  written_.resize(bytes, written);
  if (cells_ != nullptr && count() > room_) cells_.reset();
}

void Shadow::forget() { cells_.reset(); }

void Shadow::refine(std::size_t ends, ReadSets& sets) {
  const unsigned before = shift_;
  while ((ends & ((std::size_t{1} << shift_) - 1)) != 0) --shift_;
  auto* cells = static_cast<Cell*>(std::calloc(count(), sizeof(Cell)));
  if (cells == nullptr) throw std::bad_alloc();
  if (cells_ != nullptr) {
    const std::size_t parts = std::size_t{1} << (before - shift_);
    const std::size_t old = std::min(room_, (bytes_ >> before) + 1);
    for (std::size_t i = 0; i < old; ++i) {
      const Cell& whole = cells_.get()[i];
      if (whole.write.who == 0 && whole.read.who == 0) continue;
      for (std::size_t k = 0; k < parts && i * parts + k < count(); ++k) {
        Cell& part = cells[i * parts + k];
        part = whole;
        if (k > 0 && whole.set != 0) part.set = sets.copy(whole.set);
      }
    }
  }
  cells_.reset(cells);
  room_ = count();
}

}  // namespace roundoff::simt
