// roundoff info: the program, the machine, and what of both can be used.
#include <CLI/CLI.hpp>
#include <filesystem>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/environment.h"
#include "engine/data/dataset.h"

namespace roundoff::cli {

namespace {

struct Options {
  CommonOptions common;
};

int run(const Options& o, Console& console) {
  const BuildInfo b = build_info();
  const MachineInfo m = machine_info();
  Table table("info", {{"item"}, {"value"}});
  const auto add = [&](const std::string& item, const std::string& value) {
    table.add_row({item, value});
  };
  add("version", b.version);
  add("commit", b.commit);
  add("compiler", b.compiler);
  add("flags", b.flags);
  add("build type", b.build_type);
  add("system", m.system);
  add("cpu", m.cpu);
  add("threads", std::to_string(m.threads));
  add("blas", m.blas);
  for (const DeviceStatus& d : device_status())
    add("device " + d.name, (d.available ? "available: " : "not available: ") + d.detail);
  for (const std::string& gpu : m.gpus) add("gpu", gpu);
  if (!m.gpu_driver.empty()) add("gpu driver", m.gpu_driver);
  std::error_code ignored;
  const bool fashion = std::filesystem::is_directory(kFashionMnistFolder, ignored);
  add("data fashion-mnist", fashion ? std::string(kFashionMnistFolder)
                                    : "not found (Debian: apt-get install dataset-fashion-mnist)");
  add("data glyphs", "generated");
  console.emit(table, o.common);
  return kDone;
}

}  // namespace

Command add_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Version, build, devices, BLAS and data sets");
  auto o = std::make_shared<Options>();
  add_common_options(*command, o->common, true);
  add_examples(*command, {"roundoff info", "roundoff info --json -"});
  return {command, [o](Console& console) {
            console.set_quiet(o->common.quiet);
            return run(*o, console);
          }};
}

}  // namespace roundoff::cli
