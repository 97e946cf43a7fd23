// wgmma: each warp issues its part; an operation can run once all four have, and does at the latest
// when a wait covers it. Accumulators in flight are held here, and their registers are poisoned.
#include "kernels/simt/emulator/wgmma.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/simt/emulator/async.h"
#include "kernels/simt/emulator/monitor.h"
#include "kernels/simt/emulator/products.h"

namespace roundoff::simt {

namespace {

constexpr int kRows = 64;
constexpr unsigned kGroupWarps = 4;
// Quiet NaN that no arithmetic yields: one of fp32, two of fp16.
constexpr std::uint32_t poison(bool half) { return half ? 0x7EAD7EADU : 0x7FFADBADU; }

struct Argument {
  std::uint32_t* d;
  const std::uint32_t* a_registers;  // null: by descriptor
  WgmmaKind kind;
  std::uint64_t a, b;
  bool accumulate;
};

int depth(const WgmmaKind& kind) { return kind.operand == Operand::tf32 ? 8 : 16; }

struct Place {
  Block* block;
  Warpgroup* group;
  WgmmaWarp* warp;
  unsigned index;  // of the warp in its group
};

// The running warp's group. The collective's last lane calls it.
Place place(Site site) {
  Thread& me = *current();
  Block& block = *me.block;
  const unsigned group = me.warp / kGroupWarps;
  if ((group + 1) * kGroupWarps * kWarp > block.threads)
    fault_at(site, "wgmma: warps ", group * kGroupWarps, " to ", block.warp_count - 1,
             " are no warpgroup, which has four");
  auto& slot = async_state(block).warpgroups[group];
  if (slot == nullptr) slot = std::make_unique<Warpgroup>();
  const unsigned index = me.warp % kGroupWarps;
  return {&block, slot.get(), &slot->warp[index], index};
}

// Where element i of a thread stands in 64 x n. An fp32 register holds one, one of fp16 two.
float& element(WgmmaAccumulator& acc, unsigned thread, unsigned i) {
  const unsigned lane = thread % kWarp;
  const unsigned row = thread / kWarp * 16 + lane / 4 + 8 * (i >> 1 & 1U);
  const unsigned column = 8 * (i >> 2) + lane % 4 * 2 + (i & 1U);
  return acc.value[row * static_cast<unsigned>(acc.n) + column];
}
unsigned registers_of(int n, bool half) { return static_cast<unsigned>(n) / (half ? 4U : 2U); }

// What register r of a thread holds of the accumulator, and the other way round.
std::uint32_t register_bits(WgmmaAccumulator& acc, unsigned thread, unsigned r) {
  if (!acc.half) return std::bit_cast<std::uint32_t>(element(acc, thread, r));
  return Half(element(acc, thread, 2 * r)).bits |
         static_cast<std::uint32_t>(Half(element(acc, thread, 2 * r + 1)).bits) << 16;
}
void take_register(WgmmaAccumulator& acc, unsigned thread, unsigned r, std::uint32_t bits) {
  if (!acc.half) {
    element(acc, thread, r) = std::bit_cast<float>(bits);
    return;
  }
  const std::uint16_t halves[2] = {static_cast<std::uint16_t>(bits),
                                   static_cast<std::uint16_t>(bits >> 16)};
  widen(Operand::fp16, halves, 2, &element(acc, thread, 2 * r));  // two columns, side by side
}

// f(thread, r, the register's bits) for the warp's registers; what f leaves there goes back.
template <class F>
void each_register(WgmmaAccumulator& acc, unsigned warp, F&& f) {
  for (unsigned t = warp * kWarp; t < (warp + 1) * kWarp; ++t)
    for (unsigned r = 0; r < registers_of(acc.n, acc.half); ++r) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, acc.registers[t] + r, sizeof(bits));
      const std::uint32_t before = bits;
      f(t, r, bits);
      if (bits != before) std::memcpy(acc.registers[t] + r, &bits, sizeof(bits));
    }
}

