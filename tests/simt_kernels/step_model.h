// Parameters with their gradients, moments and copies twice: as the reference path sees them, and
// as a table in the memory of a simulated device.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "kernels/step/device_step.h"
#include "tests/simt_kernels/sim_device.h"

namespace roundoff::test {

struct StepTypes {
  DType parameter = DType::fp32;
  DType gradient = DType::fp32;
  DType copy = DType::fp32;  // fp32: none
};

class StepModel {
 public:
  // One parameter a size; `offset`: elements by which arrays miss their alignment.
  StepModel(SimDevice& device, const std::vector<std::int64_t>& sizes, const StepTypes& types,
            std::mt19937& random, std::int64_t offset = 0)
      : device_(device) {
    for (const std::int64_t n : sizes) {
      Row& r = rows_.emplace_back(
          Row{Array(types.parameter, {n}, normal(n, types.parameter, random), offset),
              Array(types.gradient, {n}, normal(n, types.gradient, random), offset),
              Array(DType::fp32, {n}, std::vector<double>(static_cast<std::size_t>(n)), offset),
              Array(DType::fp32, {n}, std::vector<double>(static_cast<std::size_t>(n)), offset),
              Array(is_16bit(types.copy) ? types.copy : DType::fp16, {n},
                    std::vector<double>(static_cast<std::size_t>(n)), offset)});
      r.has_copy = is_16bit(types.copy);
    }
  }
  ~StepModel() {
    for (void* p : allocations_) device_.emulator().free(p);
  }
  StepModel(const StepModel&) = delete;
  StepModel& operator=(const StepModel&) = delete;

  struct Row {
    Array parameter, gradient, first, second, copy;
    bool has_copy = false;
    bool present = true;
    std::int64_t steps = 0;
    std::int32_t first_chunk = 0;
    std::unique_ptr<Resident> on_device[5] = {};
  };
  std::deque<Row>& rows() { return rows_; }

  // State that commits with the step, before upload().
  void add_buffer(Array value, Array staged) {
    buffers_.emplace_back(std::move(value), std::move(staged));
  }

  // The reference's view.
  std::vector<OptimizerChunk> chunks() {
    std::vector<OptimizerChunk> chunks;
    for (Row& r : rows_) {
      OptimizerChunk& c = chunks.emplace_back();
      c.parameter = r.parameter.view();
      c.gradient = r.present ? ConstView(r.gradient.view()) : ConstView::absent();
      c.first_moment = r.first.view().as<float>();
      c.second_moment = r.second.view().as<float>();
      if (r.has_copy) c.compute_copy = r.copy.view();
      c.steps = &r.steps;
    }
    return chunks;
  }
  std::vector<ConstView> gradients() {
    std::vector<ConstView> views;
    for (Row& r : rows_)
      views.push_back(r.present ? ConstView(r.gradient.view()) : ConstView::absent());
    return views;
  }

  // Makes the device's copy of everything, once.
  const StepTable& upload() {
    std::vector<StepChunk> chunks;
    std::int32_t row = 0;
    for (Row& r : rows_) {
      Array* const arrays[] = {&r.parameter, &r.gradient, &r.first, &r.second, &r.copy};
      for (int k = 0; k < 5; ++k) r.on_device[k] = std::make_unique<Resident>(device_, *arrays[k]);
      r.first_chunk = static_cast<std::int32_t>(chunks.size());
      add_chunks(r, row, chunks);
      ++row;
    }
    table_.parameter_count = row;
    table_.parameter_chunks = static_cast<std::int32_t>(chunks.size());
    std::vector<StepBuffer> buffers;
    row = 0;
    for (auto& [value, staged] : buffers_) {
      resident_buffers_.push_back(std::make_unique<Resident>(device_, value));
      resident_buffers_.push_back(std::make_unique<Resident>(device_, staged));
      const auto bytes = static_cast<std::int64_t>(value.size()) *
                         static_cast<std::int64_t>(size_of(value.dtype()));
      buffers.push_back({resident_buffers_[resident_buffers_.size() - 2]->view().data,
                         resident_buffers_.back()->view().data, bytes,
                         static_cast<std::int32_t>(chunks.size())});
      for (std::int64_t at = 0; at < bytes; at += kStepBufferChunk)
        chunks.push_back({nullptr, row, 0, DType::u8});
      ++row;
    }
    table_.buffer_chunks = static_cast<std::int32_t>(chunks.size()) - table_.parameter_chunks;
    table_.parameters = place(parameters());
    present_ = place(present());
    table_.present = present_;
    table_.buffers = place(buffers);
    chunks_ = place(chunks);
    table_.chunks = chunks_;
    table_.partials = place(std::vector<StepPartial>(kStepBlocks));
    table_.ticket = place(std::vector<unsigned>(1));
    table_.state = place(std::vector<StepState>(1));
    return table_;
  }
  const StepTable& table() const { return table_; }

