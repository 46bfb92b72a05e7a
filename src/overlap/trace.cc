// Records, their table and their file: see trace.h.
#include "overlap/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>

#include "base/json_text.h"
#include "coll/plan/select/json_tree.h"
#include "config/settings_types.h"
#include "config/trusted_file.h"

namespace od::overlap {
namespace {

using coll::JsonValue;

constexpr std::size_t kMostFileBytes = 4 << 20;
// What fits a screen.
constexpr std::size_t kMostShown = 20;
constexpr std::int64_t kNever = -1;

bool same_site(const SiteRecord& a, const SiteRecord& b) {
  return a.id == b.id && a.kind == b.kind;
}

double ms(double ns) { return ns * 1e-6; }
double mean(std::uint64_t sum, std::uint64_t count) {
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

template <std::size_t kCount>
void write_means(JsonWriter& json, const char* name, const std::array<std::int64_t, kCount>& sums,
                 const std::array<std::int64_t, kCount>& counts, std::size_t count) {
  json.key(name);
  json.open_array();
  for (std::size_t i = 0; i < count; ++i) {
    json.value(counts[i] == 0 ? kNever : sums[i] / counts[i]);
  }
  json.close_array();
}

// Means as sums of one; false when it is no list of numbers.
template <std::size_t kCount>
bool read_means(const JsonValue* list, std::array<std::int64_t, kCount>& sums,
                std::array<std::int64_t, kCount>& counts) {
  if (list == nullptr || list->kind != JsonValue::Kind::kArray || list->items.size() > kCount) {
    return false;
  }
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const JsonValue& item = list->items[i];
    if (item.kind != JsonValue::Kind::kNumber || !(item.number >= -1) || item.number > 1e12) {
      return false;
    }
    if (item.number < 0) continue;
    sums[i] = static_cast<std::int64_t>(item.number);
    counts[i] = 1;
  }
  return true;
}

bool read_number(const JsonValue& object, const char* name, double most, std::int64_t& out) {
  const JsonValue* const found = object.find(name);
  if (found == nullptr || found->kind != JsonValue::Kind::kNumber || !(found->number >= 0) ||
      found->number > most) {
    return false;
  }
  out = static_cast<std::int64_t>(found->number);
  return true;
}

bool is_text(const JsonValue& object, const char* name, std::string_view expected) {
  const JsonValue* const found = object.find(name);
  return found != nullptr && found->kind == JsonValue::Kind::kString && found->text == expected;
}

std::size_t used_blocks(const CallKind& kind) {
  return std::min<std::size_t>(Accesses::kBlocks, static_cast<std::size_t>(kind.ranks));
}

}  // namespace

void SiteRecord::add(const SiteRecord& other) {
  for (std::uint64_t SiteRecord::*const field :
       {&SiteRecord::calls, &SiteRecord::early, &SiteRecord::traced, &SiteRecord::comm_ns,
        &SiteRecord::comm_calls, &SiteRecord::init_ns, &SiteRecord::between_ns,
        &SiteRecord::unrelated_ns, &SiteRecord::related_ns, &SiteRecord::related_bytes,
        &SiteRecord::received_bytes, &SiteRecord::seen_calls, &SiteRecord::hidden_ns,
        &SiteRecord::waited_ns}) {
    this->*field += other.*field;
  }
  accesses.add(other.accesses);
}

ModelTerms SiteRecord::model() const {
  return {.comm_ns = mean(comm_ns, comm_calls),
          .init_ns = mean(init_ns, early),
          .unrelated_ns = mean(unrelated_ns, seen_calls),
          .related_bytes = mean(related_bytes, seen_calls),
          .related_ns = mean(related_ns, seen_calls),
          .bytes = mean(received_bytes, seen_calls)};
}

SiteRecord& SiteTable::at(std::uint64_t id, std::string_view place, const CallKind& kind) {
  const bool full = records_.size() >= kMost;
  if (records_.empty()) records_.reserve(kMost);  // records stay where they are
  for (SiteRecord& record : records_) {
    if (record.id == id && record.kind == kind) return record;
  }
  if (full) return records_.back();
  SiteRecord made;
  made.id = id;
  made.kind = kind;
  place = place.empty() ? std::string_view("(unknown)") : place;
  std::memcpy(made.place, place.data(), std::min(place.size(), sizeof made.place - 1));
  return records_.emplace_back(made);
}

std::vector<SiteRecord> join_records(std::span<const SiteRecord> all) {
  std::vector<SiteRecord> joined;
  for (const SiteRecord& record : all) {
    if (record.place[0] == '\0') continue;
    const auto found = std::find_if(joined.begin(), joined.end(), [&](const SiteRecord& other) {
      return same_site(other, record);
    });
    if (found == joined.end()) {
      joined.push_back(record);
    } else {
      found->add(record);
    }
  }
  std::stable_sort(joined.begin(), joined.end(),
                   [](const SiteRecord& a, const SiteRecord& b) { return a.comm_ns > b.comm_ns; });
  return joined;
}

std::string site_table(std::span<const SiteRecord> records) {
  if (records.empty()) return {};
  char line[512];
  std::snprintf(line, sizeof line,
                " calls that may overlap, ms per call and rank\n  %-12s %12s %6s %9s %8s %9s %9s "
                "%9s %9s %9s %9s  %s\n",
                "", "bytes", "ranks", "calls", "% early", "T_comm", "T_init", "T_curc", "model",
                "hidden", "waited", "place");
  std::string text = line;
  for (std::size_t i = 0; i < std::min(kMostShown, records.size()); ++i) {
    const SiteRecord& record = records[i];
    const ModelTerms terms = record.model();
    std::snprintf(
        line, sizeof line,
        "  %-12s %12lld %6d %9llu %8.0f %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f  %.*s\n",
        coll::info(record.kind.collective).name, static_cast<long long>(record.kind.bytes),
        record.kind.ranks, static_cast<unsigned long long>(record.calls),
        100 * mean(record.early, record.calls), ms(terms.comm_ns), ms(terms.init_ns),
        ms(terms.unrelated_ns), ms(overlap_ns(terms)), ms(mean(record.hidden_ns, record.early)),
        ms(mean(record.waited_ns, record.early)), static_cast<int>(sizeof record.place),
        record.place);
    text += line;
  }
  if (records.size() > kMostShown) {
    std::snprintf(line, sizeof line, "  and %zu others\n", records.size() - kMostShown);
    text += line;
  }
  return text;
}

namespace {

void write_record(JsonWriter& json, const SiteRecord& record) {
  const auto count = [&](const char* name, std::uint64_t value) { json.member(name, value); };
  json.open_object();
  json.member("place", static_cast<const char*>(record.place));
  json.member("collective", coll::info(record.kind.collective).name);
  json.member("ranks", record.kind.ranks);
  json.member("bytes", record.kind.bytes);
  count("calls", record.calls);
  count("early", record.early);
  count("traced", record.traced);
  const auto ns = [&](const char* name, double value) {
    json.member(name, static_cast<std::int64_t>(value));
  };
  const ModelTerms terms = record.model();
  ns("comm_ns", terms.comm_ns);
  ns("init_ns", terms.init_ns);
  ns("between_ns", mean(record.between_ns, record.seen_calls));
  ns("unrelated_ns", terms.unrelated_ns);
  ns("related_ns", terms.related_ns);
  ns("related_bytes", terms.related_bytes);
  ns("received_bytes", terms.bytes);
  ns("model_ns", overlap_ns(terms));
  ns("hidden_ns", mean(record.hidden_ns, record.early));
  ns("waited_ns", mean(record.waited_ns, record.early));
  const Accesses& accesses = record.accesses;
  if (accesses.any()) {
    write_means(json, "block_us", accesses.block_us, accesses.block_count,
                used_blocks(record.kind));
    write_means(json, "piece_us", accesses.piece_us, accesses.piece_count, Accesses::kPieces);
  }
  json.close_object();
}

}  // namespace

std::string site_json(std::span<const SiteRecord> records) {
  JsonWriter json;
  json.open_array();
  for (const SiteRecord& record : records) write_record(json, record);
  json.close_array();
  return json.take();
}

Program own_program() {
  // What interpreters run is the first argument that is no option.
  std::string words;
  if (const int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC); file >= 0) {
    char block[4096];
    const ssize_t got = read(file, block, sizeof block);
    if (got > 0) words.assign(block, static_cast<std::size_t>(got));
    close(file);
  }
  std::string path = "/proc/self/exe";
  char target[4096];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  Program program;
  program.name = length > 0 ? base_name(std::string(target, static_cast<std::size_t>(length)))
                            : std::string("program");
  if (program.name.starts_with("python")) {
    for (std::size_t at = words.find('\0'); at != std::string::npos && at + 1 < words.size();
         at = words.find('\0', at + 1)) {
      const std::string word = words.c_str() + at + 1;
      if (word.empty() || word[0] == '-') continue;
      path = word;
      program.name = base_name(word);
      break;
    }
  }
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    program.state = std::to_string(status.st_size) + " bytes, changed at " +
                    std::to_string(status.st_mtim.tv_sec);
  }
  for (char& letter : program.name) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '.' && letter != '-') {
      letter = '_';
    }
  }
  return program;
}

