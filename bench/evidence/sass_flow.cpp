#include "bench/evidence/sass_flow.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace roundoff::evidence {
namespace {

constexpr std::size_t kWord = 16;  // bytes
constexpr unsigned kBranch = 0x147, kExit = 0x14D, kReturn = 0x150, kIndirect = 0x149;
constexpr unsigned kCall = 0x144;
constexpr unsigned kReconverge = 0x145, kSynchronise = 0x141;  // BSSY, BSYNC
constexpr unsigned kAlways = 7;                                // the predicate that is true

bool is_unconditional(const SassWord& word) { return (word.low >> 12 & 0xF) == kAlways; }
// A branch has a second predicate among its operands.
bool always_taken(const SassWord& word) {
  return is_unconditional(word) && (word.high >> 23 & 0xF) == kAlways;
}

// Bits first to first + 49 or fewer of the 128, sign-extended.
std::int64_t signed_bits(const SassWord& word, unsigned first, unsigned end) {
  const std::uint64_t low = word.low >> first;
  const std::uint64_t joined = low | word.high << (64 - first);
  const unsigned unused = 64 - (end - first);
  return static_cast<std::int64_t>(joined << unused) >> unused;
}

// Distance in bytes from the next instruction. sm_80: bits 32 to 81. sm_90: a quarter of it, whose
// lowest eight bits are in bits 16 to 23 and the others in bits 34 to 81.
std::int64_t distance(const SassWord& word, int architecture) {
  if (architecture < 90 || word.operation() == kReconverge) return signed_bits(word, 32, 82);
  const auto upper = static_cast<std::uint64_t>(signed_bits(word, 34, 82));
  return static_cast<std::int64_t>((upper << 8 | (word.low >> 16 & 0xFF)) << 2);
}

constexpr std::size_t kNowhere = ~std::size_t{0};

std::size_t target(std::span<const SassWord> code, std::size_t at, int architecture) {
  const std::int64_t to =
      static_cast<std::int64_t>((at + 1) * kWord) + distance(code[at], architecture);
  if (to < 0 || to % static_cast<std::int64_t>(kWord) != 0) return kNowhere;
  const auto index = static_cast<std::size_t>(to) / kWord;
  return index < code.size() ? index : kNowhere;
}

// At most two ways on from every instruction.
struct Ways {
  std::size_t next = kNowhere, jump = kNowhere;
};

std::vector<Ways> ways_of(std::span<const SassWord> code, int architecture) {
  std::vector<Ways> ways(code.size());
  // Where the barrier that BSYNC waits at lets its threads go on, as the BSSY before it says.
  std::map<unsigned, std::size_t> reconvergence;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const SassWord& word = code[i];
    const std::size_t next = i + 1 < code.size() ? i + 1 : kNowhere;
    const unsigned barrier = word.low >> 16 & 0xF;
    switch (word.operation()) {
      case kBranch:
        ways[i].jump = target(code, i, architecture);
        if (!always_taken(word)) ways[i].next = next;
        break;
      case kCall:
        // ptxas for sm_80 also leaves and enters loops by a call that never returns.
        if (architecture < 90) ways[i].jump = target(code, i, architecture);
        ways[i].next = next;
        break;
      case kExit:
      case kReturn:
      case kIndirect:
        if (!is_unconditional(word)) ways[i].next = next;
        break;
      case kReconverge:
        reconvergence[barrier] = target(code, i, architecture);
        ways[i].next = next;
        break;
      case kSynchronise:
        if (const auto found = reconvergence.find(barrier); found != reconvergence.end())
          ways[i].jump = found->second;
        ways[i].next = next;
        break;
      default:
        ways[i].next = next;
    }
  }
  return ways;
}

// Strongly connected components (Tarjan), without recursion: a component's number an instruction.
std::vector<std::size_t> components(const std::vector<Ways>& ways) {
  const std::size_t n = ways.size();
  std::vector<std::size_t> component(n, kNowhere), number(n, kNowhere), low(n, 0);
  std::vector<std::size_t> open;  // in no component yet
  struct Frame {
    std::size_t node;
    int way;
  };
  std::vector<Frame> frames;
  std::size_t counter = 0;
  for (std::size_t root = 0; root < n; ++root) {
    if (number[root] != kNowhere) continue;
    frames.push_back({root, 0});
    while (!frames.empty()) {
      const std::size_t node = frames.back().node;
      if (frames.back().way == 0) {
        number[node] = low[node] = counter++;
        open.push_back(node);
      }
      if (frames.back().way < 2) {
        const std::size_t to = frames.back().way++ == 0 ? ways[node].next : ways[node].jump;
        if (to == kNowhere) continue;
        if (number[to] == kNowhere)
          frames.push_back({to, 0});
        else if (component[to] == kNowhere)
          low[node] = std::min(low[node], number[to]);
        continue;
      }
      frames.pop_back();
      if (!frames.empty()) {
        const std::size_t parent = frames.back().node;
        low[parent] = std::min(low[parent], low[node]);
      }
      if (low[node] != number[node]) continue;
      for (std::size_t member = kNowhere; member != node;) {
        member = open.back();
        open.pop_back();
        component[member] = node;
      }
    }
  }
  return component;
}

}  // namespace

std::vector<SassWord> sass_words(std::span<const std::byte> code) {
  std::vector<SassWord> words(code.size() / kWord);
  if (!words.empty()) std::memcpy(words.data(), code.data(), words.size() * kWord);
  return words;
}

SassFlow sass_flow(std::span<const SassWord> code, int architecture) {
  const std::vector<Ways> ways = ways_of(code, architecture);
  const std::vector<std::size_t> component = components(ways);
  std::vector<std::size_t> size(code.size(), 0);
  for (const std::size_t c : component) ++size[c];
  SassFlow flow;
  flow.in_loop.resize(code.size());
  for (std::size_t i = 0; i < code.size(); ++i) {
    flow.in_loop[i] = size[component[i]] > 1;
    const std::size_t to = ways[i].jump;
    if (code[i].operation() == kBranch && to < i && component[to] == component[i])
      flow.loops.push_back({to, i});
  }
  return flow;
}

}  // namespace roundoff::evidence
