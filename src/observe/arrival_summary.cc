// Puts the ranks' times of each call side by side.
#include "observe/arrival_summary.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "base/json_text.h"

namespace od::observe {
namespace {

constexpr std::size_t kMostShown = 12;

struct Seen {
  ToldArrival told;
  int rank;
};

// What is added up for a place.
struct Gathered {
  ArrivalSummary summary;
  std::vector<std::uint64_t> apart, on_node, nodes;
  std::map<int, std::uint64_t> last;
};

std::size_t class_of(std::uint64_t ns) {
  std::size_t found = 0;
  for (std::uint64_t limit = 10'000; found + 1 < ArrivalSummary::kClasses && ns >= limit;
       limit *= 10) {
    ++found;
  }
  return found;
}

std::uint64_t median(std::vector<std::uint64_t>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Adds one call, of which all ranks are there.
void add_call(Gathered& place, std::span<const Seen> call, std::span<const int> node_of_rank) {
  std::map<int, std::pair<std::int64_t, std::int64_t>> of_node;  // first, last
  const Seen* last = &call[0];
  std::int64_t first_ns = call[0].told.ns;
  for (const Seen& each : call) {
    const std::int64_t ns = each.told.ns;
    const auto [node, is_new] =
        of_node.try_emplace(node_of_rank[static_cast<std::size_t>(each.rank)], ns, ns);
    node->second.first = std::min(node->second.first, ns);
    node->second.second = std::max(node->second.second, ns);
    first_ns = std::min(first_ns, ns);
    if (ns > last->told.ns) last = &each;
  }
  std::int64_t on_node = 0;
  std::int64_t last_node_ns = first_ns;
  for (const auto& [node, times] : of_node) {
    on_node = std::max(on_node, times.second - times.first);
    last_node_ns = std::max(last_node_ns, times.first);
  }
  const auto apart = static_cast<std::uint64_t>(last->told.ns - first_ns);
  place.apart.push_back(apart);
  place.on_node.push_back(static_cast<std::uint64_t>(on_node));
  place.nodes.push_back(static_cast<std::uint64_t>(last_node_ns - first_ns));
  ++place.last[last->rank];
  ++place.summary.calls;
  ++place.summary.classes[class_of(apart)];
  place.summary.longest_ns = std::max(place.summary.longest_ns, apart);
}

double us(std::uint64_t ns) { return static_cast<double>(ns) * 1e-3; }

}  // namespace

std::vector<ArrivalSummary> join_arrivals(std::span<const ToldArrival> told,
                                          std::span<const CallSite> sites,
                                          std::span<const int> node_of_rank) {
  const std::size_t ranks = node_of_rank.size();
  const std::size_t per_rank = told.size() / ranks;
  const std::size_t sites_per_rank = sites.size() / ranks;
  std::vector<Seen> all;
  for (std::size_t i = 0; i < told.size(); ++i) {
    if (told[i].ranks != 0) all.push_back({told[i], static_cast<int>(i / per_rank)});
  }
  std::sort(all.begin(), all.end(), [](const Seen& a, const Seen& b) {
    return std::tie(a.told.stream, a.told.number, a.rank) <
           std::tie(b.told.stream, b.told.number, b.rank);
  });
  // By function, module, offset, and number of ranks.
  std::map<std::tuple<std::string, std::string, std::uint64_t, std::uint32_t>, Gathered> places;
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    while (end < all.size() && all[end].told.stream == all[begin].told.stream &&
           all[end].told.number == all[begin].told.number) {
      ++end;
    }
    const std::span<const Seen> call(&all[begin], end - begin);
    begin = end;
    if (call.size() != call[0].told.ranks) continue;
    CallSite site;
    if (call[0].told.site < sites_per_rank) {
      site = sites[static_cast<std::size_t>(call[0].rank) * sites_per_rank + call[0].told.site];
    }
    Gathered& place = places[{site.function, site.module, site.offset, call[0].told.ranks}];
    place.summary.site = site;
    place.summary.ranks = call[0].told.ranks;
    add_call(place, call, node_of_rank);
  }
  std::vector<ArrivalSummary> found;
  for (auto& [key, place] : places) {
    ArrivalSummary& summary = place.summary;
    summary.median_ns = median(place.apart);
    summary.on_node_ns = median(place.on_node);
    summary.nodes_ns = median(place.nodes);
    for (const auto& [rank, calls] : place.last) {
      if (calls <= summary.last_calls) continue;
      summary.last_rank = rank;
      summary.last_calls = calls;
    }
    found.push_back(summary);
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.median_ns * a.calls > b.median_ns * b.calls;
  });
  return found;
}