std::string trace_path(const std::string& folder, const Program& program) {
  return folder + '/' + program.name + ".json";
}

std::string trace_text(std::span<const SiteRecord> records, const Program& program) {
  JsonWriter json;
  json.open_object();
  json.member("overdrive_trace", kTraceSchema);
  json.member("version", OVERDRIVE_VERSION);
  json.member("program", program.name);
  json.member("state", program.state);
  json.key("sites");
  json.open_array();
  for (const SiteRecord& record : records) write_record(json, record);
  json.close_array();
  json.close_object();
  return json.take();
}

Orders Orders::parse(std::string_view text, const Program* program, std::string& issue) {
  Orders orders;
  JsonValue root;
  int line = 0;
  std::string reason;
  if (!coll::parse_json(text, root, line, reason)) {
    issue = "it is damaged: line " + std::to_string(line) + ": " + reason;
    return orders;
  }
  std::int64_t schema = 0;
  if (root.kind != JsonValue::Kind::kObject || !read_number(root, "overdrive_trace", 1e6, schema)) {
    issue = "it is no trace";
  } else if (schema != kTraceSchema || !is_text(root, "version", OVERDRIVE_VERSION)) {
    issue = "another version of Overdrive has written it";
  } else if (program != nullptr && (!is_text(root, "program", program->name) ||
                                    !is_text(root, "state", program->state))) {
    issue = "the program has changed since";
  }
  const JsonValue* const sites = root.find("sites");
  if (issue.empty() && (sites == nullptr || sites->kind != JsonValue::Kind::kArray)) {
    issue = "it is damaged: it has no list of sites";
  }
  if (!issue.empty()) return orders;
  for (const JsonValue& site : sites->items) {
    Known known;
    const JsonValue* const name = site.find("collective");
    std::int64_t ranks = 0;
    std::int64_t calls = 0;
    Accesses accesses;
    const bool touched = site.kind == JsonValue::Kind::kObject && site.find("block_us") != nullptr;
    if (site.kind != JsonValue::Kind::kObject || name == nullptr ||
        name->kind != JsonValue::Kind::kString ||
        !coll::find_collective(name->text, known.kind.collective) ||
        !read_number(site, "ranks", 1 << 30, ranks) || ranks < 1 ||
        !read_number(site, "bytes", 1e15, known.kind.bytes) ||
        !read_number(site, "calls", 1e15, calls) ||
        (touched &&
         (!read_means(site.find("block_us"), accesses.block_us, accesses.block_count) ||
          !read_means(site.find("piece_us"), accesses.piece_us, accesses.piece_count)))) {
      issue = "it is damaged: line " + std::to_string(site.line);
      return Orders{};
    }
    known.kind.ranks = static_cast<std::int32_t>(ranks);
    known.calls = static_cast<std::uint64_t>(calls);
    known.order = order_of(accesses, known.kind.ranks);
    if (known.order.known()) orders.known_.push_back(std::move(known));
  }
  return orders;
}

