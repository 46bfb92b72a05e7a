// When this process came to the program's collective calls, so that the ranks' times can be put
// side by side at the end.
//
// Ranks call the collectives of a communicator in the same order (blocking ones and others apart),
// so the number of a call names it on all of them. Of each communicator so many calls are kept as
// fit; when they no longer do, every other one is dropped, by a hash of its number, so that all
// ranks keep the same ones, and none of several calls that take turns is left out.
#ifndef OVERDRIVE_OBSERVE_ARRIVALS_H_
#define OVERDRIVE_OBSERVE_ARRIVALS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace od::observe {

struct Arrival {
  std::uint64_t number = 0;
  std::uintptr_t address = 0;  // of the call
  std::uint64_t ns = 0;
  std::uint32_t function = 0;
};

// The calls of one communicator.
class ArrivalStream {
 public:
  static constexpr std::size_t kMostKept = 2048;

  ArrivalStream(std::uint64_t id, std::uint32_t ranks) : id_(id), ranks_(ranks) {}

  void add(std::uint32_t function, std::uintptr_t address, std::uint64_t ns) {
    const std::uint64_t number = calls_++;
    if (keeps(number)) keep({number, address, ns, function});
  }
  // Drops calls until there are at most 1 of 2^`halvings` of all.
  void thin(unsigned halvings);

  std::uint64_t id() const { return id_; }
  std::uint32_t ranks() const { return ranks_; }
  std::uint64_t calls() const { return calls_; }
  unsigned halvings() const { return halvings_; }
  const std::vector<Arrival>& kept() const { return kept_; }

 private:
  bool keeps(std::uint64_t number) const;
  void keep(const Arrival& arrival);

  std::uint64_t id_;
  std::uint32_t ranks_;
  unsigned halvings_ = 0;
  std::uint64_t calls_ = 0;
  std::vector<Arrival> kept_;
};

// A communicator, by what all its ranks call it; blocking calls and others are counted apart.
struct ArrivalPlace {
  std::uint64_t context = 0;
  std::uint32_t ranks = 0;
  bool blocks = true;
};

// Notes a call, at any thread. Communicators beyond the first kMostStreams are not looked at.
inline constexpr std::size_t kMostStreams = 64;
void note_arrival(const ArrivalPlace& place, std::uint32_t function, std::uintptr_t address,
                  std::uint64_t ns);
// What has been noted; the caller sees to it that no thread is in a call.
std::vector<ArrivalStream> all_arrivals();

}  // namespace od::observe

#endif  // OVERDRIVE_OBSERVE_ARRIVALS_H_
