// Keeps and joins what is recorded.
#include "observe/recording.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>

#include "base/json_text.h"

namespace od::observe {

struct RecordList {
  std::mutex mutex;
  Recording* first = nullptr;

  void add(Recording* record) {
    const std::lock_guard<std::mutex> lock(mutex);
    record->next_ = first;
    first = record;
  }
  void join(Recording* all) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const Recording* record = first; record != nullptr; record = record->next_) {
      all->add(*record);
    }
  }
};

namespace {

constinit RecordList records;
constinit std::atomic<const char* const*> function_names{nullptr};
std::uint64_t begin_ns = 0;  // written before function_names
thread_local Recording* own __attribute__((tls_model("initial-exec"))) = nullptr;

bool contains(std::string_view text, std::string_view word) { return text.find(word) != text.npos; }

}  // namespace

Activity activity_of(std::string_view function) {
  std::string_view name = function;
  if (name.starts_with("MPI_")) name.remove_prefix(4);
  for (const char* word : {"Wait", "Test", "Probe", "probe"}) {
    if (name.starts_with(word) || (name.size() > 1 && name.substr(1).starts_with(word))) {
      return name.starts_with("Win") ? Activity::kOneSided : Activity::kWait;
    }
  }
  for (const char* word : {"Win_", "Put", "Get_acc", "Accumulate", "Rput", "Rget", "Raccumulate",
                           "Fetch_and", "Compare_and"}) {
    if (name.starts_with(word)) return Activity::kOneSided;
  }
  if (name == "Get" || name == "Get_c") return Activity::kOneSided;
  if (contains(name, "File_") || contains(name, "Pack") || contains(name, "Type_")) {
    return Activity::kOther;
  }
  for (const char* word : {"educe", "cast", "lltoall", "llgather", "arrier", "catter", "ather",
                           "xscan", "Scan", "Iscan", "Comm_dup", "Comm_split", "Comm_create"}) {
    if (contains(name, word)) return Activity::kCollective;
  }
  if (contains(name, "send") || contains(name, "Send")) return Activity::kSend;
  if (contains(name, "recv") || contains(name, "Recv")) return Activity::kReceive;
  return Activity::kOther;
}

void TimeSlots::halve() {
  for (std::size_t i = 0; i < kSlots; ++i) {
    for (std::size_t kind = 0; kind < kActivities; ++kind) {
      ns_[i][kind] = i < kSlots / 2 ? ns_[2 * i][kind] + ns_[2 * i + 1][kind] : 0;
    }
  }
  slot_ns_ *= 2;
}

void TimeSlots::add(const TimeSlots& other) {
  while (slot_ns_ < other.slot_ns_) halve();
  const std::size_t ratio = slot_ns_ / other.slot_ns_;
  for (std::size_t i = 0; i < kSlots; ++i) {
    for (std::size_t kind = 0; kind < kActivities; ++kind) {
      ns_[i / ratio][kind] += other.ns_[i][kind];
    }
  }
}

void Recording::add(std::uint32_t function, std::uint64_t start_ns, std::uint64_t end_ns,
                    const Payload& payload) {
  // Acquire: pairs with the release in start_recording(); begin_ns was written before.
  const char* const* names = function_names.load(std::memory_order_acquire);
  static thread_local std::array<std::int8_t, 1024> activities
      __attribute__((tls_model("initial-exec"))) = {};
  Activity activity = Activity::kOther;
  if (function < activities.size()) {
    // One more than the activity; 0: not known yet.
    if (activities[function] == 0) {
      activities[function] =
          static_cast<std::int8_t>(static_cast<int>(activity_of(names[function])) + 1);
    }
    activity = static_cast<Activity>(activities[function] - 1);
  }
  if (start_ns < begin_ns) start_ns = begin_ns;
  if (end_ns < start_ns) end_ns = start_ns;
  slots_.add(activity, start_ns - begin_ns, end_ns - begin_ns);
  if (!payload.known) return;
  if (function >= sizes_.size()) sizes_.resize(function + 1);
  SizeClasses::Class& size = sizes_[function].classes[SizeClasses::class_of(payload.bytes)];
  ++size.calls;
  size.bytes += payload.bytes;
  size.ns += end_ns - start_ns;
  if (payload.peer < 0) return;
  const auto peer = static_cast<std::size_t>(payload.peer);
  if (peer >= peers_.size()) peers_.resize(peer + 1);
  ++peers_[peer].messages;
  peers_[peer].bytes += payload.bytes;
}

void Recording::add(const Recording& other) {
  if (sizes_.size() < other.sizes_.size()) sizes_.resize(other.sizes_.size());
  for (std::size_t i = 0; i < other.sizes_.size(); ++i) {
    for (std::size_t at = 0; at < SizeClasses::kClasses; ++at) {
      const SizeClasses::Class& from = other.sizes_[i].classes[at];
      SizeClasses::Class& to = sizes_[i].classes[at];
      to.calls += from.calls;
      to.bytes += from.bytes;
      to.ns += from.ns;
    }
  }
  if (peers_.size() < other.peers_.size()) peers_.resize(other.peers_.size());
  for (std::size_t i = 0; i < other.peers_.size(); ++i) {
    peers_[i].messages += other.peers_[i].messages;
    peers_[i].bytes += other.peers_[i].bytes;
  }
  slots_.add(other.slots_);
}

std::string Recording::json(const char* const* names) const {
  JsonWriter json;
  json.open_object();
  json.key("sizes");
  json.open_array();
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    for (std::size_t at = 0; at < SizeClasses::kClasses; ++at) {
      const SizeClasses::Class& size = sizes_[i].classes[at];
      if (size.calls == 0) continue;
      json.open_object();
      json.member("function", names[i]);
      json.member("below_bytes", at == 0 ? std::uint64_t{1} : std::uint64_t{1} << at);
      json.member("calls", size.calls);
      json.member("bytes", size.bytes);
      json.member("ns", size.ns);
      json.close_object();
    }
  }
  json.close_array();
  json.key("peers");
  json.open_array();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].messages == 0) continue;
    json.open_object();
    json.member("rank", static_cast<std::uint64_t>(i));
    json.member("messages", peers_[i].messages);
    json.member("bytes", peers_[i].bytes);
    json.close_object();
  }
  json.close_array();
  json.key("timeline");
  json.open_object();
  json.member("slot_ns", slots_.slot_ns());
  for (std::size_t kind = 0; kind < kActivities; ++kind) {
    const auto activity = static_cast<Activity>(kind);
    std::size_t used = TimeSlots::kSlots;
    while (used > 0 && slots_.ns(used - 1, activity) == 0) --used;
    json.key(kActivityNames[kind]);
    json.open_array();
    for (std::size_t i = 0; i < used; ++i) json.value(slots_.ns(i, activity));
    json.close_array();
  }
  json.close_object();
  json.close_object();
  return json.take();
}

void start_recording(const char* const* names, std::uint64_t now_ns) {
  begin_ns = now_ns;
  // Release: pairs with the acquires below and in Recording::add().
  function_names.store(names, std::memory_order_release);
}

void set_begin_of_record(std::uint64_t now_ns) { begin_ns = now_ns; }

bool is_recording() {
  // Acquire: pairs with the release in start_recording().
  return function_names.load(std::memory_order_acquire) != nullptr;
}

Recording* own_recording() {
  if (own == nullptr && is_recording()) {
    own = new (std::nothrow) Recording;
    if (own != nullptr) records.add(own);
  }
  return own;
}

std::string recording_json(const char* const* names) {
  Recording all;
  records.join(&all);
  return all.json(names);
}

}  // namespace od::observe