void check_untouched(WgmmaAccumulator& acc, unsigned warp, Site site) {
  each_register(acc, warp, [&](unsigned thread, unsigned, const std::uint32_t& own) {
    if (own != poison(acc.half))
      fault_at(site, "wgmma: lane ", thread % kWarp,
               " wrote to an accumulator's registers while a wgmma on it is in flight");
  });
}

// Takes the warp's registers into the accumulator and poisons them.
void attach(WgmmaAccumulator& acc, Collective& c, const Place& at, bool accumulate, Site site) {
  const std::shared_ptr<WgmmaAccumulator>* before = nullptr;
  for (const auto& other : at.warp->accumulators) {
    const std::uint32_t* lane0 = static_cast<Argument*>(c.argument[0])->d;
    if (other.get() != &acc && other->registers[at.index * kWarp] == lane0) before = &other;
  }
  for (unsigned lane = 0; lane < kWarp; ++lane)
    acc.registers[at.index * kWarp + lane] = static_cast<Argument*>(c.argument[lane])->d;
  if (!at.warp->fenced) {
    // The accumulator of an earlier batch goes on without a fence if nobody touched it.
    bool same =
        before != nullptr && (*before)->n == acc.n && (*before)->half == acc.half && accumulate;
    if (same)
      each_register(acc, at.index, [&](unsigned t, unsigned r, const std::uint32_t& own) {
        same = same && own == register_bits(**before, t, r);
      });
    if (!same)
      fault_at(site, "wgmma.mma_async without a wgmma.fence since its registers were last used");
  }
  if (before != nullptr)
    at.warp->accumulators.erase(at.warp->accumulators.begin() +
                                (before - at.warp->accumulators.data()));
  each_register(acc, at.index, [&](unsigned t, unsigned r, std::uint32_t& own) {
    take_register(acc, t, r, own);
    own = poison(acc.half);
  });
  acc.attached[at.index] = true;
}

// The accumulator that the warp has in flight in those registers; null: none.
std::shared_ptr<WgmmaAccumulator> in_flight(const Place& at, const std::uint32_t* lane0,
                                            const WgmmaKind& kind, Site site) {
  for (const auto& acc : at.warp->accumulators) {
    if (!acc->attached[at.index]) continue;
    const std::uint32_t* first = acc->registers[at.index * kWarp];
    if (first == lane0 && acc->n == kind.n && acc->half == kind.half) return acc;
    if (lane0 < first + registers_of(acc->n, acc->half) &&
        first < lane0 + registers_of(kind.n, kind.half))
      fault_at(site,
               "wgmma: the accumulator shares registers with one in flight that has another shape");
  }
  return nullptr;
}

// ---- operands

// Reads an operand from shared memory: a(row, k), `rows` of them.
template <class Store>
void read_operand(const WgmmaOperation& op, Block& block, std::uint64_t bits, bool mn_major,
                  int rows, const char* which, Store&& store) {
  const WgmmaDescriptor d = decode_descriptor(bits);
  if (d.base_offset != 0)
    fault_at(op.site, "wgmma: a base offset other than 0 is not modelled (operand ", which, ")");
  const unsigned lines = (1U << static_cast<unsigned>(d.swizzle)) - 1U;
  if (((d.start >> 7) & lines) != 0)
    fault_at(op.site, "wgmma: operand ", which,
             " does not start at the first line of its swizzle (that needs a base offset)");
  Monitor* monitor = block.cluster->monitor;
  const bool wide = op.kind.operand == Operand::tf32;
  const int in_chunk = wide ? 4 : 8;
  const int k = depth(op.kind);
  const int line_count = mn_major ? k : rows;
  const int chunks = (mn_major ? rows : k) / in_chunk;
  for (int line = 0; line < line_count; ++line) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const std::uint32_t address =
          operand_address(d, mn_major, static_cast<unsigned>(line), static_cast<unsigned>(chunk));
      const std::uint32_t offset = address - kSharedBase;
      if (offset > block.cluster->config.max_shared - 16)
        fault_at(op.site, "wgmma: operand ", which, " reaches beyond shared memory (0x", std::hex,
                 address, ")");
      const char* from = block.window + offset;
      if (monitor != nullptr) monitor->async_read(op.operation, block, from, 16);
      float values[8];
      if (wide) {
        std::uint32_t words[4];
        std::memcpy(words, from, 16);
        for (int i = 0; i < 4; ++i) values[i] = tf32_value(words[i]);
      } else {
        std::uint16_t halves[8];
        std::memcpy(halves, from, 16);
        widen(op.kind.operand, halves, 8, values);
      }
      for (int i = 0; i < in_chunk; ++i) {
        const int along = chunk * in_chunk + i;
        store(mn_major ? along : line, mn_major ? line : along, values[i]);
      }
    }
  }
}