  // New gradients, and which of them are present; step counts stay the device's.
  void upload_gradients() {
    const std::vector<StepParameter> counted = fetch_parameters();
    std::vector<StepParameter> parameters = this->parameters();
    std::vector<StepChunk> chunks;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      parameters[i].steps = counted[i].steps;
      Row& r = rows_[i];
      r.on_device[1] = std::make_unique<Resident>(device_, r.gradient);
      parameters[i].gradient = r.on_device[1]->view().data;
      add_chunks(r, static_cast<std::int32_t>(i), chunks);
    }
    if (!chunks.empty())
      device_.emulator().copy_in(chunks_, chunks.data(), chunks.size() * sizeof(StepChunk));
    device_.emulator().copy_in(table_.parameters, parameters.data(),
                               parameters.size() * sizeof(StepParameter));
    const std::vector<std::int32_t> present = this->present();
    device_.emulator().copy_in(present_, present.data(), present.size() * sizeof(std::int32_t));
  }

  StepState state() const {
    StepState s;
    device_.emulator().copy_out(&s, table_.state, sizeof(s));
    return s;
  }
  void set_state(const StepState& s) { device_.emulator().copy_in(table_.state, &s, sizeof(s)); }
  std::vector<StepParameter> fetch_parameters() const {
    std::vector<StepParameter> p(rows_.size());
    device_.emulator().copy_out(p.data(), table_.parameters, p.size() * sizeof(StepParameter));
    return p;
  }
  // Brings values, guards included, to the host.
  void fetch() {
    for (Row& r : rows_)
      for (auto& resident : r.on_device) resident->fetch();
    for (auto& resident : resident_buffers_) resident->fetch();
    const std::vector<StepParameter> p = fetch_parameters();
    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].steps = p[i].steps;
  }
  std::deque<std::pair<Array, Array>>& buffers() { return buffers_; }

  // Everything that an update may change, as fetched.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all;
    const auto add = [&](const Array& a) {
      all.insert(all.end(), a.memory().begin(), a.memory().end());
    };
    for (const Row& r : rows_) {
      add(r.parameter);
      add(r.first);
      add(r.second);
      add(r.copy);
      const auto* steps = reinterpret_cast<const std::byte*>(&r.steps);
      all.insert(all.end(), steps, steps + sizeof(r.steps));
    }
    for (const auto& [value, staged] : buffers_) add(value);
    return all;
  }

 private:
  static void add_chunks(const Row& r, std::int32_t row, std::vector<StepChunk>& chunks) {
    const std::int64_t n = r.gradient.size();
    const auto* gradient = static_cast<const std::byte*>(r.on_device[1]->view().data);
    for (std::int64_t at = 0; at < n; at += kStepChunk)
      chunks.push_back({gradient + static_cast<std::size_t>(at) * size_of(r.gradient.dtype()), row,
                        static_cast<std::uint16_t>(std::min(kStepChunk, n - at)),
                        r.gradient.dtype()});
  }
  std::vector<StepParameter> parameters() {
    std::vector<StepParameter> parameters;
    for (Row& r : rows_) {
      StepParameter& p = parameters.emplace_back();
      p.parameter = r.on_device[0]->view().data;
      p.gradient = r.on_device[1]->view().data;
      p.first_moment = r.on_device[2]->view().as<float>();
      p.second_moment = r.on_device[3]->view().as<float>();
      if (r.has_copy) p.compute_copy = r.on_device[4]->view().data;
      p.size = r.parameter.size();
      p.steps = r.steps;
      p.first_chunk = r.first_chunk;
      p.parameter_dtype = r.parameter.dtype();
      p.gradient_dtype = r.gradient.dtype();
      p.copy_dtype = r.copy.dtype();
    }
    return parameters;
  }
  std::vector<std::int32_t> present() const {
    std::vector<std::int32_t> present;
    for (const Row& r : rows_) present.push_back(r.present ? 1 : 0);
    return present;
  }
  template <class T>
  T* place(const std::vector<T>& values) {
    void* p = device_.emulator().allocate(values.size() * sizeof(T));
    allocations_.push_back(p);
    device_.emulator().copy_in(p, values.data(), values.size() * sizeof(T));
    return static_cast<T*>(p);
  }

  SimDevice& device_;
  std::deque<Row> rows_;
  std::deque<std::pair<Array, Array>> buffers_;
  std::vector<std::unique_ptr<Resident>> resident_buffers_;
  std::vector<void*> allocations_;
  std::int32_t* present_ = nullptr;
  StepChunk* chunks_ = nullptr;
  StepTable table_;
};

}  // namespace roundoff::test