std::string arrival_table(std::span<const ArrivalSummary> places, std::uint64_t clock_error_ns) {
  if (places.empty()) return {};
  char line[512];
  std::snprintf(line, sizeof line,
                " arrivals at collectives: how long after the first rank the last one came, in us "
                "(clocks of nodes known to %.1f us)\n"
                "  %-20s %6s %7s %11s %11s %11s %11s  %-14s ",
                us(clock_error_ns), "", "ranks", "calls", "median", "longest", "on a node", "nodes",
                "mostly last");
  std::string text = line;
  for (const char* const name : ArrivalSummary::kClassNames) {
    std::snprintf(line, sizeof line, "%7s", name);
    text += line;
  }
  text += "  place\n";
  std::vector<CallSite> sites;
  for (const ArrivalSummary& place : places.first(std::min(kMostShown, places.size()))) {
    sites.push_back(place.site);
  }
  const std::vector<std::string> words = describe_sites(sites);
  for (std::size_t i = 0; i < sites.size(); ++i) {
    const ArrivalSummary& place = places[i];
    char last[32];
    std::snprintf(last, sizeof last, "%d (%.0f %%)", place.last_rank,
                  100 * static_cast<double>(place.last_calls) / static_cast<double>(place.calls));
    std::snprintf(line, sizeof line, "  %-20s %6u %7llu %11.1f %11.1f %11.1f %11.1f  %-14s ",
                  place.site.function, place.ranks, static_cast<unsigned long long>(place.calls),
                  us(place.median_ns), us(place.longest_ns), us(place.on_node_ns),
                  us(place.nodes_ns), last);
    text += line;
    for (const std::uint64_t calls : place.classes) {
      std::snprintf(line, sizeof line, "%7llu", static_cast<unsigned long long>(calls));
      text += line;
    }
    text += "  " + words[i] + '\n';
  }
  if (places.size() > sites.size()) {
    text += "  and " + std::to_string(places.size() - sites.size()) + " others\n";
  }
  return text;
}

std::vector<CallSite> arrival_sites(std::span<const ArrivalStream> streams,
                                    const char* const* names) {
  std::vector<CallSite> sites;
  for (const ArrivalStream& stream : streams) {
    for (const Arrival& each : stream.kept()) {
      if (find_site(sites, each, names) < sites.size()) continue;
      sites.push_back(site_of(names[each.function], each.address));
      sites.back().calls = 1;
    }
  }
  return sites;
}

std::uint32_t find_site(std::span<const CallSite> sites, const Arrival& arrival,
                        const char* const* names) {
  std::uint32_t at = 0;
  for (const CallSite& site : sites) {
    if (site.address == arrival.address && std::strcmp(site.function, names[arrival.function]) == 0)
      break;
    ++at;
  }
  return at;
}

std::string arrival_json(std::span<const ToldArrival> told, std::span<const CallSite> sites,
                         const ArrivalClock& clock) {
  JsonWriter json;
  json.open_object();
  json.member("node", clock.node);
  json.member("clock_error_ns", clock.error_ns);
  json.key("sites");
  json.open_array();
  for (const CallSite& site : sites) {
    json.open_object();
    json.member("function", site.function);
    json.member("module", site.module);
    json.member("offset", site.offset);
    json.close_object();
  }
  json.close_array();
  // Each communicator's calls: number, place among `sites`, time.
  json.key("communicators");
  json.open_array();
  for (std::size_t begin = 0; begin < told.size();) {
    const ToldArrival& first = told[begin];
    char id[24];
    std::snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>(first.stream));
    json.open_object();
    json.member("id", id);
    json.member("ranks", static_cast<std::uint64_t>(first.ranks));
    json.key("calls");
    // In one line: there are thousands.
    std::string calls;
    for (; begin < told.size() && told[begin].stream == first.stream; ++begin) {
      calls += (calls.empty() ? "[[" : ",[") + std::to_string(told[begin].number) + ',' +
               std::to_string(told[begin].site) + ',' + std::to_string(told[begin].ns) + ']';
    }
    json.document(calls + ']');
    json.close_object();
  }
  json.close_array();
  json.close_object();
  return json.take();
}

}  // namespace od::observe
