#include "engine/step_memory.h"

#include <cstddef>
#include <limits>

#include "engine/context.h"

namespace roundoff {

namespace {

Tensor bytes_of(Context& context, std::size_t bytes) {
  return Tensor::empty(context.allocator, {static_cast<std::int64_t>(bytes)}, DType::u8,
                       MemoryCategory::optimizer);
}

template <class T>
Tensor place(Context& context, const std::vector<T>& values) {
  Tensor t = bytes_of(context, values.size() * sizeof(T));
  t.write(values.data());
  return t;
}

std::int32_t add_chunks(std::vector<StepChunk>& chunks, std::int32_t row, std::int64_t size,
                        std::int64_t chunk) {
  const std::int64_t parts = (size + chunk - 1) / chunk;
  ROUNDOFF_CHECK(
      parts < std::numeric_limits<std::int32_t>::max() - static_cast<std::int64_t>(chunks.size()),
      "optimizer", "a parameter of ", size, " elements");
  for (std::int32_t part = 0; part < parts; ++part) chunks.push_back({row, part});
  return static_cast<std::int32_t>(parts);
}

}  // namespace

StepMemory::StepMemory(Context& context, ParameterArena& arena, const Tensor& first,
                       const Tensor& second)
    : context_(context), arena_(arena), first_(first), second_(second) {
  ROUNDOFF_CHECK(context.device() != Device::cpu, "optimizer", "cpu needs no device memory");
  std::vector<StepChunk> chunks;
  for (const ParameterEntry& e : arena.entries()) {
    table_.parameter_chunks +=
        add_chunks(chunks, table_.parameter_count, e.shape.numel(), kStepChunk);
    ++table_.parameter_count;
  }
  std::vector<StepBuffer> buffers;
  for (const Buffer& b : arena.buffers()) {
    const auto bytes = static_cast<std::int64_t>(b.value.bytes());
    table_.buffer_chunks +=
        add_chunks(chunks, static_cast<std::int32_t>(buffers.size()), bytes, kStepBufferChunk);
    buffers.push_back({b.value.raw(), b.staged.raw(), bytes});
  }
  pattern_.assign(arena.entries().size(), 0);
  now_.reserve(pattern_.size());
  parameters_ = place(context, parameters());
  present_ = place(context, pattern_);
  buffers_ = place(context, buffers);
  chunks_ = place(context, chunks);
  partials_ = place(context, std::vector<StepPartial>(static_cast<std::size_t>(kStepBlocks)));
  ticket_ = place(context, std::vector<unsigned>(1));
  const Storage state = context.allocator.allocate(sizeof(StepState), MemoryCategory::optimizer);
  state_ = Tensor(state, 0, {static_cast<std::int64_t>(sizeof(StepState))}, DType::u8);
  seed_ = Tensor(state, offsetof(StepState, seed), {}, DType::fp32);
  write({});
  table_.parameters = parameters_.data<StepParameter>();
  table_.present = present_.data<std::int32_t>();
  table_.buffers = buffers_.data<StepBuffer>();
  table_.chunks = chunks_.data<StepChunk>();
  table_.partials = partials_.data<StepPartial>();
  table_.ticket = ticket_.data<unsigned>();
  table_.state = state_.data<StepState>();
}

std::vector<StepParameter> StepMemory::parameters() const {
  const bool copies = arena_.flat_compute().defined();
  std::vector<StepParameter> rows;
  for (const ParameterEntry& e : arena_.entries()) {
    StepParameter& p = rows.emplace_back();
    const Tensor& gradient = e.tensor.leaf()->grad;
    p.parameter = e.tensor.raw();
    p.gradient = gradient.raw();
    if (first_.defined()) p.first_moment = first_.slice(e.offset, e.shape).data<float>();
    if (second_.defined()) p.second_moment = second_.slice(e.offset, e.shape).data<float>();
    if (copies) p.compute_copy = arena_.flat_compute().slice(e.offset, e.shape).raw();
    p.size = e.shape.numel();
    p.steps = e.steps;
    p.parameter_dtype = e.tensor.dtype();
    p.gradient_dtype = gradient.dtype();
    if (copies) p.copy_dtype = arena_.flat_compute().dtype();
  }
  return rows;
}

void StepMemory::refresh_pattern() {
  now_.clear();
  for (const ParameterEntry& e : arena_.entries())
    now_.push_back(e.tensor.leaf()->has_grad ? 1 : 0);
  if (now_ == pattern_) return;
  present_.write(now_.data());
  pattern_.swap(now_);
}

void StepMemory::mark_pattern() {
  std::size_t i = 0;
  for (const ParameterEntry& e : arena_.entries()) e.tensor.leaf()->has_grad = pattern_[i++] != 0;
}

void StepMemory::write(const StepState& state) { state_.write(&state); }

StepState StepMemory::read() const {
  StepState state;
  state_.read(&state);
  return state;
}

void StepMemory::read_counts() {
  std::vector<StepParameter> rows(arena_.entries().size());
  parameters_.read(rows.data());
  std::size_t i = 0;
  for (ParameterEntry& e : arena_.entries()) e.steps = rows[i++].steps;
}

void StepMemory::write_counts() { parameters_.write(parameters().data()); }

}  // namespace roundoff
