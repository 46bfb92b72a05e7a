// Reads a tuning file: rules for all collectives in JSON, as `overdrive tune` writes them.
//
//   {
//     "format": "overdrive-tuning", "version": 1,
//     "fingerprint": "...",         of the machine (topology/fingerprint.h); absent: any
//     "host": "...",                the MPI library it was measured over; what programs have learnt
//                                   counts over the same one only, else for people
//     "machine": {                  for the cost model
//       "near": {"latency_ns": 120, "overhead_ns": 40, "gap_ns": 60, "byte_ns": 0.12},
//       "far": {...}, "add_byte_ns": 0.1, "copy_byte_ns": 0.08, "rendezvous_bytes": "64K"},
//     "rules": [
//       {"collective": "allreduce",   a name, and
//        "algorithm": "ring",         a name or number, "auto" for the cost model; then optional
//        "mode": "hierarchical",      or "flat"
//        "bytes": ["64K", "4M"],      a value, or [first, last]; null: no limit; also for
//        "ranks": [2, null],          "ranks_per_node" and "nodes"
//        "commutative": true,
//        "radix": 4, "segment": "64K", "window": 8, "leaders": 2, "pipeline": "512K",
//        "calls": 5000,               what programs have learnt by so many calls (learnt.h)
//        "evidence": ...}             anything; for people
//     ]
//   }
//
// The first rule that matches a call and can serve it counts. A file with a mistake, or one for
// another machine, is not used at all; the message names the line.
#ifndef OVERDRIVE_COLL_PLAN_SELECT_TUNING_FILE_H_
#define OVERDRIVE_COLL_PLAN_SELECT_TUNING_FILE_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coll/plan/model/machine.h"
#include "coll/plan/select/rules.h"

namespace od::coll {

struct TuningFile {
  std::vector<std::pair<Collective, Rule>> rules;
  std::optional<Machine> machine;
  std::string host;
  std::vector<std::string> issues;
  bool foreign = false;  // the only issue: it was made for another machine
};

// The text of the file, or nothing and an issue.
std::optional<std::string> read_tuning_text(const std::string& path,
                                            std::vector<std::string>& issues);
// `fingerprint`: of this machine; empty: any file will do.
TuningFile read_tuning_file(const std::string& path, const std::string& fingerprint);
// The same for the file's text; `path` is for messages.
TuningFile parse_tuning(std::string_view text, const std::string& path,
                        const std::string& fingerprint);

}  // namespace od::coll

#endif  // OVERDRIVE_COLL_PLAN_SELECT_TUNING_FILE_H_
