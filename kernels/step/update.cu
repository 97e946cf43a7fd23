// Launch B of a training step: unscale, clip, update and write the 16-bit copy in one pass over the
// parameters; nothing but a few bytes is read where launch A decided to skip.
//
// Formulas and rounding points: kernels/step/optimizer.h, every operation rounded once in fp32, the
// same bits as the reference path's.
//
// Layout: a block takes one chunk of the table, 4096 neighbouring elements of one parameter, 4 an
// access: 16 bytes of every fp32 array and 8 of the 16-bit ones, so that a warp asks for whole
// 128-byte lines of each. Adam with fp32 masters moves 16 bytes in and 14 out a parameter; launch A
// has read 4 before. Further blocks copy the buffers that commit with the step.
//
// Stochastic rounding (UpdateRounding) is a kernel of its own: a pack is one Philox block.
#include "kernels/base/stochastic.h"
#include "kernels/simt/simt.h"
#include "kernels/step/device_step.h"
#include "kernels/step/values.cuh"

namespace roundoff {

ROUNDOFF_DEVICE_NAMESPACE {
  namespace {

  using step::kPack;
  using step::kThreads;

  // Rules: what the settings are in fp32, once the rate is known, and the update of one element.
  // kMoments: how many of the moments the rule reads and writes.
  struct Sgd {
    static constexpr int kMoments = 0;
    float lr, decay;
    ROUNDOFF_DEVICE void operator()(float g, float& w, float&, float&) const {
      if (decay != 0.0F) g += decay * w;
      w -= lr * g;
    }
  };
  struct Momentum {
    static constexpr int kMoments = 1;
    float lr, decay, momentum;
    bool nesterov;
    ROUNDOFF_DEVICE void operator()(float g, float& w, float& buffer, float&) const {
      if (decay != 0.0F) g += decay * w;
      buffer = momentum * buffer + g;
      g = nesterov ? g + momentum * buffer : buffer;
      w -= lr * g;
    }
  };
  struct Adam {
    static constexpr int kMoments = 2;
    float beta1, beta2, rest1, rest2, eps, l2, keep;
    AdamCorrection corrected;
    ROUNDOFF_DEVICE void operator()(float g, float& w, float& m, float& v) const {
      if (l2 != 0.0F) g += l2 * w;
      if (keep != 1.0F) w *= keep;
      m = beta1 * m + rest1 * g;
      v = beta2 * v + (rest2 * g) * g;
      w -= corrected.step_size * m / (sqrtf(v) / corrected.correction + eps);
    }
  };

  template <class Rule>
  ROUNDOFF_DEVICE Rule make_rule(const SgdParams& s, const StepState& state, const StepParameter&) {
    const auto lr = static_cast<float>(state.record.lr);
    const auto decay = static_cast<float>(s.weight_decay);
    if constexpr (std::is_same_v<Rule, Sgd>)
      return {lr, decay};
    else
      return {lr, decay, static_cast<float>(s.momentum), s.nesterov};
  }
  template <class Rule>
  ROUNDOFF_DEVICE Rule make_rule(const AdamParams& a, const StepState& state,
                                 const StepParameter& p) {
    return {static_cast<float>(a.beta1),
            static_cast<float>(a.beta2),
            static_cast<float>(1.0 - a.beta1),
            static_cast<float>(1.0 - a.beta2),
            static_cast<float>(a.eps),
            a.decoupled ? 0.0F : static_cast<float>(a.weight_decay),
            a.decoupled ? static_cast<float>(1.0 - state.record.lr * a.weight_decay) : 1.0F,
            p.corrected};
  }

  // How a kernel rounds parameters: to nearest, or by a stream of random numbers.
  struct Nearest {
    ROUNDOFF_DEVICE Nearest(const UpdateRounding&, const StepParameter&, std::int32_t) {}
    template <int n>
    ROUNDOFF_DEVICE void store(DType dtype, void* p, std::int64_t i, const float (&w)[n]) const {
      step::store(dtype, p, i, w);
    }
    ROUNDOFF_DEVICE static int head(int head) { return head; }
  };
  struct Stochastic {
    PhiloxStream stream;
    std::uint32_t number;
    ROUNDOFF_DEVICE Stochastic(const UpdateRounding& rounding, const StepParameter& p,
                               std::int32_t row)
        : stream{rounding.seed, static_cast<std::uint32_t>(p.steps), kRoundingTensor},
          number(static_cast<std::uint32_t>(row)) {}
    template <int n>
    ROUNDOFF_DEVICE void store(DType dtype, void* p, std::int64_t i, const float (&w)[n]) const {
      if (dtype == DType::fp32)
        step::store(dtype, p, i, w);
      else if (dtype == DType::fp16)
        store_rounded(static_cast<Half*>(p), i, w);
      else
        store_rounded(static_cast<BFloat16*>(p), i, w);
    }
    // Packs are Philox's blocks, too: only where the first one begins at element 0.
    ROUNDOFF_DEVICE static int head(int head) { return head == 0 ? 0 : kNoPacks; }

   private:
    template <int n, class T>
    ROUNDOFF_DEVICE void store_rounded(T* p, std::int64_t i, const float (&w)[n]) const {
      const PhiloxBlock r = stream.block(number, static_cast<std::uint32_t>(i / 4));
      PackLanes<T, n> lanes;
      if constexpr (n == 1) {
        const auto k = static_cast<int>(i % 4);
        const std::uint32_t low = k == 0 ? r.word[0] : r.word[1];
        const std::uint32_t high = k == 2 ? r.word[2] : r.word[3];
        round_stochastic(w[0], k < 2 ? low : high, lanes.lane[0]);
        p[i] = lanes.lane[0];
      } else {
        ROUNDOFF_UNROLL
        for (int k = 0; k < n; ++k) round_stochastic(w[k], r.word[k], lanes.lane[k]);
        store_lanes(p + step::opaque(i), lanes);
      }
    }
  };

  // Elements i to i + n - 1 of a parameter.
  template <int n, class Rule, class Rounding>
  ROUNDOFF_DEVICE void update(const StepParameter& p, const Rule& rule, const Rounding& rounding,
                              float inv_scale, float clip, std::int64_t i) {
    float g[n];
    float w[n];
    float first[n] = {};
    float second[n] = {};
    step::load(p.gradient_dtype, p.gradient, i, g);
    step::load(p.parameter_dtype, p.parameter, i, w);
    if constexpr (Rule::kMoments >= 1) step::load(DType::fp32, p.first_moment, i, first);
    if constexpr (Rule::kMoments >= 2) step::load(DType::fp32, p.second_moment, i, second);
    ROUNDOFF_UNROLL
    for (int k = 0; k < n; ++k) rule((g[k] * inv_scale) * clip, w[k], first[k], second[k]);
    rounding.store(p.parameter_dtype, p.parameter, i, w);
    if constexpr (Rule::kMoments >= 1) step::store(DType::fp32, p.first_moment, i, first);
    if constexpr (Rule::kMoments >= 2) step::store(DType::fp32, p.second_moment, i, second);
    if (p.compute_copy != nullptr) step::store(p.copy_dtype, p.compute_copy, i, w);
  }

  // Elements before every array's packs are aligned, kNoPacks where they never are together.
  template <class Rule>
  ROUNDOFF_DEVICE int common_head(const StepParameter& p) {
    const int head = step::head(p.parameter_dtype, p.parameter);
    bool same = head == step::head(p.gradient_dtype, p.gradient);
    if constexpr (Rule::kMoments >= 1)
      same = same && head == step::head(DType::fp32, p.first_moment);
    if constexpr (Rule::kMoments >= 2)
      same = same && head == step::head(DType::fp32, p.second_moment);
    if (p.compute_copy != nullptr) same = same && head == step::head(p.copy_dtype, p.compute_copy);
    return same ? head : kNoPacks;
  }

  // value <- staged, or back where the step was not taken.
  ROUNDOFF_DEVICE void settle_buffer(const StepBuffer& b, std::int64_t begin, bool commit) {
    const std::int64_t rest = b.bytes - begin;
    const std::int64_t n = rest < kStepBufferChunk ? rest : kStepBufferChunk;
    auto* const value = static_cast<unsigned char*>(b.value) + begin;
    auto* const staged = static_cast<unsigned char*>(b.staged) + begin;
    unsigned char* const to = commit ? value : staged;
    const unsigned char* const from = commit ? staged : value;
    for_each_pack<16>(
        n, pack_head<16>(to, from), threadIdx.x, kThreads,
        [&](std::int64_t i) { store_vector(to + i, load_vector<uint4>(from + i)); },
        [&](std::int64_t i) { to[i] = from[i]; });
  }

  template <class Rule, class Rounding, class Params>
  __global__ void __launch_bounds__(kThreads, step::kBlocks)
      update_window_kernel(Params params, StepTable t) {
    ROUNDOFF_SHARED(StepParameter, row, [1]);
    ROUNDOFF_SHARED(Rule, rules, [1]);
    ROUNDOFF_SHARED(float, factors, [2]);
    const StepState& state = *t.state;
    const bool steps = state.record.did_step != 0;
    const auto block = static_cast<std::int32_t>(blockIdx.x);
    if (block >= t.parameter_chunks) {
      const StepBuffer& buffer = t.buffers[t.chunks[block].row];
      settle_buffer(buffer, (block - buffer.first_chunk) * kStepBufferChunk, steps);
      return;
    }
    if (!steps) return;
    const std::int32_t place = t.chunks[block].row;
    if (t.present[place] == 0) return;
    // One thread reads what all of them need, or the table would cost as much as a moment.
    if (threadIdx.x == 0) {
      row[0] = t.parameters[place];
      rules[0] = make_rule<Rule>(params, state, row[0]);
      factors[0] = state.record.status.inv_scale;
      factors[1] = state.record.status.clip;
    }
    __syncthreads();
    const StepParameter& p = row[0];
    const Rule rule = rules[0];
    const float inv_scale = factors[0];
    const float clip = factors[1];
    const Rounding rounding(params.rounding, p, place);
    const std::int64_t begin = (block - p.first_chunk) * kStepChunk;
    const std::int64_t rest = p.size - begin;
    // A chunk is a multiple of a pack: every chunk has the parameter's head.
    for_each_pack<kPack>(
        rest < kStepChunk ? rest : kStepChunk, Rounding::head(common_head<Rule>(p)), threadIdx.x,
        kThreads,
        [&](std::int64_t i) { update<kPack>(p, rule, rounding, inv_scale, clip, begin + i); },
        [&](std::int64_t i) { update<1>(p, rule, rounding, inv_scale, clip, begin + i); });
  }

  template <class Rule, class T, class Params>
  void launch_update(T target, const char* name, const Params& params, const StepTable& t) {
    const std::int32_t blocks = t.parameter_chunks + t.buffer_chunks;
    if (blocks == 0) return;
    const LaunchConfig config{
        .name = name, .grid = {static_cast<unsigned>(blocks)}, .block = {kThreads}};
    if (params.rounding.stochastic)
      launch(target, config, update_window_kernel<Rule, Stochastic, Params>, params, t);
    else
      launch(target, config, update_window_kernel<Rule, Nearest, Params>, params, t);
  }

  }  // namespace
}  // namespace

template <DeviceTarget T>
void update_window(T target, const SgdParams& params, const StepTable& table) {
  validate(params);
  if (params.momentum != 0.0)
    launch_update<Momentum>(target, "update_momentum", params, table);
  else
    launch_update<Sgd>(target, "update_sgd", params, table);
}

template <DeviceTarget T>
void update_window(T target, const AdamParams& params, const StepTable& table) {
  validate(params);
  launch_update<Adam>(target, params.decoupled ? "update_adamw" : "update_adam", params, table);
}

template void update_window(Target, const SgdParams&, const StepTable&);
template void update_window(Target, const AdamParams&, const StepTable&);

}  // namespace roundoff
