// The value types a setting can have: how its text is read, checked and written.
//
// Every type is a tag struct with
//   Value        what Settings stores
//   Bound        what the table gives as minimum and maximum (a length for strings and lists)
//   kTypeName    the word the manual uses
//   parse()      text -> value; false and a reason a user can act on if it is not one
//   format()     value -> text that parse() reads back to the same value
//   in_range()   value within [min, max]
// Nothing here throws except std::bad_alloc, and nothing runs before main().
#ifndef OVERDRIVE_CONFIG_SETTINGS_TYPES_H_
#define OVERDRIVE_CONFIG_SETTINGS_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace od::config {

inline constexpr std::uint64_t kKiB = 1024;
inline constexpr std::uint64_t kMiB = 1024 * kKiB;
inline constexpr std::uint64_t kGiB = 1024 * kMiB;
inline constexpr std::uint64_t kTiB = 1024 * kGiB;

inline constexpr std::uint64_t kNanosecond = 1;
inline constexpr std::uint64_t kMicrosecond = 1000 * kNanosecond;
inline constexpr std::uint64_t kMillisecond = 1000 * kMicrosecond;
inline constexpr std::uint64_t kSecond = 1000 * kMillisecond;

// How a rank that has nothing to do waits.
enum class WaitMode : int { kAuto, kSpin, kYield, kSleep };

// Which stores carry payload into memory that another core reads next.
enum class CopyMode : int { kAuto, kOrdinary, kNontemporal };

// Which of the program's own memory local ranks may read and write directly.
enum class ReachMode : int { kOff, kHeap, kStatic, kAll };

// Huge pages for large blocks of reachable memory.
enum class ReachHuge : int { kAuto, kOff, kEager };

// Whether buffers outside of reachable memory are attached through XPMEM.
enum class XpmemMode : int { kAuto, kOff };

// Which way large messages take (p2p/copy_plan.h).
enum class CopyPath : int { kAuto, kCells, kPull, kPush, kCooperative, kKernel };

// How long reductions are divided among the ranks of a node (coll/shm/tuning.h).
enum class ReductionDriver : int { kGeneric, kSegmented, kGrouped };

// Where collectives are measured against the host's (coll/run/trial.h).
enum class LearnMode : int { kOff, kNodes, kOn };

// Who makes non-blocking collectives between nodes go on.
enum class ProgressMode : int { kOff, kCalls, kAgent };

// On which communicators collectives among the neighbours of a topology are Overdrive's.
enum class NeighbourMode : int { kOff, kNode, kAll };

// Which blocking collectives go on after their call (engine/overlap.h).
enum class OverlapMode : int { kOff, kOn, kTrace, kAuto };

// The words of an enumeration, in the order of its values.
template <class Enum>
struct ChoiceWords;

template <>
struct ChoiceWords<WaitMode> {
  static constexpr const char* kWords[] = {"auto", "spin", "yield", "sleep"};
};

template <>
struct ChoiceWords<CopyMode> {
  static constexpr const char* kWords[] = {"auto", "ordinary", "nontemporal"};
};

template <>
struct ChoiceWords<ReachMode> {
  static constexpr const char* kWords[] = {"off", "heap", "static", "all"};
};

template <>
struct ChoiceWords<ReachHuge> {
  static constexpr const char* kWords[] = {"auto", "off", "eager"};
};

template <>
struct ChoiceWords<XpmemMode> {
  static constexpr const char* kWords[] = {"auto", "off"};
};

template <>
struct ChoiceWords<ProgressMode> {
  static constexpr const char* kWords[] = {"off", "calls", "agent"};
};

template <>
struct ChoiceWords<NeighbourMode> {
  static constexpr const char* kWords[] = {"off", "node", "all"};
};

template <>
struct ChoiceWords<LearnMode> {
  static constexpr const char* kWords[] = {"off", "nodes", "on"};
};

template <>
struct ChoiceWords<OverlapMode> {
  static constexpr const char* kWords[] = {"off", "on", "trace", "auto"};
};

template <>
struct ChoiceWords<ReductionDriver> {
  static constexpr const char* kWords[] = {"generic", "segmented", "grouped"};
};

template <>
struct ChoiceWords<CopyPath> {
  static constexpr const char* kWords[] = {"auto", "cells",       "pull",
                                           "push", "cooperative", "kernel"};
};

// Unordered pairs of world ranks, or every pair.
struct PairList {
  bool all = false;
  std::vector<std::pair<int, int>> pairs;  // each with first <= second

  bool contains(int rank_a, int rank_b) const;
  bool empty() const { return !all && pairs.empty(); }
  bool operator==(const PairList&) const = default;
};

struct BoolType {
  using Value = bool;
  using Bound = bool;
  static constexpr const char* kTypeName = "bool";
  static bool parse(std::string_view text, Value& value, std::string& reason);
  static std::string format(Value value) { return value ? "true" : "false"; }
  static std::string format_bound(Bound bound) { return format(bound); }
  static bool in_range(Value, Bound, Bound) { return true; }
};

