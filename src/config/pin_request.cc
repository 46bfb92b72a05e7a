// Reads the words and lists of the setting `pin`; by nothing that might throw, such as substr.
#include "config/pin_request.h"

namespace od::config {
namespace {

struct Word {
  std::string_view text;
  PinPolicy policy;
};
constexpr Word kWords[] = {{"none", PinPolicy::kNone},       {"compact", PinPolicy::kCompact},
                           {"scatter", PinPolicy::kScatter}, {"core", PinPolicy::kCore},
                           {"cache", PinPolicy::kCache},     {"numa", PinPolicy::kNuma},
                           {"socket", PinPolicy::kSocket}};

bool equal(std::string_view text, std::string_view word) {
  if (text.size() != word.size()) return false;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c) != word[i]) return false;
  }
  return true;
}

// Takes a number below kPinProcessors from the front; -1: there is none.
int take_number(std::string_view* text) {
  int value = 0;
  std::size_t digits = 0;
  for (; digits < text->size(); ++digits) {
    const char c = (*text)[digits];
    if (c < '0' || c > '9') break;
    value = value * 10 + (c - '0');
    if (value >= kPinProcessors) return -1;
  }
  text->remove_prefix(digits);
  return digits == 0 ? -1 : value;
}

struct Range {
  int first = -1;
  int last = -1;
  bool ends_set = false;  // the separator behind it is '/'
};

// Takes "4" or "0-3" and the separator behind it; false: it is neither.
bool take_range(std::string_view* list, Range* range) {
  *range = {};
  range->first = range->last = take_number(list);
  if (range->first < 0) return false;
  if (!list->empty() && list->front() == '-') {
    list->remove_prefix(1);
    range->last = take_number(list);
    if (range->last < range->first) return false;
  }
  if (list->empty()) return true;
  const char separator = list->front();
  if (separator != ',' && separator != '/') return false;
  range->ends_set = separator == '/';
  list->remove_prefix(1);
  // A comma joins two; a slash may also stand at the end, for a list of one set.
  return !list->empty() || range->ends_set;
}

bool has_sets(std::string_view list) { return list.find('/') != list.npos; }

}  // namespace

const char* parse_pin(std::string_view text, PinRequest* request) {
  *request = {};
  constexpr std::string_view kForce = ":force";
  if (text.size() >= kForce.size() &&
      equal({text.data() + text.size() - kForce.size(), kForce.size()}, kForce)) {
    request->force = true;
    text.remove_suffix(kForce.size());
  }
  if (text.empty() && !request->force) return nullptr;
  for (const Word& word : kWords) {
    if (!equal(text, word.text)) continue;
    request->policy = word.policy;
    return nullptr;
  }
  constexpr std::string_view kList = "list:";
  if (text.size() < kList.size() || !equal({text.data(), kList.size()}, kList)) {
    return "must be none, compact, scatter, core, cache, numa, socket or list:PROCESSORS";
  }
  const std::string_view list(text.data() + kList.size(), text.size() - kList.size());
  if (list.empty()) return "must name processors behind list:";
  Range range;
  for (std::string_view rest = list; !rest.empty();) {
    if (!take_range(&rest, &range)) {
      return "must be a list of processors, such as list:0-3,8 (one for each rank) or list:0-3/4-7 "
             "(a set for each)";
    }
  }
  request->policy = PinPolicy::kList;
  request->list = list;
  return nullptr;
}

int pin_list_size(std::string_view list) {
  const bool sets = has_sets(list);
  int size = 0;
  Range range;
  while (!list.empty() && take_range(&list, &range)) {
    if (!sets) {
      size += range.last - range.first + 1;
    } else if (range.ends_set || list.empty()) {
      ++size;
    }
  }
  return size;
}

void pin_list_place(std::string_view list, int rank, void (*add)(void* context, int processor),
                    void* context) {
  const bool sets = has_sets(list);
  int place = 0;
  Range range;
  while (!list.empty() && take_range(&list, &range)) {
    for (int processor = range.first; processor <= range.last; ++processor) {
      if (place == rank) add(context, processor);
      if (!sets) ++place;
    }
    if (sets && range.ends_set) ++place;
  }
}

}  // namespace od::config
