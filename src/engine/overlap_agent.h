// The thread that moves a collective while the program computes.
//
// Program and agent take turns: one of them has the rank, never both, so neither needs the rank's
// lock, and the host is only ever called by one thread at a time. The program has it from the start
// and after claim(); work() hands it to the agent, which from then on makes a round now and then
// until the operation is complete or the program claims the rank back. A round is short; claim()
// waits for its end.
//
// Protocol: `busy_` is a lock that the program holds while it has the rank and the agent for each
// round. `claimed_` keeps the agent from taking it again. The agent sleeps on `word_`, which
// whoever wants it awake changes.
#ifndef OVERDRIVE_ENGINE_OVERLAP_AGENT_H_
#define OVERDRIVE_ENGINE_OVERLAP_AGENT_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace od {

// What the agent does.
class AgentWork {
 public:
  // One round; false when there is nothing left to do. `*moved`: something has happened.
  virtual bool agent_round(bool* moved) = 0;
  // On the agent's thread, before anything else.
  virtual void agent_starts() = 0;

 protected:
  ~AgentWork() = default;
};

class OverlapAgent {
 public:
  explicit OverlapAgent(AgentWork& work) : work_(work) {}
  ~OverlapAgent() { stop(); }
  OverlapAgent(const OverlapAgent&) = delete;
  OverlapAgent& operator=(const OverlapAgent&) = delete;

  // False when there is no thread to be had.
  bool start();
  void work();
  // Takes the rank back; nothing if the program has it.
  void claim();
  // A thread waits for what is under way, or does not any more. Safe in signal handlers.
  void hurry(bool waits);
  // Waits a while for the agent to have done all there is; whether it has.
  bool wait_until_idle();
  // Ends the thread; the program has the rank.
  void stop();

 private:
  static void* entry(void* self);
  void run();
  void wake();
  // Until the word is no longer `seen`, or so long; 0: without end.
  static void sleep(std::atomic<std::uint32_t>& word, std::uint32_t seen, long ns);

  AgentWork& work_;
  bool running_ = false;
  bool has_rank_ = true;  // the program; its own note
  std::atomic<bool> busy_{true};
  std::atomic<bool> claimed_{true};        // set before busy_ is looked at: pairs with run()
  std::atomic<std::uint32_t> waiting_{0};  // threads of the program
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> working_{0};  // a futex word: 1 from work() until all is done
  pthread_t thread_{};
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_OVERLAP_AGENT_H_