struct IntType {
  using Value = int;
  using Bound = int;
  static constexpr const char* kTypeName = "int";
  static bool parse(std::string_view text, Value& value, std::string& reason);
  static std::string format(Value value) { return std::to_string(value); }
  static std::string format_bound(Bound bound) { return format(bound); }
  static bool in_range(Value value, Bound min, Bound max) { return min <= value && value <= max; }
};

// Bytes; the text may end in K, M, G or T (powers of 1024), optionally followed by B or iB.
struct SizeType {
  using Value = std::uint64_t;
  using Bound = std::uint64_t;
  static constexpr const char* kTypeName = "size";
  static bool parse(std::string_view text, Value& value, std::string& reason);
  static std::string format(Value value);
  static std::string format_bound(Bound bound) { return format(bound); }
  static bool in_range(Value value, Bound min, Bound max) { return min <= value && value <= max; }
};

// Nanoseconds; the text must end in ns, us, ms or s unless it is 0.
struct DurationType {
  using Value = std::uint64_t;
  using Bound = std::uint64_t;
  static constexpr const char* kTypeName = "duration";
  static bool parse(std::string_view text, Value& value, std::string& reason);
  static std::string format(Value value);
  static std::string format_bound(Bound bound) { return format(bound); }
  static bool in_range(Value value, Bound min, Bound max) { return min <= value && value <= max; }
};

// Free text; the bounds are lengths in bytes.
struct StringType {
  using Value = std::string;
  using Bound = std::uint64_t;
  static constexpr const char* kTypeName = "string";
  static bool parse(std::string_view text, Value& value, std::string& reason);
  static std::string format(const Value& value) { return value; }
  static std::string format_bound(Bound bound) { return std::to_string(bound) + " characters"; }
  static bool in_range(const Value& value, Bound min, Bound max) {
    return min <= value.size() && value.size() <= max;
  }
};

// The path of a file to write; a truth word is none.
struct OutputType : StringType {
  static bool names_output(std::string_view text);
};

// Where ranks are pinned (config/pin_request.h).
struct PinType : StringType {
  static constexpr const char* kTypeName = "placement";
  static bool parse(std::string_view text, Value& value, std::string& reason);
};

// "0-1,2-3", "all" or nothing; the bounds are numbers of pairs.
struct PairsType {
  using Value = PairList;
  using Bound = std::uint64_t;
  static constexpr const char* kTypeName = "pairs";
  static bool parse(std::string_view text, Value& value, std::string& reason);
  static std::string format(const Value& value);
  static std::string format_bound(Bound bound) { return std::to_string(bound) + " pairs"; }
  static bool in_range(const Value& value, Bound min, Bound max) {
    return min <= value.pairs.size() && value.pairs.size() <= max;
  }
};

// True if the two texts are equal when the case of ASCII letters is ignored.
bool equal_ignoring_case(std::string_view a, std::string_view b);

// Index of `text` in `words` (case ignored), or `count` with a reason that lists the words.
// The words, separated by '|'.
std::string join_words(const char* const* words, std::size_t count);
std::size_t find_word(std::string_view text, const char* const* words, std::size_t count,
                      std::string& reason);

template <class Enum>
struct ChoiceType {
  using Value = Enum;
  using Bound = Enum;
  static constexpr const char* kTypeName = "choice";
  static constexpr std::size_t kCount = std::size(ChoiceWords<Enum>::kWords);
  static std::string words() { return join_words(ChoiceWords<Enum>::kWords, kCount); }

  static bool parse(std::string_view text, Value& value, std::string& reason) {
    const std::size_t index = find_word(text, ChoiceWords<Enum>::kWords, kCount, reason);
    if (index == kCount) return false;
    value = static_cast<Enum>(index);
    return true;
  }
  static std::string format(Value value) {
    return ChoiceWords<Enum>::kWords[static_cast<std::size_t>(value)];
  }
  static std::string format_bound(Bound bound) { return format(bound); }
  static bool in_range(Value value, Bound min, Bound max) { return min <= value && value <= max; }
};

using WaitChoice = ChoiceType<WaitMode>;
using CopyChoice = ChoiceType<CopyMode>;
using ReachChoice = ChoiceType<ReachMode>;
using ReachHugeChoice = ChoiceType<ReachHuge>;
using XpmemChoice = ChoiceType<XpmemMode>;
using PathChoice = ChoiceType<CopyPath>;
using DriverChoice = ChoiceType<ReductionDriver>;
using LearnChoice = ChoiceType<LearnMode>;
using ProgressChoice = ChoiceType<ProgressMode>;
using NeighbourChoice = ChoiceType<NeighbourMode>;
using OverlapChoice = ChoiceType<OverlapMode>;

// True if a setting of this type with that text names a file to write.
template <class Type>
bool names_output(std::string_view text) {
  if constexpr (requires { Type::names_output(text); }) {
    return Type::names_output(text);
  } else {
    return false;
  }
}

// The words a setting of this type accepts, separated by '|'; empty for types without words.
template <class Type>
std::string choice_words() {
  if constexpr (requires { Type::words(); }) {
    return Type::words();
  } else {
    return {};
  }
}

}  // namespace od::config

#endif  // OVERDRIVE_CONFIG_SETTINGS_TYPES_H_
