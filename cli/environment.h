// What a result depends on beside its settings: the program, the machine, the data.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/data/dataset.h"
#include "kernels/base/target.h"

namespace roundoff::cli {

// "roundoff 0.1.0 (commit)".
std::string version_line();

struct BuildInfo {
  std::string version;
  std::string
      commit;  // git describe, with "-dirty" for changed files; "unknown" outside a checkout
  std::string compiler;
  std::string flags;
  std::string build_type;
};
BuildInfo build_info();

struct MachineInfo {
  std::string system;
  std::string cpu;
  int threads = 0;  // that this process may use
  std::string blas;
  std::vector<std::string> gpus;  // as the driver names them
  std::string gpu_driver;         // empty where there is none
};
MachineInfo machine_info();

struct DeviceStatus {
  std::string name;
  bool available = false;
  std::string detail;  // what it is, or why it cannot be used
};
// cpu, sim and cuda, in this order.
std::vector<DeviceStatus> device_status();
// Reads "cpu", "sim" or "cuda". Throws UsageError for another name, AbsentError, with the reason,
// for a device that this build or machine does not have.
Device parse_device(const std::string& text);

// environment.json of a run: the above, the command line and the SHA-256 of each data file.
std::string environment_json(std::span<const std::string> command_line,
                             std::span<const SourceFile> data);

// The same of a run that goes on: `earlier`, its environment.json, with a record under "resumed" of
// what it goes on with. Text that is not such a file is replaced.
std::string resumed_environment_json(const std::string& earlier,
                                     std::span<const std::string> command_line,
                                     std::span<const SourceFile> data);

}  // namespace roundoff::cli
