// What is known about the places from which collectives are called: how long calls take, how much
// of that was hidden, and in which order the program touches what it gets.
//
// Each rank has a table of its own; at the end they are joined, for the statistics, and for a file
// by which later runs of the same program order what they send. The file is text that all ranks
// share: rank 0 reads it, and the terms of the job carry it to the others.
#ifndef OVERDRIVE_OVERLAP_TRACE_H_
#define OVERDRIVE_OVERLAP_TRACE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coll/plan/shape.h"
#include "overlap/link_order.h"
#include "overlap/model.h"

namespace od::overlap {

// Calls that all ranks take for the same kind.
struct CallKind {
  coll::Collective collective = coll::Collective::kBarrier;
  std::int32_t ranks = 0;
  std::int64_t bytes = 0;  // as the collective defines it; 0 where ranks know different sizes
  bool operator==(const CallKind&) const = default;
};

// One kind of call from one place; travels between ranks as plain bytes.
struct SiteRecord {
  std::uint64_t id = 0;  // of the place
  char place[136] = "";  // in words; empty: no record
  CallKind kind;
  std::uint64_t calls = 0;
  std::uint64_t early = 0;   // that returned before they were complete
  std::uint64_t traced = 0;  // after which first touches were recorded
  // Sums over calls. `comm` is the whole communication, `init` the call itself.
  std::uint64_t comm_ns = 0;
  std::uint64_t comm_calls = 0;
  std::uint64_t init_ns = 0;       // of calls that returned early
  std::uint64_t between_ns = 0;    // from the return to the next call of MPI
  std::uint64_t unrelated_ns = 0;  // from the return to the first touch
  std::uint64_t related_ns = 0;    // from the first to the last touch, without waits
  std::uint64_t related_bytes = 0;
  std::uint64_t received_bytes = 0;
  std::uint64_t seen_calls = 0;  // to which these five belong
  std::uint64_t hidden_ns = 0;   // of calls that returned early
  std::uint64_t waited_ns = 0;   // at pages
  Accesses accesses;

  void add(const SiteRecord& other);
  // Of a call on average.
  ModelTerms model() const;
};

class SiteTable {
 public:
  // The record of calls of a kind from a place; it stays where it is.
  SiteRecord& at(std::uint64_t id, std::string_view place, const CallKind& kind);
  const std::vector<SiteRecord>& records() const { return records_; }

 private:
  // Beyond that places are not told apart.
  static constexpr std::size_t kMost = 512;
  std::vector<SiteRecord> records_;
};

// Adds up records of several ranks; those with the longest communication first.
std::vector<SiteRecord> join_records(std::span<const SiteRecord> all);

// Lines for the statistics, with the model beside what was measured; empty: there are no records.
std::string site_table(std::span<const SiteRecord> records);
// The same as a JSON array.
std::string site_json(std::span<const SiteRecord> records);

// Of the program of this process: its name, and what changes with its file.
struct Program {
  std::string name;
  std::string state;
};
Program own_program();

inline constexpr int kTraceSchema = 2;  // 2: blocks of up to 20 pieces
std::string trace_path(const std::string& folder, const Program& program);
std::string trace_text(std::span<const SiteRecord> records, const Program& program);

// The orders that a file holds. Not readable, of another program or version: `issue` says so.
class Orders {
 public:
  static Orders parse(std::string_view text, const Program* program, std::string& issue);
  // Of the place with most calls of that kind; null: nothing is known.
  const Order* find(const CallKind& kind) const;
  bool empty() const { return known_.empty(); }

 private:
  struct Known {
    CallKind kind;
    std::uint64_t calls = 0;
    Order order;
  };
  std::vector<Known> known_;
};

// The text of the program's file; empty: there is none, or `note` says why it does not count.
std::string read_trace(const std::string& folder, std::string& note);
// An empty string, or why it could not be written.
std::string write_trace(const std::string& folder, std::span<const SiteRecord> records);

}  // namespace od::overlap

#endif  // OVERDRIVE_OVERLAP_TRACE_H_
