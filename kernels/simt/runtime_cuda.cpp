#include "kernels/simt/runtime_cuda.h"

#include <exception>
#include <mutex>
#include <vector>

#include "kernels/simt/cuda_support.h"
#include "kernels/simt/runtime.h"

namespace roundoff::simt {

void* driver_entry_point(const char* name, unsigned version) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  ROUNDOFF_CUDA_CHECK(
      cudaGetDriverEntryPointByVersion(name, &function, version, cudaEnableDefault, &found));
  ROUNDOFF_CHECK(found == cudaDriverEntryPointSuccess && function != nullptr, "cuda",
                 "the driver has no ", name, " of CUDA ", version / 1000, ".", version % 1000 / 10,
                 "; a newer driver expected");
  return function;
}

CudaFacts cuda_facts(int ordinal) {
  CudaFacts f;
  f.built = true;
  f.runtime_version = CUDART_VERSION;
  if (cudaDriverGetVersion(&f.driver_version) != cudaSuccess) f.driver_version = 0;
  const cudaError_t status = cudaGetDeviceCount(&f.devices);
  if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver) {
    f.devices = 0;
  } else if (status != cudaSuccess) {
    f.devices = 0;
    f.error = cudaGetErrorString(status);
  }
  if (ordinal >= 0 && ordinal < f.devices) {
    cudaDeviceProp properties{};
    const cudaError_t asked = cudaGetDeviceProperties(&properties, ordinal);
    if (asked == cudaSuccess) {
      f.capability = 10 * properties.major + properties.minor;
      f.name = properties.name;
    } else {
      f.error = cudaGetErrorString(asked);
    }
  }
  (void)cudaGetLastError();  // what was only asked for must not surface in a later call
  return f;
}

GpuLimits gpu_limits(int ordinal) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    ROUNDOFF_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, ordinal));
    return value;
  };
  GpuLimits l;
  l.capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                 attribute(cudaDevAttrComputeCapabilityMinor);
  l.multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  l.l2_bytes = attribute(cudaDevAttrL2CacheSize);
  l.clock = 1e3 * attribute(cudaDevAttrClockRate);  // it comes in kHz
  // Two transfers a clock.
  l.memory_bandwidth = 2e3 * attribute(cudaDevAttrMemoryClockRate) *
                       attribute(cudaDevAttrGlobalMemoryBusWidth) / 8.0;
  ROUNDOFF_CUDA_CHECK(cudaSetDevice(ordinal));
  std::size_t free = 0, total = 0;
  ROUNDOFF_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  l.free_memory = static_cast<double>(free);
  char bus[32] = {};
  ROUNDOFF_CUDA_CHECK(cudaDeviceGetPCIBusId(bus, sizeof(bus), ordinal));
  l.bus_id = bus;
  return l;
}

namespace {

DeviceDescription describe(int ordinal) {
  cudaDeviceProp properties{};
  ROUNDOFF_CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
  int driver = 0;
  ROUNDOFF_CUDA_CHECK(cudaDriverGetVersion(&driver));
  DeviceDescription d;
  d.device = Device::cuda;
  d.ordinal = ordinal;
  d.name = properties.name;
  d.capability = 10 * properties.major + properties.minor;
  d.multiprocessors = properties.multiProcessorCount;
  d.memory = properties.totalGlobalMem;
  d.shared_per_block = properties.sharedMemPerBlockOptin;
  d.driver = concat("CUDA ", driver / 1000, ".", driver % 1000 / 10);
  return d;
}

// What callbacks threw; they run on a thread of the driver.
struct CallbackErrors {
  std::mutex mutex;
  std::exception_ptr first;

  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (first == nullptr) first = std::move(error);
  }
  void rethrow() {
    const std::lock_guard lock(mutex);
    if (first != nullptr) std::rethrow_exception(std::exchange(first, nullptr));
  }
};

