#include "bench/cuda/shared_library.h"

#include <dlfcn.h>

#include "kernels/base/check.h"

namespace roundoff::bench {

SharedLibrary SharedLibrary::open(std::span<const std::string> names,
                                  std::span<const std::filesystem::path> folders) {
  SharedLibrary library;
  std::vector<std::string> tries;
  for (const std::filesystem::path& folder : folders)
    for (const std::string& name : names) {
      std::error_code ignored;
      if (std::filesystem::exists(folder / name, ignored))
        tries.push_back((folder / name).string());
    }
  tries.insert(tries.end(), names.begin(), names.end());
  std::string reason;
  for (const std::string& name : tries) {
    // Lazily: cuDNN's parts are loaded when they are needed.
    void* handle = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle != nullptr) {
      library.handle_ = std::shared_ptr<void>(handle, [](void* h) { dlclose(h); });
      library.name_ = name;
      return library;
    }
    const char* said = dlerror();
    // A file that is there and does not load is worth more words than one that is not.
    if (said != nullptr && name.find('/') != std::string::npos) reason = said;
  }
  library.why_not_ = "not found: ";
  for (const std::string& name : names)
    library.why_not_ += (&name == &names.front() ? "" : ", ") + name;
  if (!reason.empty()) library.why_not_ += " (" + reason + ")";
  return library;
}

void* SharedLibrary::symbol_or_null(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_.get(), name);
}

void* SharedLibrary::symbol(const char* name) const {
  void* const address = symbol_or_null(name);
  ROUNDOFF_CHECK(address != nullptr, "bench", found() ? name_ : why_not_, " has no function ",
                 name);
  return address;
}

}  // namespace roundoff::bench