void read_a_registers(const WgmmaOperation& op, float (*a)[16]) {
  for (unsigned t = 0; t < kGroupWarps * kWarp; ++t) {
    const unsigned lane = t % kWarp;
    for (unsigned r = 0; r < 4; ++r) {
      float* row = a[t / kWarp * 16 + lane / 4 + (r & 1) * 8];
      const std::uint32_t bits = op.a_registers[t][r];
      if (op.kind.operand == Operand::tf32) {
        row[lane % 4 + (r >> 1) * 4] = tf32_value(bits);
      } else {
        const std::uint16_t halves[2] = {static_cast<std::uint16_t>(bits),
                                         static_cast<std::uint16_t>(bits >> 16)};
        widen(op.kind.operand, halves, 2, row + lane % 4 * 2 + (r >> 1) * 8);
      }
    }
  }
}

void execute(Block& block, WgmmaOperation& op) {
  float a[kRows][16];
  std::vector<float> b(16 * 256);
  const int n = op.kind.n;
  if (op.a_in_registers) {
    read_a_registers(op, a);
  } else {
    read_operand(op, block, op.a, op.kind.transpose_a, kRows, "A",
                 [&](int row, int k, float v) { a[row][k] = v; });
  }
  read_operand(op, block, op.b, op.kind.transpose_b, n, "B", [&](int column, int k, float v) {
    b[static_cast<std::size_t>(k * n + column)] = v;
  });
  std::vector<float>& c = op.accumulator->value;
  if (!op.accumulate) std::fill(c.begin(), c.end(), 0.0F);
  const TensorCoreModel model = block.cluster->config.tensor_core;
  const TensorCoreTile tile{a[0], 16, b.data(), n, c.data(), n, kRows, n, depth(op.kind)};
  if (op.kind.half) {
    multiply_half(model, tile);
  } else {
    multiply(model, op.kind.operand, tile);
  }
  op.done = true;
  ++block.cluster->counters.wgmma;
}

// Runs what all four warps have issued, in order, up to the operation with that number.
void execute_until(Block& block, Warpgroup& group, std::uint64_t end) {
  for (std::uint64_t i = group.first; i < end; ++i) {
    WgmmaOperation& op = group.operations[i - group.first];
    if (!op.done) execute(block, op);
  }
}

// ---- issue

