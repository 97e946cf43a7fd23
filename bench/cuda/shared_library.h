// A shared library that is looked for when a program runs, so that it starts where there is none.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace roundoff::bench {

class SharedLibrary {
 public:
  // The first of `names` that opens, in each of `folders` and then where the system looks.
  static SharedLibrary open(std::span<const std::string> names,
                            std::span<const std::filesystem::path> folders);

  bool found() const { return handle_ != nullptr; }
  // "not found: libcudnn.so.9, libcudnn.so", with what the system said of the last one where it is
  // there but does not load.
  const std::string& why_not() const { return why_not_; }
  // The name or path that opened.
  const std::string& name() const { return name_; }

  // The address of one of its functions. Throws Error, naming library and function, where it has
  // none.
  template <class F>
  void get(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(symbol(name));
  }
  // Null where it has none.
  template <class F>
  void get_if_present(F*& function, const char* name) const {
    function = reinterpret_cast<F*>(symbol_or_null(name));
  }

 private:
  void* symbol(const char* name) const;
  void* symbol_or_null(const char* name) const;

  std::shared_ptr<void> handle_;
  std::string name_;
  std::string why_not_;
};

}  // namespace roundoff::bench
