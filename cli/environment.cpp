#include "cli/environment.h"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/build_info.h"
#include "cli/commit.h"
#include "engine/context.h"
#include "engine/io/file.h"
#include "kernels/gemm/product.h"
#include "kernels/simt/cuda_support.h"

namespace roundoff::cli {

namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The value after "key :" in a file like /proc/cpuinfo; empty where there is none.
std::string field(const std::filesystem::path& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

int usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

BuildInfo build_info() {
  return {ROUNDOFF_VERSION, ROUNDOFF_COMMIT, ROUNDOFF_COMPILER, ROUNDOFF_BUILD_FLAGS,
          ROUNDOFF_BUILD_TYPE};
}

std::string version_line() {
  return std::string("roundoff ") + ROUNDOFF_VERSION + " (" + ROUNDOFF_COMMIT + ")";
}

MachineInfo machine_info() {
  MachineInfo m;
  utsname system{};
  if (uname(&system) == 0)
    m.system = std::string(system.sysname) + " " + system.release + " " + system.machine;
  m.cpu = field("/proc/cpuinfo", "model name");
  if (m.cpu.empty()) m.cpu = "unknown";
  m.threads = usable_threads();
  m.blas = product_backend();
  const std::filesystem::path nvidia = "/proc/driver/nvidia";
  m.gpu_driver = field(nvidia / "version", "NVRM version");
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(nvidia / "gpus", ignored))
    m.gpus.push_back(field(entry.path() / "information", "Model"));
  std::sort(m.gpus.begin(), m.gpus.end());
  return m;
}

std::vector<DeviceStatus> device_status() {
  const MachineInfo m = machine_info();
  std::vector<DeviceStatus> all;
  all.push_back({"cpu", true, m.cpu});
  const auto add = [&](const char* device_name, Device device, const std::string& detail) {
    const std::string why = device_refusal(device);
    all.push_back({device_name, why.empty(), why.empty() ? detail : why});
  };
  add("sim", Device::sim, "the CUDA kernels on the SIMT emulator");
  const simt::CudaFacts gpu = simt::cuda_facts();
  add("cuda", Device::cuda, concat(gpu.name, ", sm_", gpu.capability));
  return all;
}

Device parse_device(const std::string& text) {
  const std::vector<DeviceStatus> all = device_status();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].name != text) continue;
    if (!all[i].available)
      throw AbsentError(concat("[device] ", text, " cannot be used: ", all[i].detail));
    return static_cast<Device>(i);
  }
  throw UsageError(concat("[device] unknown device '", text, "'; cpu, sim or cuda expected"));
}

std::string environment_json(std::span<const std::string> command_line,
                             std::span<const SourceFile> data) {
  const BuildInfo b = build_info();
  const MachineInfo m = machine_info();
  Json j;
  j["roundoff"] = b.version;
  j["commit"] = b.commit;
  j["compiler"] = b.compiler;
  j["flags"] = b.flags;
  j["build_type"] = b.build_type;
  j["system"] = m.system;
  j["cpu"] = m.cpu;
  j["threads"] = m.threads;
  j["blas"] = m.blas;
  j["gpus"] = m.gpus;
  j["gpu_driver"] = m.gpu_driver;  // empty where there is none
  j["command_line"] = std::vector<std::string>(command_line.begin(), command_line.end());
  j["data"] = Json::array();
  for (const SourceFile& file : data)
    j["data"].push_back({{"file", file.name}, {"sha256", file.sha256}});
  return text_of(j);
}

std::string resumed_environment_json(const std::string& earlier,
                                     std::span<const std::string> command_line,
                                     std::span<const SourceFile> data) {
  Json j = Json::parse(earlier, nullptr, false);
  if (!j.is_object() || !j.contains("command_line")) return environment_json(command_line, data);
  if (!j.contains("resumed") || !j["resumed"].is_array()) j["resumed"] = Json::array();
  const BuildInfo b = build_info();
  const MachineInfo m = machine_info();
  j["resumed"].push_back(
      {{"roundoff", b.version},
       {"commit", b.commit},
       {"cpu", m.cpu},
       {"command_line", std::vector<std::string>(command_line.begin(), command_line.end())}});
  return text_of(j);
}

}  // namespace roundoff::cli
