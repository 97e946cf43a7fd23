// Reductions over any axes, in stages and in a fixed order.
//
// A thread folds its 32 terms, a block its threads in pairs, and where an output has more terms
// than a block takes, the blocks' results are the terms of the next stage, in scratch memory. So a
// term meets 18 combinations a stage where arithmetic is in fp32 and 25 in fp64 (40 in the first
// one where the terms lie along several axes), and which ones is a function of the extents and
// types alone: not of alignment, of the grid or of the device. Absent terms are the identity.
//
// A reduction is given as
//   Terms   Value, static identity(), and visit(f), which calls f with a reader of the terms' type:
//           at(offset), the term at that offset of the input, and pack(offset, values), kPack of
//           them at once, used where the host says that packs are aligned
//   Op      combines two Values (kernels/reduce/block.cuh)
//   Finish  operator()(output, value): what becomes of the result
// Bytes: the input once; the stages' results are at most 1 / 128 of it, twice.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/scratch.h"
#include "kernels/reduce/block.cuh"
#include "kernels/reduce/sum_tree.h"
#include "kernels/simt/any_array.cuh"
#include "kernels/simt/divide.cuh"

namespace roundoff {

// detail::ReduceGeometry for kernels. Index 0 is the innermost axis of its list.
struct ReducePlan {
  int kept_rank = 0, reduced_rank = 0;
  Divisor kept[kMaxRank], reduced[kMaxRank];
  std::int64_t kept_stride[kMaxRank] = {}, reduced_stride[kMaxRank] = {};
  std::int64_t outputs = 1, terms = 1;
  unsigned segments = 1;  // blocks an output
  bool packs = false;     // packs of terms are aligned

  ReducePlan() = default;
  explicit ReducePlan(const detail::ReduceGeometry& g)
      : kept_rank(g.kept_rank), reduced_rank(g.reduced_rank), outputs(g.outputs), terms(g.terms) {
    for (int i = 0; i < kept_rank; ++i) {
      kept[i] = Divisor(std::max<std::int64_t>(g.kept[i].extent, 1));
      kept_stride[i] = g.kept[i].stride;
    }
    for (int i = 0; i < reduced_rank; ++i) {
      reduced[i] = Divisor(std::max<std::int64_t>(g.reduced[i].extent, 1));
      reduced_stride[i] = g.reduced[i].stride;
    }
  }
};

ROUNDOFF_DEVICE_NAMESPACE {
  namespace reduce {

  inline constexpr unsigned kThreads = 256;
  inline constexpr int kValues = 32;  // terms a thread
  // Blocks that share a multiprocessor at least: leaves registers enough for packs of Values.
  template <class Value>
  inline constexpr int kBlocks = sizeof(Value) > 4 ? 2 : 4;

  // Where the first term of an output is.
  ROUNDOFF_DEVICE std::int64_t first_term(const ReducePlan& plan, std::int64_t output) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < plan.kept_rank; ++axis) {
      const std::int64_t rest = divide(output, plan.kept[axis]);
      offset += (output - rest * plan.kept[axis].extent) * plan.kept_stride[axis];
      output = rest;
    }
    return offset;
  }
  // How far term t is from the first one.
  ROUNDOFF_DEVICE std::int64_t term_offset(const ReducePlan& plan, std::int64_t t) {
    std::int64_t offset = 0;
    for (int axis = 0; axis + 1 < plan.reduced_rank; ++axis) {
      const std::int64_t rest = divide(t, plan.reduced[axis]);
      offset += (t - rest * plan.reduced[axis].extent) * plan.reduced_stride[axis];
      t = rest;
    }
    if (plan.reduced_rank > 0) offset += t * plan.reduced_stride[plan.reduced_rank - 1];
    return offset;
  }

