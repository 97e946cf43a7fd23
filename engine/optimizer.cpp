#include "engine/optimizer.h"

#include "engine/context.h"

namespace roundoff {

namespace {

SgdParams sgd_params(const OptimizerSettings& s, double lr) {
  return {.lr = lr,
          .momentum = s.momentum,
          .weight_decay = s.weight_decay,
          .nesterov = s.nesterov,
          .rounding = {s.stochastic_rounding, s.rounding_seed}};
}

AdamParams adam_params(const OptimizerSettings& s, double lr) {
  return {.lr = lr,
          .beta1 = s.beta1,
          .beta2 = s.beta2,
          .eps = s.eps,
          .weight_decay = s.weight_decay,
          .decoupled = s.kind == OptimizerSettings::Kind::adamw,
          .rounding = {s.stochastic_rounding, s.rounding_seed}};
}

}  // namespace

std::string_view name(OptimizerSettings::Kind kind) {
  switch (kind) {
    case OptimizerSettings::Kind::sgd:
      return "sgd";
    case OptimizerSettings::Kind::adam:
      return "adam";
    case OptimizerSettings::Kind::adamw:
      return "adamw";
  }
  return "?";
}

OptimizerSettings::Kind parse_optimizer(std::string_view text) {
  using Kind = OptimizerSettings::Kind;
  for (const Kind kind : {Kind::sgd, Kind::adam, Kind::adamw})
    if (name(kind) == text) return kind;
  throw UsageError(
      concat("[optimizer] unknown optimizer '", text, "'; sgd, adam or adamw expected"));
}

Optimizer::Optimizer(Context& context, ParameterArena& arena, const OptimizerSettings& settings)
    : context_(context), arena_(arena), settings_(settings) {
  const bool sgd = settings.kind == OptimizerSettings::Kind::sgd;
  if (sgd) {
    validate(sgd_params(settings, 0.0));
  } else {
    validate(adam_params(settings, 0.0));
  }
  ROUNDOFF_CHECK(arena.allocated(), "optimizer", "the parameter arena is not allocated");
  ROUNDOFF_CHECK(arena.settings().master != DType::fp64, "optimizer",
                 "updates are fp32; parameters are fp64");
  const Shape flat{arena.flat_size()};
  if (!sgd || settings.momentum != 0)
    first_ = Tensor::zeros(context.allocator, flat, DType::fp32, MemoryCategory::optimizer);
  if (!sgd)
    second_ = Tensor::zeros(context.allocator, flat, DType::fp32, MemoryCategory::optimizer);
  if (context.device() != Device::cpu) {
    memory_ = std::make_unique<StepMemory>(context, arena, first_, second_);
    return;
  }
  for (ParameterEntry& entry : arena.entries()) {
    OptimizerChunk chunk;
    chunk.parameter = entry.tensor.view();
    if (first_.defined()) chunk.first_moment = first_.data<float>() + entry.offset;
    if (second_.defined()) chunk.second_moment = second_.data<float>() + entry.offset;
    if (arena.flat_compute().defined())
      chunk.compute_copy = arena.flat_compute().slice(entry.offset, entry.shape).view();
    chunk.steps = &entry.steps;
    chunks_.push_back(chunk);
  }
  gradients_.resize(chunks_.size());
}

void Optimizer::refresh() {
  std::size_t i = 0;
  for (const ParameterEntry& entry : arena_.entries()) {
    const Leaf& leaf = *entry.tensor.leaf();
    gradients_[i] = leaf.has_grad ? leaf.grad.const_view() : ConstView::absent();
    chunks_[i].gradient = gradients_[i];
    ++i;
  }
}

void Optimizer::inspect(const ClipParams& clip, StepStatus& status) {
  visit_target(context_, [&](auto target) {
    if constexpr (DeviceTarget<decltype(target)>) {
      memory_->refresh_pattern();
      StepState state = memory_->read();
      state.record.status = status;
      memory_->write(state);
      inspect_gradients(target, clip, memory_->table());
      status = memory_->read().record.status;
    } else {
      refresh();
      inspect_gradients(target, clip, gradients_, status);
    }
  });
}

void Optimizer::apply(double lr, const StepStatus& status) {
  const bool sgd = settings_.kind == OptimizerSettings::Kind::sgd;
  visit_target(context_, [&](auto target) {
    if constexpr (DeviceTarget<decltype(target)>) {
      memory_->refresh_pattern();
      // Buffers are the caller's to commit.
      StepTable table = memory_->table();
      table.buffer_chunks = 0;
      WindowParams params;
      if (sgd) {
        validate(sgd_params(settings_, lr));
      } else {
        params.adam = true;
        params.optimizer = adam_params(settings_, lr);
        validate(params.optimizer);
      }
      prepare_update(target, params, status, lr, table);
      if (sgd) {
        update_window(target, sgd_params(settings_, lr), table);
      } else {
        update_window(target, params.optimizer, table);
      }
    } else {
      refresh();
      if (sgd) {
        sgd_step(target, sgd_params(settings_, lr), status, chunks_);
      } else {
        adam_step(target, adam_params(settings_, lr), status, chunks_);
      }
    }
  });
  if (status.found_inf == 0) arena_.changed(/*copies_written=*/true);
}

void Optimizer::close_window(WindowParams params) {
  ROUNDOFF_CHECK(memory_ != nullptr, "optimizer", "cpu closes no window by itself");
  const bool sgd = settings_.kind == OptimizerSettings::Kind::sgd;
  params.adam = !sgd;
  if (!sgd) params.optimizer = adam_params(settings_, params.rate.lr);
  memory_->refresh_pattern();
  visit_target(context_, [&](auto target) {
    if constexpr (DeviceTarget<decltype(target)>) {
      inspect_window(target, params, memory_->table());
      if (sgd) {
        update_window(target, sgd_params(settings_, params.rate.lr), memory_->table());
      } else {
        update_window(target, params.optimizer, memory_->table());
      }
    }
  });
  // Where the step is skipped they have not changed, and their copies neither.
  arena_.changed(/*copies_written=*/true);
}

void Optimizer::read_counts() {
  if (memory_ != nullptr) memory_->read_counts();
}

void Optimizer::write_counts() {
  if (memory_ != nullptr) memory_->write_counts();
}

void Optimizer::unscale_gradients(float inv_scale) {
  visit_target(context_, [&](auto target) {
    for (const ParameterEntry& entry : arena_.entries()) {
      const Leaf& leaf = *entry.tensor.leaf();
      if (leaf.has_grad) unscale(target, inv_scale, leaf.grad.const_view(), leaf.grad.view());
    }
  });
}

std::string_view Optimizer::offender(const StepStatus& status) const {
  if (status.first_offender < 0) return {};
  return arena_.entries()[static_cast<std::size_t>(status.first_offender)].name;
}

}  // namespace roundoff
