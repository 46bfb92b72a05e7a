// From where in the program a collective is called, in terms that hold in other runs and processes.
//
// A place is a chain of return addresses, from the call of MPI outwards, each as module and offset:
// modules lie elsewhere in every process. Frames of this library, of the loader, and of libraries
// through which other languages call MPI are left out. A chain is short: programs wrap MPI in a
// function or two. Frames without unwinding tables end it.
#ifndef OVERDRIVE_OVERLAP_CALL_SITE_H_
#define OVERDRIVE_OVERLAP_CALL_SITE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace od::overlap {

struct AddressChain {
  static constexpr std::size_t kMost = 4;
  std::array<std::uintptr_t, kMost> addresses{};  // 0: there are no more
  bool operator==(const AddressChain&) const = default;
};

struct CallSite {
  std::uint64_t id = 0;  // the same in all processes of one program
  std::string text;      // "solver+0x1234 < solver+0x2345"
};

class CallSites {
 public:
  // The library of which the caller is a part is left out.
  CallSites();

  // The chain of the calling thread: about a microsecond.
  AddressChain here() const;
  // Remembered: the first time costs some more.
  const CallSite& site(const AddressChain& chain);

  // Whether calls pass a module of that file name on their way from the program to MPI.
  static bool is_between(const char* file_name);

 private:
  struct Range {
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
  };
  struct Hash {
    std::size_t operator()(const AddressChain& chain) const;
  };
  static constexpr std::size_t kMostRanges = 12;
  // Chains of programs that make code as they run do not end.
  static constexpr std::size_t kMostSites = 4096;

  std::array<Range, kMostRanges> left_out_{};
  std::size_t ranges_ = 0;
  std::unordered_map<AddressChain, CallSite, Hash> known_;
  CallSite other_{0, "(other places)"};
};

}  // namespace od::overlap

#endif  // OVERDRIVE_OVERLAP_CALL_SITE_H_