void issue(Collective& c, Site site) {
  const Place at = place(site);
  Warpgroup& group = *at.group;
  Cluster& cluster = *at.block->cluster;
  const Argument& mine = *static_cast<Argument*>(c.argument[0]);
  for (unsigned lane = 1; lane < kWarp; ++lane) {
    const Argument& other = *static_cast<Argument*>(c.argument[lane]);
    if (other.a != mine.a || other.b != mine.b || other.accumulate != mine.accumulate)
      fault_at(site, "wgmma: lanes of one warp give different descriptors or scale-d");
  }
  const std::uint64_t number = at.warp->issued++;
  if (number == group.first + group.operations.size()) {
    WgmmaOperation& op = group.operations.emplace_back();
    op.kind = mine.kind;
    op.a = mine.a;
    op.b = mine.b;
    op.a_in_registers = mine.a_registers != nullptr;
    op.accumulate = mine.accumulate;
    op.site = site;
    op.accumulator = in_flight(at, mine.d, mine.kind, site);
    if (op.accumulator == nullptr) {
      op.accumulator = std::make_shared<WgmmaAccumulator>();
      op.accumulator->n = mine.kind.n;
      op.accumulator->half = mine.kind.half;
      op.accumulator->value.resize(static_cast<std::size_t>(kRows * mine.kind.n));
    }
  }
  WgmmaOperation& op = group.operations[number - group.first];
  if (!(op.kind == mine.kind) || op.a != mine.a || op.b != mine.b ||
      op.a_in_registers != (mine.a_registers != nullptr) || op.accumulate != mine.accumulate)
    fault_at(site, "wgmma: the warps of a warpgroup issue different instructions or operands");
  WgmmaAccumulator& acc = *op.accumulator;
  const std::shared_ptr<WgmmaAccumulator> held = in_flight(at, mine.d, mine.kind, site);
  if (held != nullptr && held != op.accumulator)
    fault_at(site, "wgmma: the warps of a warpgroup use their accumulators in different orders");
  if (acc.attached[at.index]) {
    if (held == nullptr)
      fault_at(site, "wgmma: the warps of a warpgroup use their accumulators in different orders");
    check_untouched(acc, at.index, site);
  } else {
    attach(acc, c, at, mine.accumulate, site);
    at.warp->accumulators.push_back(op.accumulator);
  }
  if (op.a_in_registers) {
    if (!at.warp->fenced)
      fault_at(site, "wgmma.mma_async with A in registers, and no wgmma.fence before");
    op.a_registers.resize(kGroupWarps * kWarp);
    for (unsigned lane = 0; lane < kWarp; ++lane)
      std::memcpy(op.a_registers[at.index * kWarp + lane].data(),
                  static_cast<Argument*>(c.argument[lane])->a_registers, 16);
  }
  acc.last_use[at.index] = number + 1;
  op.issued |= 1U << at.index;
  if (op.issued == 0xFU) {
    if (cluster.monitor != nullptr) {
      Thread& first = at.block->thread[(current()->warp - at.index) * kWarp];
      op.operation = cluster.monitor->async_begin(first, kGroupWarps * kWarp, site);
    }
    const Async when = cluster.config.async;
    if (when == Async::eager || (when == Async::random && cluster.draw(2) == 0))
      execute_until(*at.block, group, number + 1);
    for (WgmmaWarp& w : group.warp) {
      if (w.waiting == nullptr) continue;
      cluster.wake(*w.waiting);
      w.waiting = nullptr;
    }
  }
}

void start(void* d, const WgmmaKind& kind, const std::uint32_t* a_registers, std::uint64_t a,
           std::uint64_t b, bool accumulate, Site site) {
  need_sm_90("wgmma", site);
  Argument mine{static_cast<std::uint32_t*>(d), a_registers, kind, a, b, accumulate};
  if (Collective* c = arrive(Meeting::wgmma, ~0U, &mine, site, true)) {
    issue(*c, site);
    release(c);
  }
}

// Whether all four warps have issued everything before `end`.
bool issued_by_all(const Warpgroup& group, std::uint64_t end) {
  return std::all_of(group.warp.begin(), group.warp.end(),
                     [end](const WgmmaWarp& w) { return w.issued >= end; });
}