  // The terms of an array of T, widened to A and then F{}(value, offset).
  template <class T, class A, class F>
  struct Reader {
    using Value = decltype(F{}(A(0), std::int64_t{0}));
    static constexpr int kPack = kAnyPack<A>;
    const T* x;
    F f;
    ROUNDOFF_DEVICE Value at(std::int64_t i) const { return f(widen_value<A>(x[i]), i); }
    ROUNDOFF_DEVICE void pack(std::int64_t i, Value (&v)[kPack]) const {
      A terms[kPack];
      load_pack(x + i, terms);
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPack; ++k) v[k] = f(terms[k], i + k);
    }
  };

  // kNarrow: types below fp64; kWide: fp64.
  template <class A, class F, bool kNarrow, bool kWide>
  struct ArrayTerms {
    using Value = decltype(F{}(A(0), std::int64_t{0}));
    static constexpr int kPack = kAnyPack<A>;
    AnyArray x;
    F f;
    ROUNDOFF_DEVICE static Value identity() { return Value(F::identity()); }
    template <class G>
    ROUNDOFF_DEVICE void visit(G&& g) const {
      if constexpr (kNarrow) {
        if (x.dtype == DType::fp16) return g(reader<Half>());
        if (x.dtype == DType::bf16) return g(reader<BFloat16>());
        if (!kWide || x.dtype == DType::fp32) return g(reader<float>());
      }
      if constexpr (kWide) return g(reader<double>());
    }
    template <class T>
    ROUNDOFF_DEVICE Reader<T, A, F> reader() const {
      return {static_cast<const T*>(x.data), f};
    }
    // Whether packs from the first element on are aligned.
    bool aligned() const { return any_pack_head<kPack>(x) == 0; }
  };

  // What a stage left, as the terms of the next one.
  template <class Terms>
  struct Partial {
    using Value = typename Terms::Value;
    static constexpr int kPack = 4;
    const Value* values;
    ROUNDOFF_DEVICE static Value identity() { return Terms::identity(); }
    template <class G>
    ROUNDOFF_DEVICE void visit(G&& g) const {
      g(*this);
    }
    ROUNDOFF_DEVICE Value at(std::int64_t i) const { return values[i]; }
    ROUNDOFF_DEVICE void pack(std::int64_t i, Value (&v)[kPack]) const {
      ROUNDOFF_UNROLL
      for (int k = 0; k < kPack; ++k) v[k] = values[i + k];
    }
  };
  template <class Terms>
  struct NextStage {
    using Type = Partial<Terms>;
  };
  template <class Terms>
  struct NextStage<Partial<Terms>> {
    using Type = Partial<Terms>;
  };

  // Terms that are contiguous for an output: kRow threads each, of 256 a block. kPlain: there is
  // one axis of terms; otherwise each thread adds up its terms one after another.
  template <int kRow, bool kPlain, class Terms, class Op, class Finish>
  __global__ void __launch_bounds__(kThreads, kBlocks<typename Terms::Value>)
      reduce_rows(Terms terms, Op op, Finish finish, const __grid_constant__ ReducePlan plan,
                  typename Terms::Value* partial) {
    using Value = typename Terms::Value;
    constexpr int kPack = Terms::kPack;
    constexpr int kRows = static_cast<int>(kThreads) / kRow;
    ROUNDOFF_SHARED(Value, memory, [shared_size(static_cast<int>(kThreads))]);
    Shared<Value> shared(memory);
    const int thread = static_cast<int>(threadIdx.x) % kRow;
    // Where a block has several rows, a row is one segment.
    const unsigned line = blockIdx.x / plan.segments;
    const unsigned segment = blockIdx.x - line * plan.segments;
    const std::int64_t output =
        static_cast<std::int64_t>(line) * kRows + static_cast<int>(threadIdx.x) / kRow;
    const std::int64_t first = static_cast<std::int64_t>(segment) * (kValues * kRow);
    const bool present = output < plan.outputs;
    const std::int64_t base = present ? first_term(plan, output) : 0;
    const auto left = static_cast<int>(
        present ? std::min(plan.terms - first, static_cast<std::int64_t>(kValues * kRow)) : 0);
    Value value = Terms::identity();
    terms.visit([&](const auto& reader) {
      if constexpr (!kPlain) {
        ROUNDOFF_NO_UNROLL
        for (int t = thread; t < left; t += kRow)
          value = op(value, reader.at(base + term_offset(plan, first + t)));
      } else {
        // Lane k of every pack by itself; four packs are on their way at once.
        constexpr int kAtOnce = 4;
        constexpr int kStep = kRow * kPack;
        Value lanes[kPack];
        ROUNDOFF_UNROLL
        for (int k = 0; k < kPack; ++k) lanes[k] = Terms::identity();
        ROUNDOFF_NO_UNROLL
        for (int start = thread * kPack; start < left; start += kAtOnce * kStep) {
          const std::int64_t at = base + first + start;
          if (plan.packs && start + (kAtOnce - 1) * kStep + kPack <= left) {
            Value v[kAtOnce][kPack];
            ROUNDOFF_UNROLL
            for (int i = 0; i < kAtOnce; ++i) reader.pack(at + i * kStep, v[i]);
            ROUNDOFF_UNROLL
            for (int i = 0; i < kAtOnce; ++i) {
              ROUNDOFF_UNROLL
              for (int k = 0; k < kPack; ++k) lanes[k] = op(lanes[k], v[i][k]);
            }
          } else {
            ROUNDOFF_NO_UNROLL
            for (int i = 0; i < kAtOnce; ++i) {
              ROUNDOFF_UNROLL
              for (int k = 0; k < kPack; ++k)
                if (start + i * kStep + k < left)
                  lanes[k] = op(lanes[k], reader.at(at + i * kStep + k));
            }
          }
        }
        value = fold<kPack>(lanes, op);
      }
    });
    const Value result = row<kRow>(value, op, shared);
    if (thread != 0 || !present) return;
    if (plan.segments == 1)
      finish(output, result);
    else
      partial[output * plan.segments + segment] = result;
  }

  // Outputs that are contiguous: kColumns of them a block, 256 / kColumns threads each.
  template <int kColumns, bool kPlain, class Terms, class Op, class Finish>
  __global__ void __launch_bounds__(kThreads, kBlocks<typename Terms::Value>)
      reduce_columns(Terms terms, Op op, Finish finish, const __grid_constant__ ReducePlan plan,
                     unsigned tiles, unsigned lines, typename Terms::Value* partial) {
    using Value = typename Terms::Value;
    constexpr int kRows = static_cast<int>(kThreads) / kColumns;
    ROUNDOFF_SHARED(Value, memory, [kRows][kColumns]);
    const auto x = static_cast<int>(threadIdx.x);
    const auto y = static_cast<int>(threadIdx.y);
    // blockIdx.x = (segment * lines + line) * tiles + tile
    const unsigned above = blockIdx.x / tiles;
    const unsigned segment = above / lines;
    const unsigned line = above - segment * lines;
    const std::int64_t column =
        static_cast<std::int64_t>(blockIdx.x - above * tiles) * kColumns + x;
    const std::int64_t columns = plan.kept[0].extent;
    const std::int64_t output = line * columns + column;
    const std::int64_t first = static_cast<std::int64_t>(segment) * (kValues * kRows);
    const bool present = column < columns;
    const std::int64_t base = present ? first_term(plan, output) : 0;
    const auto left = static_cast<int>(
        present ? std::min(plan.terms - first, static_cast<std::int64_t>(kValues * kRows)) : 0);
    Value value = Terms::identity();
    terms.visit([&](const auto& reader) {
      if constexpr (!kPlain) {
        ROUNDOFF_NO_UNROLL
        for (int t = y; t < left; t += kRows)
          value = op(value, reader.at(base + term_offset(plan, first + t)));
      } else {
        constexpr int kAtOnce = 8;
        const std::int64_t stride = plan.reduced_stride[0];
        const std::int64_t start = base + first * stride;
        ROUNDOFF_NO_UNROLL
        for (int t = y; t < left; t += kAtOnce * kRows) {
          Value v[kAtOnce];
          ROUNDOFF_UNROLL
          for (int i = 0; i < kAtOnce; ++i)
            v[i] = t + i * kRows < left ? reader.at(start + (t + i * kRows) * stride)
                                        : Terms::identity();
          value = op(value, fold<kAtOnce>(v, op));
        }
      }
    });
    ROUNDOFF_UNROLL
    for (int half = kRows / 2; half > 0; half /= 2) {
      memory[y][x] = value;
      __syncthreads();
      if (y < half) value = op(value, memory[y + half][x]);
      if (half > 1) __syncthreads();
    }
    if (y != 0 || !present) return;
    if (plan.segments == 1)
      finish(output, value);
    else
      partial[segment * plan.outputs + output] = value;
  }

  inline std::int64_t ceil_div(std::int64_t n, std::int64_t d) { return (n + d - 1) / d; }

  // Blocks of a grid.
  inline unsigned count_of(const char* name, std::int64_t blocks) {
    ROUNDOFF_CHECK(blocks >> 31 == 0, name, blocks, " blocks, below 2^31 expected");
    return static_cast<unsigned>(blocks);
  }

  template <class Terms, class Op, class Finish>
  void run_plain(Target target, const char* name, const Terms& terms, Op op, const Finish& finish,
                 const ReducePlan& plan, bool columns, Scratch& scratch);

  // The next stage: `segments` results an output, contiguous for rows; outputs are contiguous for
  // columns.
  template <class Terms, class Op, class Finish>
  void run_next(Target target, const char* name, Op op, const Finish& finish,
                const ReducePlan& before, const typename Terms::Value* values, bool columns,
                Scratch& scratch) {
    ReducePlan plan;
    plan.outputs = before.outputs;
    plan.terms = before.segments;
    plan.kept_rank = plan.reduced_rank = 1;
    plan.kept[0] = Divisor(plan.outputs);
    plan.reduced[0] = Divisor(plan.terms);
    plan.kept_stride[0] = columns ? 1 : plan.terms;
    plan.reduced_stride[0] = columns ? plan.outputs : 1;
    run_plain(target, name, typename NextStage<Terms>::Type{values}, op, finish, plan, columns,
              scratch);
  }

  template <int kColumns, bool kPlain, class Terms, class Op, class Finish>
  void run_columns(Target target, const char* name, const Terms& terms, Op op, const Finish& finish,
                   ReducePlan plan, Scratch& scratch) {
    constexpr int kRows = static_cast<int>(kThreads) / kColumns;
    const std::int64_t columns = plan.kept[0].extent;
    const std::int64_t tiles = ceil_div(columns, kColumns);
    const std::int64_t lines = plan.outputs / columns;
    const std::int64_t segments = std::max<std::int64_t>(ceil_div(plan.terms, kValues * kRows), 1);
    const unsigned blocks = count_of(name, tiles * lines * segments);
    plan.segments = static_cast<unsigned>(segments);
    const Scratch::Frame frame(scratch);
    using Value = typename Terms::Value;
    Value* partial = segments == 1 ? nullptr : scratch.get<Value>(segments * plan.outputs);
    launch(target, {.name = name, .grid = {blocks}, .block = {kColumns, kRows}},
           reduce_columns<kColumns, kPlain, Terms, Op, Finish>, terms, op, finish, plan,
           static_cast<unsigned>(tiles), static_cast<unsigned>(lines), partial);
    if (segments != 1) run_next<Terms>(target, name, op, finish, plan, partial, true, scratch);
  }

  template <int kRow, bool kPlain, class Terms, class Op, class Finish>
  void run_rows(Target target, const char* name, const Terms& terms, Op op, const Finish& finish,
                ReducePlan plan, Scratch& scratch) {
    constexpr int kRows = static_cast<int>(kThreads) / kRow;
    const std::int64_t segments =
        kRows == 1 ? std::max<std::int64_t>(ceil_div(plan.terms, kValues * kRow), 1) : 1;
    const unsigned blocks = count_of(name, ceil_div(plan.outputs, kRows) * segments);
    plan.segments = static_cast<unsigned>(segments);
    const Scratch::Frame frame(scratch);
    using Value = typename Terms::Value;
    Value* partial = segments == 1 ? nullptr : scratch.get<Value>(segments * plan.outputs);
    launch(target, {.name = name, .grid = {blocks}, .block = {kThreads}},
           reduce_rows<kRow, kPlain, Terms, Op, Finish>, terms, op, finish, plan, partial);
    if (segments != 1) run_next<Terms>(target, name, op, finish, plan, partial, false, scratch);
  }

  // At most one axis of terms.
  template <class Terms, class Op, class Finish>
  void run_plain(Target target, const char* name, const Terms& terms, Op op, const Finish& finish,
                 const ReducePlan& plan, bool columns, Scratch& scratch) {
    if (columns && plan.kept[0].extent <= 8)
      return run_columns<4, true>(target, name, terms, op, finish, plan, scratch);
    if (columns) return run_columns<32, true>(target, name, terms, op, finish, plan, scratch);
    if (plan.terms <= 8 * kValues)
      return run_rows<8, true>(target, name, terms, op, finish, plan, scratch);
    if (plan.terms <= 32 * kValues)
      return run_rows<32, true>(target, name, terms, op, finish, plan, scratch);
    run_rows<256, true>(target, name, terms, op, finish, plan, scratch);
  }

  // Any axes, and terms that are not cheap to address.
  template <class Terms, class Op, class Finish>
  void run_general(Target target, const char* name, const Terms& terms, Op op, const Finish& finish,
                   const detail::ReduceGeometry& g, Scratch& scratch) {
    if (g.outputs == 0) return;
    const ReducePlan plan(g);
    if (g.inner_kept) return run_columns<32, false>(target, name, terms, op, finish, plan, scratch);
    if (plan.terms <= 32 * kValues)
      return run_rows<32, false>(target, name, terms, op, finish, plan, scratch);
    run_rows<256, false>(target, name, terms, op, finish, plan, scratch);
  }

  // Over g's reduced axes.
  template <class Terms, class Op, class Finish>
  void run(Target target, const char* name, const Terms& terms, Op op, const Finish& finish,
           const detail::ReduceGeometry& g, Scratch& scratch) {
    if (g.outputs == 0) return;
    if (g.reduced_rank > 1) return run_general(target, name, terms, op, finish, g, scratch);
    ReducePlan plan(g);
    plan.packs = terms.aligned() && (g.terms % Terms::kPack == 0 || g.outputs == 1);
    run_plain(target, name, terms, op, finish, plan, g.inner_kept, scratch);
  }

  }  // namespace reduce
}  // namespace

}  // namespace roundoff
