#include "kernels/simt/emulator/profiler/profile.h"

#include <algorithm>
#include <iomanip>
#include <ostream>

namespace roundoff::simt {

RequestCounts& RequestCounts::operator+=(const RequestCounts& o) {
  requests += o.requests;
  lanes += o.lanes;
  bytes += o.bytes;
  sectors += o.sectors;
  least_sectors += o.least_sectors;
  wavefronts += o.wavefronts;
  excess_wavefronts += o.excess_wavefronts;
  return *this;
}

const char* name(RequestKind kind) {
  constexpr const char* kNames[] = {"global load", "global store", "global atomic",
                                    "shared load", "shared store", "shared atomic"};
  return kNames[static_cast<int>(kind)];
}

RequestCounts Profile::sum(std::string_view kernel, RequestKind kind, int line) const {
  RequestCounts all;
  for (const LineProfile& l : lines)
    if (l.kernel == kernel && l.kind == kind && (line == 0 || l.line == line)) all += l.counts;
  return all;
}

void Profile::print(std::ostream& out, std::size_t top) const {
  std::vector<std::string> places;
  std::size_t widest = 5;
  for (const LineProfile& l : lines) {
    if (places.size() == top) break;
    std::string place = l.function;
    if (l.line != 0) place = l.file.substr(l.file.rfind('/') + 1) + ":" + std::to_string(l.line);
    places.push_back(l.kernel + "  " + place);
    widest = std::max(widest, places.back().size());
  }
  const auto place_width = static_cast<int>(widest);
  constexpr int kWidth = 12;
  out << std::left << std::setw(place_width) << "place"
      << "  " << std::setw(14) << "what" << std::right;
  for (const char* column : {"requests", "bytes", "sectors", "least", "wavefronts", "excess"})
    out << std::setw(kWidth) << column;
  out << "\n";
  for (std::size_t i = 0; i < places.size(); ++i) {
    const RequestCounts& c = lines[i].counts;
    out << std::left << std::setw(place_width) << places[i] << "  " << std::setw(14)
        << name(lines[i].kind) << std::right << std::setw(kWidth) << c.requests << std::setw(kWidth)
        << c.bytes;
    const bool global = lines[i].kind < RequestKind::shared_load;
    for (const auto& [shown, value] :
         {std::pair(global, c.sectors), std::pair(global, c.least_sectors),
          std::pair(!global, c.wavefronts), std::pair(!global, c.excess_wavefronts)})
      out << std::setw(kWidth) << (shown ? std::to_string(value) : "-");
    out << "\n";
  }
  if (lines.size() > places.size()) out << "(" << lines.size() - places.size() << " more lines)\n";
}

}  // namespace roundoff::simt
