// Pairwise designs: few runs in which every level of each factor meets every level of each other
// factor. Greedy, and the same for the same arguments.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace roundoff::test {

// Which pairs of levels of different factors have met.
class MetPairs {
 public:
  explicit MetPairs(const std::vector<int>& levels) : levels_(levels) {
    int first = 0;
    for (const int n : levels) {
      begin_.push_back(first);
      first += n;
    }
    all_ = first;
    met_.assign(static_cast<std::size_t>(all_) * static_cast<std::size_t>(all_), false);
  }
  bool met(std::size_t f, int a, std::size_t g, int b) const { return met_[index(f, a, g, b)]; }
  void add(const std::vector<int>& row) {
    for (std::size_t f = 0; f < row.size(); ++f)
      for (std::size_t g = 0; g < row.size(); ++g) met_[index(f, row[f], g, row[g])] = true;
  }
  bool complete() const {
    for (std::size_t f = 0; f < levels_.size(); ++f)
      for (std::size_t g = f + 1; g < levels_.size(); ++g)
        for (int a = 0; a < levels_[f]; ++a)
          for (int b = 0; b < levels_[g]; ++b)
            if (!met(f, a, g, b)) return false;
    return true;
  }

 private:
  std::size_t index(std::size_t f, int a, std::size_t g, int b) const {
    return static_cast<std::size_t>(begin_[f] + a) * static_cast<std::size_t>(all_) +
           static_cast<std::size_t>(begin_[g] + b);
  }
  std::vector<int> levels_, begin_;
  int all_ = 0;
  std::vector<bool> met_;
};

inline bool covers_pairs(const std::vector<std::vector<int>>& rows,
                         const std::vector<int>& levels) {
  MetPairs pairs(levels);
  for (const std::vector<int>& row : rows) pairs.add(row);
  return pairs.complete();
}

// Rows of levels: row[f] in [0, levels[f]), levels[f] >= 1.
inline std::vector<std::vector<int>> covering_array(const std::vector<int>& levels,
                                                    unsigned seed = 1) {
  std::mt19937 random(seed);
  MetPairs pairs(levels);
  std::vector<std::vector<int>> rows;
  const std::size_t factors = levels.size();
  // A row begins with the first pair that has not met; each further factor takes the level that
  // meets most of the row's for the first time.
  const auto extend = [&](std::size_t first, int a, std::size_t second, int b) {
    std::vector<int> row(factors, -1);
    row[first] = a;
    row[second] = b;
    for (std::size_t f = 0; f < factors; ++f) {
      if (row[f] >= 0) continue;
      int best = 0, best_new = -1;
      const int start = static_cast<int>(random() % static_cast<unsigned>(levels[f]));
      for (int i = 0; i < levels[f]; ++i) {
        const int level = (start + i) % levels[f];
        int fresh = 0;
        for (std::size_t g = 0; g < factors; ++g)
          if (g != f && row[g] >= 0 && !pairs.met(f, level, g, row[g])) ++fresh;
        if (fresh > best_new) {
          best = level;
          best_new = fresh;
        }
      }
      row[f] = best;
    }
    pairs.add(row);
    rows.push_back(row);
  };
  for (std::size_t f = 0; f < factors; ++f)
    for (std::size_t g = f + 1; g < factors; ++g)
      for (int a = 0; a < levels[f]; ++a)
        for (int b = 0; b < levels[g]; ++b)
          if (!pairs.met(f, a, g, b)) extend(f, a, g, b);
  if (factors == 1)
    for (int a = 0; a < levels[0]; ++a) rows.push_back({a});
  return rows;
}

}  // namespace roundoff::test