struct Callback {
  std::function<void()> function;
  std::shared_ptr<CallbackErrors> errors;
  bool in_graph = false;  // runs at every launch; the graph owns it
};

void CUDART_CB run_callback(void* data) {
  auto* callback = static_cast<Callback*>(data);
  try {
    callback->function();
  } catch (...) {
    callback->errors->keep(std::current_exception());
  }
  if (!callback->in_graph) delete callback;
}

struct CudaGraph {
  cudaGraphExec_t executable = nullptr;
  std::vector<std::unique_ptr<Callback>> callbacks;
};

std::int64_t count_kernels(cudaGraph_t graph) {
  std::size_t count = 0;
  ROUNDOFF_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  ROUNDOFF_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  std::int64_t kernels = 0;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    ROUNDOFF_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    kernels += type == cudaGraphNodeTypeKernel;
  }
  return kernels;
}

class CudaRuntime final : public Runtime {
 public:
  explicit CudaRuntime(int ordinal) : Runtime(describe(ordinal)) { use(); }

 private:
  // Calls are for the calling thread's current device, which another runtime may have changed.
  void use() const { ROUNDOFF_CUDA_CHECK(cudaSetDevice(description().ordinal)); }
  static cudaStream_t stream(StreamRef s) { return static_cast<cudaStream_t>(s.handle); }
  static cudaEvent_t event(EventRef e) { return static_cast<cudaEvent_t>(e.handle); }
  static CudaGraph& graph(GraphRef g) { return *static_cast<CudaGraph*>(g.handle); }

