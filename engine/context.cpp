#include "engine/context.h"

#include <cstring>

namespace roundoff {

namespace {

std::shared_ptr<DeviceQueue> make_queue(std::shared_ptr<simt::Runtime> runtime) {
  return runtime == nullptr ? nullptr : std::make_shared<DeviceQueue>(std::move(runtime));
}

std::shared_ptr<ScratchSource> workspace(const std::shared_ptr<DeviceQueue>& queue) {
  return queue == nullptr ? nullptr : std::make_shared<DeviceWorkspace>(queue);
}

}  // namespace

Context::Context(Device device) : Context(device == Device::cpu ? nullptr : simt::open(device)) {}

Context::Context(std::shared_ptr<simt::Runtime> runtime, bool checked)
    : queue_(make_queue(std::move(runtime))),
      reports_(queue_ == nullptr ? nullptr : std::make_unique<DeviceReports>(queue_)),
      checked_(checked),
      allocator(queue_, checked),
      scratch(workspace(queue_), checked) {
  ROUNDOFF_CHECK(!checked || this->device() == Device::sim, "device",
                 "instrumented kernels run on sim only");
}

Context::~Context() = default;

void Context::request_errors() {
  if (reports_ != nullptr) reports_->request();
}

void Context::check_errors() {
  if (reports_ != nullptr) reports_->check();
}

void Context::synchronize() {
  if (reports_ != nullptr) reports_->wait_and_check();
}

void Context::zero(const View& view) {
  const std::size_t bytes = static_cast<std::size_t>(view.numel()) * size_of(view.dtype);
  if (queue_ != nullptr)
    queue_->zero(view.data, bytes);
  else if (bytes != 0)
    std::memset(view.data, 0, bytes);
}

std::string device_refusal(Device device) {
  [[maybe_unused]] constexpr const char* kNone = "this build has no kernels for it";
  switch (device) {
    case Device::cpu:
      break;
    case Device::sim:
#if !defined(ROUNDOFF_HAS_SIM)
      return kNone;
#endif
      break;
    case Device::cuda: {
      const std::string why = simt::refusal(Device::cuda);
      if (!why.empty()) return why;
#if !defined(ROUNDOFF_HAS_CUDA)
      return kNone;
#endif
      break;
    }
  }
  return {};
}

void detail::fail_without_kernels(const Context& context) {
  fail("device", context.device() == Device::sim ? "sim" : "cuda", " has no ",
       context.checked() ? "instrumented " : "", "kernels in this build");
}

}  // namespace roundoff
