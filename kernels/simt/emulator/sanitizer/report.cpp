// What the sanitizer says: who did what, where, and who else was there.
#include <sstream>

#include "kernels/simt/emulator/sanitizer/sanitizer.h"

namespace roundoff::simt {

namespace {

// A place in the code as 32 bits: near most of the code, by its distance from the first that was
// seen; else by its number in a table.
constexpr std::uint32_t kNear = 1U << 30;
constexpr std::uint32_t kFar = 1U << 31;
constexpr std::uint32_t kSite = kFar | kNear;

std::string in(const SourcePlace& place) {
  if (place.line != 0) return concat(place.file, ":", place.line);
  return place.function;
}

}  // namespace

std::uint32_t Sanitizer::where_of(const void* code, Site site) {
  if (code != nullptr) {
    const auto address = reinterpret_cast<std::uintptr_t>(code);
    if (anchor_ == 0) anchor_ = address;
    const std::uintptr_t distance = address - anchor_ + kNear / 2;
    if (distance < kNear) return static_cast<std::uint32_t>(distance) | kNear;
    for (std::uint32_t i = 0; i < far_code_.size(); ++i)
      if (far_code_[i] == code) return kFar | i;
    far_code_.push_back(code);
    return kFar | static_cast<std::uint32_t>(far_code_.size() - 1);
  }
  if (site.line == 0) return 0;
  for (std::uint32_t i = 0; i < sites_.size(); ++i)
    if (sites_[i] == site) return kSite | i;
  sites_.push_back(site);
  return kSite | static_cast<std::uint32_t>(sites_.size() - 1);
}

std::string Sanitizer::spot(std::uint32_t where) {
  if (where == 0) return "";
  if ((where & kSite) == kSite) {
    const Site site = sites_[where & ~kSite];
    return concat(" at ", site.file, ":", site.line);
  }
  const void* code = (where & kFar) != 0
                         ? far_code_[where & ~kFar]
                         : reinterpret_cast<const void*>(anchor_ + (where & ~kNear) - kNear / 2);
  const std::string place = in(lines_.find(code));
  return place.empty() ? "" : concat(" at ", place);
}

std::string Sanitizer::who(const Event& event, bool with_block) const {
  const std::uint32_t number = event.who - launch_base_;
  const std::uint32_t cluster = number / slots_;
  const std::uint32_t slot = number % slots_;
  std::ostringstream out;
  if (slot >= slots_ - kSlots) {
    out << "an operation of the asynchronous proxy";
    return out.str();
  }
  const std::uint32_t rank = slot / block_slots_;
  const std::uint32_t linear = slot % block_slots_;
  const Dim block = cluster_->launch->block;
  out << "thread (" << linear % block.x << "," << linear / block.x % block.y << ","
      << linear / block.x / block.y << ") [warp " << linear / 32 << " lane " << linear % 32 << "]";
  if (with_block || slots_ > block_slots_ + kSlots || cluster != cluster_number_) {
    const Ran& ran = ran_[cluster];
    const dim3 dim = ran.cluster_dim;
    out << " of block (" << ran.first_block.x + rank % dim.x << ","
        << ran.first_block.y + rank / dim.x % dim.y << ","
        << ran.first_block.z + rank / dim.x / dim.y << ")";
  }
  return out.str();
}

std::string Sanitizer::spelled(const Target& target, std::size_t offset) const {
  std::ostringstream out;
  if (target.region == nullptr) {
    out << "offset " << offset << " of allocation " << target.block->number << " (of "
        << target.block->bytes << " bytes)";
    return out.str();
  }
  out << "shared+0x" << std::hex << target.region->offset + offset << " (" << target.region->name
      << "+0x" << offset << std::dec;
  if (cluster_->blocks > 1) out << " of rank " << target.place->block->geometry.cluster_rank;
  out << ")";
  return out.str();
}

void Sanitizer::report(const Actor& by, std::string message, std::uint32_t where) {
  if (by.slot >= slots_ - kSlots)
    message = concat("asynchronous proxy: ", message, ", issued by ", who(by.issuer, true));
  Site site{"", 0};
  if ((where & kSite) == kSite) {
    site = sites_[where & ~kSite];
  } else if (where != 0) {
    const void* code = (where & kFar) != 0
                           ? far_code_[where & ~kFar]
                           : reinterpret_cast<const void*>(anchor_ + (where & ~kNear) - kNear / 2);
    const SourcePlace& place = lines_.find(code);
    if (place.line != 0) {
      site = {place.file.c_str(), place.line};
    } else if (!place.function.empty()) {
      message = concat(message, ", in ", place.function);
    }
  }
  fault_in(*cluster_, std::move(message), site);
}

void Sanitizer::race(const Actor& by, const Target& target, std::size_t offset, std::size_t bytes,
                     Access kind, std::uint32_t where, const Event& other, const char* did) {
  const bool elsewhere = other.who - cluster_base_ >= slots_;
  report(
      by,
      concat("race: ", simt::name(kind), " of ", bytes, " bytes at ",
             spelled(target, target.offset), offset == target.offset ? ", which " : ", where ",
             who(other), " ", did,
             offset == target.offset ? "" : concat(" ", spelled(target, offset)), spot(other.where),
             elsewhere ? ", and blocks of one launch have no order (short of a fence and an "
                         "atomic)"
                       : ", with nothing that orders the two"),
      where);
}

void Sanitizer::misaligned(const Place& place, const void* p, std::size_t bytes, Access kind,
                           const void* code) {
  const Actor& me = actor(*current());
  std::string at = concat(p);
  if (place.space == Place::Space::shared) at = concat("shared+0x", std::hex, place.offset);
  if (place.space == Place::Space::global)
    if (const GlobalBlock* block = find_global(p))
      at = concat("offset ", reinterpret_cast<std::uintptr_t>(p) - block->begin, " of allocation ",
                  block->number);
  report(me, concat("misaligned address: ", simt::name(kind), " of ", bytes, " bytes at ", at),
         where_of(code, Site{"", 0}));
}

void Sanitizer::wild(const void* p, std::size_t bytes, Access kind, const void* code, Site site,
                     const char* what) {
  report(actor(*current()),
         concat("out of bounds: ", simt::name(kind), " of ", bytes, " bytes at ", p, ", ", what),
         where_of(code, site));
}

}  // namespace roundoff::simt
