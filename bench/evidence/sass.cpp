#include "bench/evidence/sass.h"

#include <algorithm>

#include "bench/evidence/sass_flow.h"

namespace roundoff::evidence {
namespace {

struct Kind {
  unsigned operation;  // the low nine bits of the opcode
  Sass kind;
};
constexpr Kind kKinds[] = {
    {0x181, Sass::ldg},       {0x186, Sass::stg},     {0x18E, Sass::red},
    {0x1A6, Sass::red},       {0x1A8, Sass::atomg},   {0x1A9, Sass::atomg},
    {0x1A3, Sass::atomg},     {0x180, Sass::ld},      {0x185, Sass::st},
    {0x18A, Sass::atomg},     {0x18B, Sass::atomg},   {0x184, Sass::lds},
    {0x188, Sass::sts},       {0x18C, Sass::atoms},   {0x18D, Sass::atoms},
    {0x183, Sass::ldl},       {0x187, Sass::stl},     {0x1AE, Sass::ldgsts},
    {0x03B, Sass::ldsm},      {0x044, Sass::stsm},    {0x03C, Sass::hmma},
    {0x1F0, Sass::hgmma},     {0x1B4, Sass::utmaldg}, {0x1B5, Sass::utmastg},
    {0x1B6, Sass::utmaredg},  {0x1BA, Sass::ublkcp},  {0x1A7, Sass::syncs},
    {0x1B1, Sass::syncs},     {0x1B2, Sass::syncs},   {0x11D, Sass::bar},
    {0x189, Sass::shfl},      {0x108, Sass::mufu},    {0x023, Sass::ffma},
    {0x021, Sass::fadd},      {0x020, Sass::fmul},    {0x02B, Sass::dfma},
    {0x15D, Sass::nanosleep}, {0x1C7, Sass::ucgabar}, {0x1C8, Sass::usetmaxreg}};
constexpr unsigned kNop = 0x118;

constexpr std::array<Sass, 512> kind_table() {
  std::array<Sass, 512> table{};
  for (Sass& kind : table) kind = Sass::other;
  for (const Kind& entry : kKinds) table[entry.operation] = entry.kind;
  return table;
}
constexpr std::array<Sass, 512> kTable = kind_table();

constexpr std::string_view kNames[kSassKinds] = {
    "LDG",     "STG",     "RED",      "ATOMG",  "LD",         "ST",      "LDS",       "STS",
    "ATOMS",   "LDL",     "STL",      "LDGSTS", "LDSM",       "STSM",    "HMMA",      "HGMMA",
    "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "SYNCS",      "BAR",     "SHFL",      "MUFU",
    "FFMA",    "FADD",    "FMUL",     "DFMA",   "USETMAXREG", "UCGABAR", "NANOSLEEP", "other"};

bool is_access(Sass kind) {
  switch (kind) {
    case Sass::ldg:
    case Sass::stg:
    case Sass::ld:
    case Sass::st:
    case Sass::lds:
    case Sass::sts:
    case Sass::ldl:
    case Sass::stl:
    case Sass::ldgsts:
      return true;
    default:
      return false;
  }
}

// 0 to 3: narrower than 32 bits, 32, 64, 128; -1 for none.
int width_of(const SassWord& word, Sass kind) {
  if (kind == Sass::ldsm || kind == Sass::stsm) {
    const auto matrices = static_cast<int>(word.high >> 8 & 3);  // bits 72, 73: 1, 2, 4 of them
    return matrices < 3 ? matrices + 1 : -1;
  }
  if (!is_access(kind)) return -1;
  const auto code = static_cast<int>(word.high >> 9 & 7);  // bits 73 to 75
  return code < 4 ? 0 : code < 7 ? code - 3 : -1;
}

Sass kind_of(const SassWord& word) { return kTable[word.operation()]; }

template <class Wanted>
Census count(std::span<const SassWord> words, const SassFlow& flow, std::size_t first,
             std::size_t last, Wanted wanted) {
  Census result;
  for (std::size_t i = first; i < last; ++i) {
    if (!wanted(i)) continue;
    const Sass kind = kind_of(words[i]);
    SassCount& counts = result.of(kind);
    ++counts.total;
    if (flow.in_loop[i]) ++counts.in_loops;
    if (const int width = width_of(words[i], kind); width >= 0)
      ++counts.narrow_32_64_128[static_cast<std::size_t>(width)];
    ++result.instructions;
  }
  for (const SassLoop& loop : flow.loops)
    if (loop.first >= first && loop.last < last) ++result.loops;
  return result;
}

// Behind the code lie a branch to itself and NOPs up to the section's alignment.
std::size_t end_of(std::span<const SassWord> words) {
  std::size_t end = words.size();
  while (end > 0 && words[end - 1].operation() == kNop) --end;
  return end;
}

}  // namespace

std::string_view name(Sass kind) { return kNames[static_cast<std::size_t>(kind)]; }

Census census(std::span<const std::byte> code, int architecture) {
  const std::vector<SassWord> words = sass_words(code);
  const SassFlow flow = sass_flow(words, architecture);
  return count(words, flow, 0, end_of(words), [](std::size_t) { return true; });
}

std::optional<Census> main_loop(std::span<const std::byte> code, int architecture) {
  const std::vector<SassWord> words = sass_words(code);
  const SassFlow flow = sass_flow(words, architecture);
  const auto holds = [&](auto is_product) {
    // products[i]: of the instructions before i.
    std::vector<std::size_t> products(words.size() + 1, 0);
    for (std::size_t i = 0; i < words.size(); ++i)
      products[i + 1] = products[i] + (flow.in_loop[i] && is_product(kind_of(words[i])) ? 1 : 0);
    const SassLoop* best = nullptr;
    std::size_t most = 0;
    for (const SassLoop& loop : flow.loops) {
      const std::size_t held = products[loop.last + 1] - products[loop.first];
      if (held == 0 || held < most) continue;
      if (held == most && best != nullptr && loop.last - loop.first >= best->last - best->first)
        continue;
      most = held;
      best = &loop;
    }
    return best;
  };
  const SassLoop* best = holds([](Sass kind) { return kind == Sass::hmma || kind == Sass::hgmma; });
  if (best == nullptr) best = holds([](Sass kind) { return kind == Sass::ffma; });
  if (best == nullptr) return std::nullopt;
  return count(words, flow, best->first, best->last + 1,
               [&](std::size_t i) { return flow.in_loop[i]; });
}

}  // namespace roundoff::evidence
