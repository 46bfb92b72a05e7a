// Which pages of a receive buffer wait for which pieces of a message.
//
// A page that pieces cover only together waits for all of them; one that lies in the buffer in part
// cannot wait at all: the pieces that touch it are *early*, and a call does not return before they
// are complete. A piece is complete when all steps that touch it are.
#ifndef OVERDRIVE_OVERLAP_PAGES_H_
#define OVERDRIVE_OVERLAP_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/guard/guard_service.h"

namespace od::overlap {

class Pages {
 public:
  struct Piece {
    std::uintptr_t start = 0;
    std::uintptr_t end = 0;
    std::uint32_t open_steps = 0;
  };

  // False when pieces overlap: then they have no order, and there are no pages. Pieces keep their
  // numbers.
  bool begin(const std::vector<Piece>& pieces, std::size_t page_bytes);
  // A step that touches the piece is done.
  void step_done(std::uint32_t piece);
  bool early_open() const { return early_open_ != 0; }
  // The pages that still wait, as parts of a flight; they stay valid until the next begin(). From
  // here on `service`, null: none, is told what has arrived.
  std::vector<memory::GuardPart>& guarded(const memory::GuardService* service);
  // All pages, whose contents are there: to see when they are touched.
  std::vector<memory::GuardPart>& traced();

  // When a piece was first touched, and when it could be had, as far as guards know; 0: never.
  struct Touch {
    std::uint64_t touched_ns = 0;
    std::uint64_t opened_ns = 0;
  };
  Touch touch(std::uint32_t piece) const;

 private:
  struct Part {
    std::uintptr_t start;
    std::uintptr_t end;
    std::uint32_t first;  // pieces in order of addresses, both included
    std::uint32_t last;
    std::uint32_t open = 0;
    std::int32_t guard = -1;
  };
  struct Known {
    std::uintptr_t start;
    std::uintptr_t end;
    std::uint32_t open_steps;
    std::uint32_t first_part;
    std::uint32_t parts;
    bool early;
  };

  void add_region(std::uint32_t first, std::uint32_t last, std::size_t page_bytes);
  void add_part(std::uintptr_t start, std::uintptr_t end, std::uint32_t first, std::uint32_t last);
  void complete(Known& piece);

  std::vector<Known> pieces_;            // by address
  std::vector<std::uint32_t> place_of_;  // of a piece among them
  std::vector<Part> parts_;
  std::vector<memory::GuardPart> guards_;
  const memory::GuardService* service_ = nullptr;
  std::uint32_t early_open_ = 0;
};

}  // namespace od::overlap

#endif  // OVERDRIVE_OVERLAP_PAGES_H_
