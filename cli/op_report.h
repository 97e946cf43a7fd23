// What `roundoff op` prints and writes.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/table.h"
#include "engine/data/dataset.h"
#include "engine/tensor.h"
#include "verify/compare.h"

namespace roundoff::cli {

// One array of the result: what it is, and how it was judged.
struct Judged {
  std::string name;
  Tensor actual;             // in the person's layout
  Tensor oracle, tolerance;  // fp64
  std::string kind;
  Comparison comparison;
  double rms_ulp = 0, rms_rel = 0;
};

// "[1,2]": where the worst element stands; empty for a scalar and for no elements.
std::string worst_element(const Judged& judged);

Table report_table(std::string_view operation, const std::vector<Judged>& judged);

// An object with a member an array, by name. A non-finite number is null beside "<key>_class".
std::string report_json(const std::vector<Judged>& judged);
// What unscale_clip found.
std::string status_json(bool found_inf, double norm, double clip);

// A folder of results, which never loses what a run has read or what is not ours.
class ResultFolder {
 public:
  // Throws UsageError where `out` is no folder, or holds something and `overwrite` is not given.
  // `inputs`: the files that this run reads.
  ResultFolder(std::filesystem::path out, bool overwrite,
               const std::vector<std::filesystem::path>& inputs);

  // Throws UsageError where one of the files to be written is an input.
  void check(const std::vector<std::string>& files) const;
  // Makes the folder and removes the results of an earlier run, as its report names them.
  void open() const;
  std::vector<SourceFile> sources() const;

 private:
  bool is_input(const std::filesystem::path& file) const;

  std::filesystem::path out_;
  std::vector<std::filesystem::path> inputs_;
};

}  // namespace roundoff::cli