void wait_for_groups(unsigned pending, Site site) {
  const Place at = place(site);
  WgmmaWarp& warp = *at.warp;
  if (warp.commits.size() <= pending) return;
  const std::uint64_t end = warp.commits[warp.commits.size() - 1 - pending];
  while (!issued_by_all(*at.group, end)) {
    warp.waiting = current();
    wait("wgmma.wait_group for the other warps of the warpgroup", pending, site);
  }
  execute_until(*at.block, *at.group, end);
  while (warp.commits.size() > pending) warp.commits.pop_front();
  Cluster& cluster = *at.block->cluster;
  if (cluster.monitor != nullptr) {
    Thread& first = at.block->thread[current()->warp * kWarp];
    for (std::uint64_t i = warp.waited; i < end; ++i)
      cluster.monitor->async_join(at.group->operations[i - at.group->first].operation, first,
                                  kWarp);
  }
  warp.waited = std::max(warp.waited, end);
  for (const auto& acc : warp.accumulators) {
    if (!acc->attached[at.index] || acc->last_use[at.index] > end) continue;
    check_untouched(*acc, at.index, site);
    each_register(*acc, at.index, [&](unsigned t, unsigned r, std::uint32_t& own) {
      own = register_bits(*acc, t, r);
    });
    acc->attached[at.index] = false;
    warp.fenced = false;
  }
  // What every warp is done with goes.
  std::uint64_t past = end;
  for (const WgmmaWarp& w : at.group->warp) past = std::min(past, w.waited);
  for (; at.group->first < past; ++at.group->first) at.group->operations.pop_front();
}

}  // namespace

void wgmma(void* d, WgmmaKind kind, std::uint64_t a, std::uint64_t b, bool accumulate, Site site) {
  start(d, kind, nullptr, a, b, accumulate, site);
}
void wgmma(void* d, WgmmaKind kind, const std::uint32_t* a, std::uint64_t b, bool accumulate,
           Site site) {
  start(d, kind, a, 0, b, accumulate, site);
}

void wgmma_fence(Site site) {
  need_sm_90("wgmma", site);
  if (Collective* c = arrive(Meeting::wgmma_fence, ~0U, nullptr, site, true)) {
    place(site).warp->fenced = true;
    release(c);
  }
}

void wgmma_commit(Site site) {
  need_sm_90("wgmma", site);
  if (Collective* c = arrive(Meeting::wgmma_commit, ~0U, nullptr, site, true)) {
    WgmmaWarp& warp = *place(site).warp;
    warp.commits.push_back(warp.issued);
    release(c);
  }
}

void wgmma_wait(unsigned pending, Site site) {
  need_sm_90("wgmma", site);
  if (Collective* c = arrive(Meeting::wgmma_wait, ~0U, nullptr, site, true)) {
    wait_for_groups(pending, site);
    release(c);
  }
}

void set_registers(unsigned count, bool increase, Site site) {
  need_sm_90("setmaxnreg", site);
  if (Collective* c = arrive(Meeting::set_registers, ~0U, nullptr, site, true)) {
    const Place at = place(site);
    WgmmaWarp& warp = *at.warp;
    if (warp.registers != 0 && (increase ? count < warp.registers : count > warp.registers))
      fault_at(site, "setmaxnreg.", increase ? "inc" : "dec", " from ", warp.registers, " to ",
               count, " registers");
    warp.registers = count;
    // Of what is known: warps that have not said so keep what they were launched with.
    constexpr unsigned kRegisters = 65536;
    unsigned total = 0;
    for (const auto& group : at.block->async->warpgroups) {
      if (group == nullptr) continue;
      for (const WgmmaWarp& w : group->warp) total += w.registers * kWarp;
    }
    if (total > kRegisters)
      fault_at(site, "setmaxnreg: the block's warps ask for ", total, " registers of ", kRegisters);
    release(c);
  }
}

void wgmma_thread_exit(Thread& thread) {
  const auto& group = thread.block->async->warpgroups[thread.warp / kGroupWarps];
  if (group == nullptr) return;
  const unsigned index = thread.warp % kGroupWarps;
  for (const auto& acc : group->warp[index].accumulators)
    if (acc->attached[index])
      fault("a thread exits with a wgmma in flight (wgmma.wait_group is missing)");
}

}  // namespace roundoff::simt
