// Finds the pages: see pages.h.
#include "overlap/pages.h"

#include <algorithm>
#include <numeric>

namespace od::overlap {

bool Pages::begin(const std::vector<Piece>& pieces, std::size_t page_bytes) {
  std::vector<std::uint32_t> order(pieces.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return pieces[a].start < pieces[b].start; });
  pieces_.clear();
  parts_.clear();
  guards_.clear();
  service_ = nullptr;
  early_open_ = 0;
  place_of_.assign(pieces.size(), 0);
  for (const std::uint32_t each : order) {
    const Piece& piece = pieces[each];
    if (!pieces_.empty() && piece.start < pieces_.back().end) return false;
    place_of_[each] = static_cast<std::uint32_t>(pieces_.size());
    pieces_.push_back({piece.start, piece.end, piece.open_steps, 0, 0, false});
  }
  const auto count = static_cast<std::uint32_t>(pieces_.size());
  for (std::uint32_t first = 0, next; first < count; first = next) {
    for (next = first + 1; next < count && pieces_[next].start == pieces_[next - 1].end;) ++next;
    add_region(first, next - 1, page_bytes);
  }
  for (std::uint32_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    for (std::uint32_t k = part.first; k <= part.last; ++k) {
      if (pieces_[k].parts++ == 0) pieces_[k].first_part = i;
      if (pieces_[k].open_steps != 0) ++part.open;
    }
  }
  for (const Known& piece : pieces_) early_open_ += piece.early && piece.open_steps != 0 ? 1 : 0;
  return true;
}

// Pieces that follow each other without gaps.
void Pages::add_region(std::uint32_t first, std::uint32_t last, std::size_t page_bytes) {
  const std::uintptr_t start = pieces_[first].start;
  const std::uintptr_t end = pieces_[last].end;
  const std::uintptr_t inner_start = (start + page_bytes - 1) / page_bytes * page_bytes;
  const std::uintptr_t inner_end = std::max(end / page_bytes * page_bytes, inner_start);
  for (std::uint32_t i = first; i <= last; ++i) {
    pieces_[i].early = pieces_[i].start < std::min(inner_start, end) || pieces_[i].end > inner_end;
  }
  std::uint32_t piece = first;
  for (std::uintptr_t page = inner_start; page < inner_end;) {
    while (pieces_[piece].end <= page) ++piece;
    const std::uintptr_t own_end =
        std::min(pieces_[piece].end / page_bytes * page_bytes, inner_end);
    if (own_end > page) {
      add_part(page, own_end, piece, piece);
      page = own_end;
      continue;
    }
    std::uint32_t behind = piece;
    while (behind < last && pieces_[behind].end < page + page_bytes) ++behind;
    add_part(page, page + page_bytes, piece, behind);
    page += page_bytes;
  }
}

void Pages::add_part(std::uintptr_t start, std::uintptr_t end, std::uint32_t first,
                     std::uint32_t last) {
  Part part = {};
  part.start = start;
  part.end = end;
  part.first = first;
  part.last = last;
  part.guard = -1;
  parts_.push_back(part);
}

void Pages::step_done(std::uint32_t piece) {
  Known& known = pieces_[place_of_[piece]];
  if (known.open_steps == 0 || --known.open_steps != 0) return;
  complete(known);
}

void Pages::complete(Known& piece) {
  if (piece.early) --early_open_;
  for (std::uint32_t i = piece.first_part; i < piece.first_part + piece.parts; ++i) {
    Part& part = parts_[i];
    if (--part.open == 0 && part.guard >= 0 && service_ != nullptr) {
      service_->arrived(&guards_[static_cast<std::size_t>(part.guard)]);
    }
  }
}

std::vector<memory::GuardPart>& Pages::guarded(const memory::GuardService* service) {
  guards_.clear();
  service_ = service;
  for (Part& part : parts_) {
    part.guard = -1;
    if (part.open == 0) continue;
    part.guard = static_cast<std::int32_t>(guards_.size());
    guards_.push_back({part.start, part.end, memory::GuardPart::kClosed});
  }
  return guards_;
}

std::vector<memory::GuardPart>& Pages::traced() {
  guards_.clear();
  service_ = nullptr;
  for (Part& part : parts_) {
    part.guard = static_cast<std::int32_t>(guards_.size());
    guards_.push_back({part.start, part.end, memory::GuardPart::kArrived});
  }
  return guards_;
}

Pages::Touch Pages::touch(std::uint32_t piece) const {
  const Known& known = pieces_[place_of_[piece]];
  Touch first;
  for (std::uint32_t i = known.first_part; i < known.first_part + known.parts; ++i) {
    // A page of several pieces says nothing about one of them.
    if (parts_[i].guard < 0 || parts_[i].first != parts_[i].last) continue;
    const memory::GuardPart& guard = guards_[static_cast<std::size_t>(parts_[i].guard)];
    if (guard.touched_ns == 0) continue;
    if (first.touched_ns == 0 || guard.touched_ns < first.touched_ns) {
      first = {guard.touched_ns, guard.opened_ns};
    }
  }
  return first;
}

}  // namespace od::overlap
