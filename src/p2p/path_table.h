// The choices of copy paths of one rank: for each peer, range of sizes and use of the send buffer.
//
// What has been learnt near is kept apart from what has been learnt far: cores of a virtual machine
// come nearer and go farther every few seconds, and what a path costs at one distance says nothing
// of the other, but it says it again when that distance comes back.
//
// Made for a peer with the first message that may take more than one path; nothing of it is touched
// by shorter messages. Only one choice at a time tries other paths.
//
// Used by one thread at a time (the rank's lock).
#ifndef OVERDRIVE_P2P_PATH_TABLE_H_
#define OVERDRIVE_P2P_PATH_TABLE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "base/clock.h"
#include "memory/send_history.h"
#include "observe/counters.h"
#include "p2p/path_choice.h"

namespace od::p2p {

class PathTable {
 public:
  // Shorter messages take what the thresholds say: they cost less than it takes to find out.
  static constexpr std::uint64_t kLeastBytes = 4096;

  PathTable(observe::Counters& counters, std::uint32_t my_index, std::size_t peers)
      : counters_(counters), my_index_(my_index), peers_(peers) {}

  struct Question {
    std::uint32_t peer = 0;
    bool far = false;
    bool reachable = false;  // the peer can read the buffer; only then `use` counts
    memory::BufferUse use = memory::BufferUse::fresh;
    std::uint64_t bytes = 0;
    Path prior = Path::cells;
    unsigned able = 0;  // PathChoice::bit of each path that this message can take
  };

  Path choose(const Question& question) {
    last_ = find(question);
    if (last_ == nullptr) return question.prior;
    PathChoice& choice = *last_;
    if (!choice.begun()) [[unlikely]]
      choice.begin(question.prior, question.able, question.far, question.bytes);
    if (!choice.rests(question.bytes)) [[unlikely]]
      step(choice, question);
    if ((question.able >> static_cast<unsigned>(choice.path()) & 1) != 0) [[likely]] {
      return choice.path();
    }
    choice.spoil();
    return question.prior;
  }
  // The path that choose() has returned last was not to be had after all.
  void spoil_last() {
    if (last_ != nullptr) last_->spoil();
  }
  // For tests: the path that such messages take as a rule now.
  Path usual(const Question& question) {
    const PathChoice* choice = find(question);
    return choice != nullptr && choice->begun() ? choice->usual() : question.prior;
  }

 private:
  static constexpr std::size_t kUses = 6;    // those of BufferUse, and buffers out of reach
  static constexpr std::size_t kSizes = 11;  // doublings from 4 KiB; the last: 4 MiB and more
  using Choices = std::array<PathChoice, kUses * kSizes>;
  struct Peer {
    std::unique_ptr<Choices> at[2];  // near, far
  };

  PathChoice* find(const Question& question) {
    std::unique_ptr<Choices>& choices = peers_[question.peer].at[question.far ? 1 : 0];
    if (choices == nullptr) [[unlikely]] {
      choices.reset(new (std::nothrow) Choices);
      if (choices == nullptr) return nullptr;
    }
    const std::size_t size = size_range(question.bytes, kLeastBytes, kSizes);
    const std::size_t use = question.reachable ? static_cast<std::size_t>(question.use) : kUses - 1;
    return &(*choices)[use * kSizes + size];
  }

  void step(PathChoice& choice, const Question& question) {
    // Whatever is received adds to one of these.
    const PathMoment moment{now_ns(), counters_.bytes_received + counters_.matched_posted +
                                          counters_.matched_unexpected};
    const bool waits = my_index_ > question.peer;
    const PathChoice::Event event = trial_.step(choice, question.bytes, moment, waits);
    if (event == PathChoice::Event::trial_begun) ++counters_.path_trials;
    if (event == PathChoice::Event::path_changed) ++counters_.path_changes;
  }

  observe::Counters& counters_;
  std::uint32_t my_index_;
  std::vector<Peer> peers_;  // by node index
  OneTrial trial_;
  PathChoice* last_ = nullptr;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_PATH_TABLE_H_
