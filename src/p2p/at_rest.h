// Whether a rank is known to have nothing under way that needs its progress: one word, for calls
// that cost no more than a few nanoseconds (face/window_calls.h).
//
// The word lies with whoever asks. It becomes true when somebody has looked and found nothing; from
// then on whatever leaves something under way when its call returns takes it back first, without a
// look: requests that are handed out or started, sends that are not finished, collectives. A
// message for which a thread waits inside MPI does not count, that thread looks after it.
// Written under the rank's lock, where there is one.
#ifndef OVERDRIVE_P2P_AT_REST_H_
#define OVERDRIVE_P2P_AT_REST_H_

#include <atomic>

namespace od::p2p {

class AtRest {
 public:
  AtRest() = default;
  AtRest(const AtRest&) = delete;
  AtRest& operator=(const AtRest&) = delete;

  // From now on the word is this one.
  void live_in(std::atomic<bool>& word) {
    word.store(false, std::memory_order_relaxed);
    word_ = &word;
  }
  // Relaxed: a thread that asks for it after it has begun something finds its own store; what
  // another thread begins at the same time may as well come later.
  void disturb() { word_->store(false, std::memory_order_relaxed); }
  void settle() {
    if (!stays_awake_) word_->store(true, std::memory_order_relaxed);
  }
  // From now on the word stays false.
  void stay_awake() {
    stays_awake_ = true;
    disturb();
  }

 private:
  std::atomic<bool> own_{false};
  std::atomic<bool>* word_ = &own_;
  bool stays_awake_ = false;
};

}  // namespace od::p2p

#endif  // OVERDRIVE_P2P_AT_REST_H_