const Order* Orders::find(const CallKind& kind) const {
  const Known* best = nullptr;
  for (const Known& known : known_) {
    if (known.kind == kind && (best == nullptr || known.calls > best->calls)) best = &known;
  }
  return best == nullptr ? nullptr : &best->order;
}

std::string read_trace(const std::string& folder, std::string& note) {
  if (!config::OutputType::names_output(folder)) return {};
  const Program program = own_program();
  const std::string path = trace_path(folder, program);
  config::FileText file =
      config::read_trusted_file(path, kMostFileBytes, config::LastLink::kFollowed);
  if (!file.exists) return {};
  std::string issue = file.error;
  if (file.text) Orders::parse(*file.text, &program, issue);
  if (issue.empty()) return std::move(*file.text);
  note = "overlap: the trace " + path + " does not count: " + issue +
         "; `overlap=trace` writes a new one";
  return {};
}

std::string write_trace(const std::string& folder, std::span<const SiteRecord> records) {
  const Program program = own_program();
  const std::string path = trace_path(folder, program);
  const bool made = mkdir(folder.c_str(), 0777) == 0 || errno == EEXIST;
  const std::string error =
      made ? config::replace_file(path, trace_text(records, program)) : std::strerror(errno);
  if (error.empty()) return {};
  return "overlap: cannot write the trace " + path + ": " + error + " (setting `overlap_trace`)";
}

}  // namespace od::overlap