  void do_synchronize() override {
    use();
    ROUNDOFF_CUDA_CHECK(cudaDeviceSynchronize());
    errors_->rethrow();
  }
  void* do_allocate(std::size_t bytes) override {
    use();
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, bytes == 0 ? 1 : bytes);
    if (status != cudaSuccess) {
      (void)cudaGetLastError();  // short memory is this call's error, and no later one's
      fail("memory", "cannot allocate ", bytes, " bytes on ", description().name, ": ",
           cudaGetErrorString(status));
    }
    return memory;
  }
  // Where a kernel has failed, every call says so; the next wait throws it.
  void do_free(void* memory) noexcept override {
    (void)cudaSetDevice(description().ordinal);
    (void)cudaFree(memory);
  }
  void* do_allocate_pinned(std::size_t bytes) override {
    use();
    void* memory = nullptr;
    ROUNDOFF_CUDA_CHECK(cudaHostAlloc(&memory, bytes == 0 ? 1 : bytes, cudaHostAllocDefault));
    return memory;
  }
  void do_free_pinned(void* memory) noexcept override {
    (void)cudaDeviceSynchronize();
    (void)cudaFreeHost(memory);
  }

  StreamRef do_create_stream() override {
    use();
    cudaStream_t created = nullptr;
    ROUNDOFF_CUDA_CHECK(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    return {created};
  }
  void do_destroy_stream(StreamRef s) noexcept override { (void)cudaStreamDestroy(stream(s)); }
  void do_synchronize(StreamRef s) override {
    ROUNDOFF_CUDA_CHECK(cudaStreamSynchronize(stream(s)));
    errors_->rethrow();
  }
  // cudaErrorNotReady is an answer, not an error.
  bool ready(cudaError_t status, const char* call) {
    if (status == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    if (status != cudaSuccess) throw CudaError(status, call);
    errors_->rethrow();
    return true;
  }
  bool do_query(StreamRef s) override {
    return ready(cudaStreamQuery(stream(s)), "cudaStreamQuery");
  }
  void do_copy(StreamRef s, CopyKind kind, void* to, const void* from, std::size_t bytes) override {
    constexpr cudaMemcpyKind kKinds[] = {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost,
                                         cudaMemcpyDeviceToDevice};
    const cudaMemcpyKind direction = kKinds[static_cast<int>(kind)];
    ROUNDOFF_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, direction, stream(s)));
  }
  void do_fill(StreamRef s, void* to, unsigned char value, std::size_t bytes) override {
    ROUNDOFF_CUDA_CHECK(cudaMemsetAsync(to, value, bytes, stream(s)));
  }
  void do_call(StreamRef s, std::function<void()> function) override {
    auto callback = std::make_unique<Callback>();
    callback->function = std::move(function);
    callback->errors = errors_;
    callback->in_graph = captured_ != nullptr && s.handle == capturing_stream_;
    ROUNDOFF_CUDA_CHECK(cudaLaunchHostFunc(stream(s), run_callback, callback.get()));
    if (callback->in_graph)
      captured_->callbacks.push_back(std::move(callback));
    else
      (void)callback.release();
  }

  EventRef do_create_event() override {
    use();
    cudaEvent_t created = nullptr;
    ROUNDOFF_CUDA_CHECK(cudaEventCreate(&created));
    return {created};
  }
  void do_destroy_event(EventRef e) noexcept override { (void)cudaEventDestroy(event(e)); }
  void do_record(EventRef e, StreamRef s) override {
    ROUNDOFF_CUDA_CHECK(cudaEventRecord(event(e), stream(s)));
  }
  void do_wait(StreamRef s, EventRef e) override {
    ROUNDOFF_CUDA_CHECK(cudaStreamWaitEvent(stream(s), event(e), 0));
  }
  bool do_query(EventRef e) override { return ready(cudaEventQuery(event(e)), "cudaEventQuery"); }
  void do_synchronize(EventRef e) override {
    ROUNDOFF_CUDA_CHECK(cudaEventSynchronize(event(e)));
    errors_->rethrow();
  }
  double do_milliseconds(EventRef from, EventRef to) override {
    float elapsed = 0;
    ROUNDOFF_CUDA_CHECK(cudaEventElapsedTime(&elapsed, event(from), event(to)));
    return elapsed;
  }

  void do_begin_capture(StreamRef s) override {
    ROUNDOFF_CUDA_CHECK(cudaStreamBeginCapture(stream(s), cudaStreamCaptureModeThreadLocal));
    captured_ = std::make_unique<CudaGraph>();
    capturing_stream_ = s.handle;
  }
  GraphRef do_end_capture(StreamRef s, std::int64_t& kernels) override {
    std::unique_ptr<CudaGraph> result = std::move(captured_);
    capturing_stream_ = nullptr;
    cudaGraph_t captured = nullptr;
    ROUNDOFF_CUDA_CHECK(cudaStreamEndCapture(stream(s), &captured));
    const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> owner(
        captured, [](cudaGraph_t g) { (void)cudaGraphDestroy(g); });
    kernels = count_kernels(captured);
    ROUNDOFF_CUDA_CHECK(cudaGraphInstantiate(&result->executable, captured, 0));
    return {result.release()};
  }
  void do_launch(GraphRef g, StreamRef s) override {
    ROUNDOFF_CUDA_CHECK(cudaGraphLaunch(graph(g).executable, stream(s)));
  }
  // Launches that still run use the graph's callbacks.
  void do_destroy_graph(GraphRef g) noexcept override {
    if (!graph(g).callbacks.empty()) (void)cudaDeviceSynchronize();
    (void)cudaGraphExecDestroy(graph(g).executable);
    delete &graph(g);
  }

  std::shared_ptr<CallbackErrors> errors_ = std::make_shared<CallbackErrors>();
  std::unique_ptr<CudaGraph> captured_;
  void* capturing_stream_ = nullptr;
};

}  // namespace

std::shared_ptr<Runtime> open_cuda(int ordinal) {
  const std::string why = cuda_refusal(cuda_facts(ordinal), ordinal);
  if (!why.empty()) throw DeviceAbsent("[runtime] " + why);
  return std::make_shared<CudaRuntime>(ordinal);
}

}  // namespace roundoff::simt
