#include "engine/step_memory.h"

#include <algorithm>
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

// Blocks count their chunks in 32 bit.
std::int32_t next_chunk(const std::vector<StepChunk>& chunks) {
  ROUNDOFF_CHECK(chunks.size() < static_cast<std::size_t>(std::numeric_limits<int>::max()),
                 "optimizer", "more than 2^43 elements");
  return static_cast<std::int32_t>(chunks.size());
}

}  // namespace

StepMemory::StepMemory(Context& context, ParameterArena& arena, const Tensor& first,
                       const Tensor& second)
    : context_(context), arena_(arena), first_(first), second_(second) {
  ROUNDOFF_CHECK(context.device() != Device::cpu, "optimizer", "cpu needs no device memory");
  std::vector<StepChunk> chunks;
  std::vector<StepParameter> rows = parameters();
  for (StepParameter& p : rows) {
    p.first_chunk = next_chunk(chunks);
    const auto* gradient = static_cast<const std::byte*>(p.gradient);
    for (std::int64_t at = 0; at < p.size; at += kStepChunk)
      chunks.push_back({gradient + static_cast<std::size_t>(at) * size_of(p.gradient_dtype),
                        table_.parameter_count,
                        static_cast<std::uint16_t>(std::min(kStepChunk, p.size - at)),
                        p.gradient_dtype});
    first_chunks_.push_back(p.first_chunk);
    ++table_.parameter_count;
  }
  table_.parameter_chunks = next_chunk(chunks);
  std::vector<StepBuffer> buffers;
  for (const Buffer& b : arena.buffers()) {
    const auto bytes = static_cast<std::int64_t>(b.value.bytes());
    const auto row = static_cast<std::int32_t>(buffers.size());
    buffers.push_back({b.value.raw(), b.staged.raw(), bytes, next_chunk(chunks)});
    for (std::int64_t at = 0; at < bytes; at += kStepBufferChunk)
      chunks.push_back({nullptr, row, 0, DType::u8});
  }
  table_.buffer_chunks = next_chunk(chunks) - table_.parameter_chunks;
  pattern_.assign(arena.entries().size(), 0);
  now_.reserve(pattern_.size());
  parameters_ = place(context, rows);
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
    if (!first_chunks_.empty()) p.first_chunk = first_chunks_[rows.size() - 1];
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
