// The table of collectives in the statistics.

#include "coll/run/collective_stats.h"

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/json_text.h"
#include "coll/plan/registry.h"
#include "coll/run/collectives.h"
#include "coll/run/operation.h"

namespace od {

namespace {

const char* name(CollectiveStats::Way way) {
  switch (way) {
    case CollectiveStats::Way::shared:
      return "shared memory";
    case CollectiveStats::Way::messages:
      return "messages";
    case CollectiveStats::Way::both_levels:
      return "both levels";
    case CollectiveStats::Way::host:
      break;
  }
  return "host";
}

// In shared memory alone no algorithm between ranks takes part.
const char* algorithm_name(const CollectiveStats::Row& row) {
  if (row.way == CollectiveStats::Way::shared) return "-";
  const coll::Algorithm* found = coll::find_algorithm(row.collective, row.algorithm);
  return found != nullptr ? found->name : "?";
}

double mean_us(std::uint64_t ns, std::uint64_t calls) {
  return calls == 0 ? 0 : static_cast<double>(ns) / static_cast<double>(calls) * 1e-3;
}

}  // namespace

void CollectiveStats::merge(std::vector<Row>& rows, const Row& row) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
    return other.collective == row.collective && other.way == row.way &&
           other.algorithm == row.algorithm;
  });
  if (found == rows.end()) {
    rows.push_back(row);
    return;
  }
  found->arrivals += row.arrivals;
  found->calls += row.calls;
  found->bytes += row.bytes;
  found->ns += row.ns;
  found->longest_ns = std::max(found->longest_ns, row.longest_ns);
  found->apart_ns += row.apart_ns;
  found->longest_apart_ns = std::max(found->longest_apart_ns, row.longest_apart_ns);
}

void CollectiveStats::add(const Call& call) {
  Row row{};
  row.collective = call.collective;
  row.way = call.way;
  row.algorithm = static_cast<std::int16_t>(call.way == Way::shared ? 0 : call.algorithm);
  row.calls = 1;
  row.bytes = call.bytes;
  row.ns = row.longest_ns = call.ns;
  if (call.arrivals_known) {
    row.arrivals = 1;
    row.apart_ns = row.longest_apart_ns = call.apart_ns;
  }
  merge(rows_, row);
}

std::vector<CollectiveStats::Row> CollectiveStats::join(std::span<const Row> all) {
  std::vector<Row> joined;
  for (const Row& row : all) {
    if (row.calls != 0) merge(joined, row);
  }
  std::sort(joined.begin(), joined.end(), [](const Row& a, const Row& b) {
    if (a.collective != b.collective) return a.collective < b.collective;
    return a.calls > b.calls;
  });
  return joined;
}

std::string CollectiveStats::table(std::span<const Row> rows, int ranks) {
  if (rows.empty()) return {};
  char line[256];
  std::snprintf(line, sizeof line,
                " collectives (calls of all %d ranks; times in us; apart: between the first and "
                "the last rank of a node to call)\n",
                ranks);
  std::string text = line;
  std::snprintf(line, sizeof line, "  %-20s %-14s %-20s %12s %16s %10s %10s %10s %10s\n", "", "way",
                "algorithm", "calls", "bytes", "mean", "longest", "apart", "most apart");
  text += line;
  for (const Row& row : rows) {
    std::snprintf(
        line, sizeof line, "  %-20s %-14s %-20s %12llu %16llu %10.2f %10.1f %10.2f %10.1f\n",
        coll::info(row.collective).name, name(row.way), algorithm_name(row),
        static_cast<unsigned long long>(row.calls), static_cast<unsigned long long>(row.bytes),
        mean_us(row.ns, row.calls), mean_us(row.longest_ns, 1), mean_us(row.apart_ns, row.arrivals),
        mean_us(row.longest_apart_ns, 1));
    text += line;
  }
  return text;
}

std::string CollectiveStats::json(std::span<const Row> rows) {
  JsonWriter json;
  json.open_array();
  for (const Row& row : rows) {
    json.open_object();
    json.member("collective", coll::info(row.collective).name);
    json.member("way", name(row.way));
    json.member("algorithm", algorithm_name(row));
    json.member("calls", row.calls);
    json.member("bytes", row.bytes);
    json.member("ns", row.ns);
    json.member("longest_ns", row.longest_ns);
    json.member("arrivals", static_cast<std::uint64_t>(row.arrivals));
    json.member("apart_ns", row.apart_ns);
    json.member("longest_apart_ns", row.longest_apart_ns);
    json.close_object();
  }
  json.close_array();
  return json.take();
}

// Of an operation that is over.
void CollectiveOp::count() {
  using Way = CollectiveStats::Way;
  CollectiveStats::Call call;
  call.collective = task_.call->collective;
  const bool levels = team_ != nullptr || (arrival_ != nullptr && arrival_->shares_memory());
  call.way = whole_ ? Way::shared : (levels ? Way::both_levels : Way::messages);
  call.algorithm = task_.decision.algorithm->number;
  call.bytes = task_.bytes;
  call.ns = now_ns() - started_ns_;
  if (whole_) {
    call.arrivals_known = team_->team().arrivals_apart(works_[0]->operation, &call.apart_ns);
  }
  owner_->stats.add(call);
}

}  // namespace od
