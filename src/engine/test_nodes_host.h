// Test support: a host without an MPI library that carries messages between the ranks of a forked
// job, so that the ranks may be taken for ones on different nodes (settings.test_remote).
//
// Each ordered pair of ranks has a ring in shared memory through which messages flow as bytes, in
// order; a message is matched by communicator and tag when all of it has come. Rings are short, so
// that messages are under way for many rounds, and what is complete is told late, by chance.
#ifndef OVERDRIVE_ENGINE_TEST_NODES_HOST_H_
#define OVERDRIVE_ENGINE_TEST_NODES_HOST_H_

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <random>
#include <vector>

#include "engine/forked_host.h"
#include "host/host_table.h"

namespace od {

class NodesHost {
 public:
  static constexpr int kMostRanks = 8;
  static constexpr int kLeastTagUb = 32767;  // that MPI allows
  // Of the next job; a test that needs more tags sets it before it starts one.
  static inline int tag_ub = kLeastTagUb;

  // Before the ranks are forked; what they send through.
  static void prepare() {
    void* const memory = mmap(nullptr, sizeof(Rings), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    rings_ = new (memory) Rings;
  }
  static void finish() {
    munmap(rings_, sizeof(Rings));
    tag_ub = kLeastTagUb;
  }

  // In a rank.
  static host::HostTable table(const node::Exchange& exchange, bool threads) {
    host::HostTable host = forked_host(exchange);
    if (threads) host.thread_level = host::ThreadLevel::multiple;
    host.byte_type = 7;
    host.tag_ub = tag_ub;
    state() = new State(exchange.rank);
    host.comm_dup = [](host::Handle, host::Handle* out) {
      *out = state()->next_comm++;
      return host::kSuccess;
    };
    host.comm_free = [](host::Handle* comm) {
      *comm = 0;
      return host::kSuccess;
    };
    host.isend = [](const void* buffer, std::int64_t bytes, host::Handle, int dest, int tag,
                    host::Handle comm, host::Handle* request) {
      return state()->send(buffer, bytes, dest, {comm, tag, bytes}, request);
    };
    host.irecv = [](void* buffer, std::int64_t bytes, host::Handle, int source, int tag,
                    host::Handle comm, host::Handle* request) {
      return state()->receive(buffer, bytes, source, {comm, tag, bytes}, request);
    };
    host.test = [](host::Handle* request, bool* flag, host::Status* status) {
      return state()->test(request, flag, status);
    };
    host.test_some = [](int count, host::Handle* requests, int* done, int* which,
                        host::Status* statuses) {
      *done = 0;
      for (int i = 0; i < count; ++i) {
        bool flag = false;
        state()->test(&requests[i], &flag, &statuses[*done]);
        if (flag) which[(*done)++] = i;
      }
    };
    host.poll = [] { state()->progress(); };
    return host;
  }

 private:
  static constexpr std::uint64_t kRingBytes = 16384;

  struct Ring {
    std::atomic<std::uint64_t> written{0}, read{0};
    std::array<char, kRingBytes> bytes;
  };
  struct Rings {
    std::array<std::array<Ring, kMostRanks>, kMostRanks> of;  // sender, receiver
  };
  struct Header {
    host::Handle comm;
    std::int64_t tag;
    std::int64_t bytes;
  };
  struct Operation {
    explicit Operation(const Header& of) : header(of) {}
    Header header;
    void* buffer = nullptr;      // of a receive
    std::vector<char> outgoing;  // header and content
    std::size_t sent = 0;
    bool done = false;
    host::Status status;
  };
  struct Arrived {
    Header header{};
    std::vector<char> content;
  };
  // What comes from one rank.
  struct Incoming {
    Arrived now;
    std::size_t header_bytes = 0;
    std::deque<Arrived> unexpected;
    std::list<Operation*> posted;
  };

  class State {
   public:
    explicit State(int rank) : rank_(rank), late_(static_cast<unsigned>(rank)) {}

    int send(const void* buffer, std::int64_t bytes, int dest, const Header& header,
             host::Handle* request) {
      const std::lock_guard<std::mutex> lock(mutex_);
      auto* const operation = new Operation(header);
      operation->outgoing.resize(sizeof header + static_cast<std::size_t>(bytes));
      std::memcpy(operation->outgoing.data(), &header, sizeof header);
      if (bytes != 0) {
        std::memcpy(operation->outgoing.data() + sizeof header, buffer,
                    static_cast<std::size_t>(bytes));
      }
      sends_[static_cast<std::size_t>(dest)].push_back(operation);
      *request = reinterpret_cast<host::Handle>(operation);
      return host::kSuccess;
    }
    int receive(void* buffer, std::int64_t, int source, const Header& header,
                host::Handle* request) {
      const std::lock_guard<std::mutex> lock(mutex_);
      auto* const operation = new Operation(header);
      operation->buffer = buffer;
      *request = reinterpret_cast<host::Handle>(operation);
      if (source != host::kAnySource) {
        if (!take_unexpected(source, *operation)) {
          incoming_[static_cast<std::size_t>(source)].posted.push_back(operation);
        }
        return host::kSuccess;
      }
      for (int other = 0; other < ranks(); ++other) {
        if (take_unexpected(other, *operation)) return host::kSuccess;
      }
      posted_to_any_.push_back(operation);
      return host::kSuccess;
    }
    int test(host::Handle* request, bool* flag, host::Status* status) {
      const std::lock_guard<std::mutex> lock(mutex_);
      move();
      auto* const operation = reinterpret_cast<Operation*>(*request);
      *flag = operation->done && late_() % 4 != 0;
      if (!*flag) return host::kSuccess;
      *status = operation->status;
      *request = 0;
      delete operation;
      return host::kSuccess;
    }
    void progress() {
      const std::lock_guard<std::mutex> lock(mutex_);
      move();
    }

    host::Handle next_comm = 100;

   private:
    static bool matches(const Header& a, const Header& b) {
      return a.comm == b.comm && a.tag == b.tag;
    }
    bool take_unexpected(int source, Operation& receive) {
      Incoming& from = incoming_[static_cast<std::size_t>(source)];
      const auto found =
          std::find_if(from.unexpected.begin(), from.unexpected.end(),
                       [&](const Arrived& a) { return matches(a.header, receive.header); });
      if (found == from.unexpected.end()) return false;
      deliver(receive, *found, source);
      from.unexpected.erase(found);
      return true;
    }
    static void deliver(Operation& receive, const Arrived& message, int source) {
      const std::int64_t bytes = std::min(receive.header.bytes, message.header.bytes);
      if (bytes != 0) {
        std::memcpy(receive.buffer, message.content.data(), static_cast<std::size_t>(bytes));
      }
      receive.status.bytes = bytes;
      receive.status.source = source;
      receive.status.tag = static_cast<int>(message.header.tag);
      receive.status.error = message.header.bytes > receive.header.bytes ? 15 : host::kSuccess;
      receive.done = true;
    }
    void move() {
      for (int other = 0; other < ranks(); ++other) {
        push(other);
        pull(other);
      }
    }
    static int ranks() { return node::ForkedJob::current->ranks(); }

    void push(int dest) {
      Ring& ring = rings_->of[static_cast<std::size_t>(rank_)][static_cast<std::size_t>(dest)];
      auto& line = sends_[static_cast<std::size_t>(dest)];
      std::uint64_t at = ring.written.load(std::memory_order_relaxed);
      while (!line.empty()) {
        Operation& first = *line.front();
        // Pairs with the release in pull().
        while (first.sent < first.outgoing.size() &&
               at - ring.read.load(std::memory_order_acquire) < kRingBytes) {
          ring.bytes[at++ % kRingBytes] = first.outgoing[first.sent++];
        }
        ring.written.store(at, std::memory_order_release);  // pairs with pull()
        if (first.sent < first.outgoing.size()) return;
        first.done = true;
        line.pop_front();
      }
    }
    void pull(int source) {
      Ring& ring = rings_->of[static_cast<std::size_t>(source)][static_cast<std::size_t>(rank_)];
      Incoming& from = incoming_[static_cast<std::size_t>(source)];
      std::uint64_t at = ring.read.load(std::memory_order_relaxed);
      // Pairs with the release in push().
      const std::uint64_t end = ring.written.load(std::memory_order_acquire);
      for (; at != end; ++at) {
        const char byte = ring.bytes[at % kRingBytes];
        if (from.header_bytes < sizeof(Header)) {
          reinterpret_cast<char*>(&from.now.header)[from.header_bytes++] = byte;
        } else {
          from.now.content.push_back(byte);
        }
        if (from.header_bytes < sizeof(Header) ||
            static_cast<std::int64_t>(from.now.content.size()) != from.now.header.bytes) {
          continue;
        }
        arrive(from, source);
      }
      ring.read.store(at, std::memory_order_release);  // pairs with push()
    }
    void arrive(Incoming& from, int source) {
      const Arrived message = std::move(from.now);
      from.now = {};
      from.header_bytes = 0;
      for (std::list<Operation*>* posted : {&from.posted, &posted_to_any_}) {
        const auto found = std::find_if(posted->begin(), posted->end(), [&](const Operation* each) {
          return matches(each->header, message.header);
        });
        if (found == posted->end()) continue;
        deliver(**found, message, source);
        posted->erase(found);
        return;
      }
      from.unexpected.push_back(message);
    }

    const int rank_;
    std::mutex mutex_;
    std::mt19937 late_;
    std::array<std::deque<Operation*>, kMostRanks> sends_;
    std::array<Incoming, kMostRanks> incoming_;
    std::list<Operation*> posted_to_any_;
  };

  static State*& state() {
    static State* made = nullptr;
    return made;
  }
  static inline Rings* rings_ = nullptr;
};

}  // namespace od

#endif  // OVERDRIVE_ENGINE_TEST_NODES_HOST_H_
