// Reads and writes the text of setting values.
#include "config/settings_types.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "config/pin_request.h"

namespace od::config {
namespace {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string_view trim(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

struct Unit {
  const char* word;
  std::uint64_t factor;
};

// A non-negative decimal number (a fraction is allowed) that stands before a unit word.
// Leaves the unit word in `rest`; false if the text does not start with a number.
struct Decimal {
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;        // numerator
  std::uint64_t fraction_scale = 1;  // denominator, at most 10^9
  bool overflow = false;
};

bool read_decimal(std::string_view text, Decimal& number, std::string_view& rest) {
  std::size_t at = 0;
  while (at < text.size() && is_digit(text[at])) {
    const auto digit = static_cast<std::uint64_t>(text[at] - '0');
    if (__builtin_mul_overflow(number.whole, std::uint64_t{10}, &number.whole) ||
        __builtin_add_overflow(number.whole, digit, &number.whole)) {
      number.overflow = true;
    }
    ++at;
  }
  if (at == 0) return false;
  if (at < text.size() && text[at] == '.') {
    ++at;
    const std::size_t first = at;
    while (at < text.size() && is_digit(text[at])) {
      if (number.fraction_scale < 1'000'000'000) {  // finer digits are below any unit used here
        number.fraction = number.fraction * 10 + static_cast<std::uint64_t>(text[at] - '0');
        number.fraction_scale *= 10;
      }
      ++at;
    }
    if (at == first) return false;
  }
  rest = trim(text.substr(at));
  return true;
}

// number * factor, or false if it does not fit.
bool scale(const Decimal& number, std::uint64_t factor, std::uint64_t& value) {
  if (number.overflow) return false;
  __extension__ using Wide = unsigned __int128;
  const Wide exact =
      Wide{number.whole} * factor + Wide{number.fraction} * factor / number.fraction_scale;
  if (exact > std::numeric_limits<std::uint64_t>::max()) return false;
  value = static_cast<std::uint64_t>(exact);
  return true;
}

// Value with the largest unit that divides it.
std::string with_unit(std::uint64_t value, const Unit* units, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (value != 0 && value % units[i].factor == 0) {
      return std::to_string(value / units[i].factor) + units[i].word;
    }
  }
  return std::to_string(value);
}

bool read_rank(std::string_view text, int& rank) {
  text = trim(text);
  if (text.empty()) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return error == std::errc{} && end == text.data() + text.size() && rank >= 0;
}

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string join_words(const char* const* words, std::size_t count) {
  std::string joined;
  for (std::size_t i = 0; i < count; ++i) {
    if (!joined.empty()) joined += '|';
    joined += words[i];
  }
  return joined;
}

std::size_t find_word(std::string_view text, const char* const* words, std::size_t count,
                      std::string& reason) {
  text = trim(text);
  for (std::size_t i = 0; i < count; ++i) {
    if (equal_ignoring_case(text, words[i])) return i;
  }
  reason = "must be one of";
  for (std::size_t i = 0; i < count; ++i) {
    reason += i == 0 ? " " : ", ";
    reason += words[i];
  }
  return count;
}

bool PairList::contains(int rank_a, int rank_b) const {
  if (all) return true;
  const auto wanted = std::minmax(rank_a, rank_b);
  return std::any_of(pairs.begin(), pairs.end(), [&](const std::pair<int, int>& pair) {
    return pair.first == wanted.first && pair.second == wanted.second;
  });
}

bool BoolType::parse(std::string_view text, bool& value, std::string& reason) {
  text = trim(text);
  for (const char* word : {"1", "true", "yes", "on"}) {
    if (equal_ignoring_case(text, word)) {
      value = true;
      return true;
    }
  }
  for (const char* word : {"0", "false", "no", "off"}) {
    if (equal_ignoring_case(text, word)) {
      value = false;
      return true;
    }
  }
  reason = "must be 1, true, yes, on or 0, false, no, off";
  return false;
}

bool IntType::parse(std::string_view text, int& value, std::string& reason) {
  text = trim(text);
  int parsed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (error == std::errc::result_out_of_range) {
    reason = "is too large";
    return false;
  }
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    reason = "must be a whole number";
    return false;
  }
  value = parsed;
  return true;
}

bool SizeType::parse(std::string_view text, std::uint64_t& value, std::string& reason) {
  static constexpr Unit kUnits[] = {
      {"", 1},       {"b", 1},     {"k", kKiB},   {"kb", kKiB},  {"kib", kKiB},
      {"m", kMiB},   {"mb", kMiB}, {"mib", kMiB}, {"g", kGiB},   {"gb", kGiB},
      {"gib", kGiB}, {"t", kTiB},  {"tb", kTiB},  {"tib", kTiB},
  };
  Decimal number;
  std::string_view rest;
  if (read_decimal(trim(text), number, rest)) {
    for (const Unit& unit : kUnits) {
      if (!equal_ignoring_case(rest, unit.word)) continue;
      if (scale(number, unit.factor, value)) return true;
      reason = "is too large";
      return false;
    }
  }
  reason = "must be a number of bytes, such as 65536, 64K, 2M or 1G";
  return false;
}

std::string SizeType::format(std::uint64_t value) {
  static constexpr Unit kUnits[] = {{"T", kTiB}, {"G", kGiB}, {"M", kMiB}, {"K", kKiB}};
  return with_unit(value, kUnits, std::size(kUnits));
}

bool DurationType::parse(std::string_view text, std::uint64_t& value, std::string& reason) {
  static constexpr Unit kUnits[] = {
      {"ns", kNanosecond}, {"us", kMicrosecond}, {"ms", kMillisecond}, {"s", kSecond}};
  Decimal number;
  std::string_view rest;
  if (read_decimal(trim(text), number, rest)) {
    if (rest.empty()) {
      if (number.whole == 0 && number.fraction == 0) {
        value = 0;
        return true;
      }
      reason = "needs a unit: ns, us, ms or s, such as 50us or 30s";
      return false;
    }
    for (const Unit& unit : kUnits) {
      if (!equal_ignoring_case(rest, unit.word)) continue;
      if (scale(number, unit.factor, value)) return true;
      reason = "is too large";
      return false;
    }
  }
  reason = "must be a time with a unit (ns, us, ms or s), such as 50us or 30s, or 0";
  return false;
}

std::string DurationType::format(std::uint64_t value) {
  static constexpr Unit kUnits[] = {
      {"s", kSecond}, {"ms", kMillisecond}, {"us", kMicrosecond}, {"ns", kNanosecond}};
  return with_unit(value, kUnits, std::size(kUnits));
}

bool StringType::parse(std::string_view text, std::string& value, std::string&) {
  value.assign(text);
  return true;
}

bool OutputType::names_output(std::string_view text) {
  bool truth = false;
  std::string reason;
  return !text.empty() && !BoolType::parse(text, truth, reason);
}

bool PinType::parse(std::string_view text, std::string& value, std::string& reason) {
  PinRequest request;
  if (const char* const problem = parse_pin(text, &request)) {
    reason = problem;
    return false;
  }
  value.assign(text);
  return true;
}

bool PairsType::parse(std::string_view text, PairList& value, std::string& reason) {
  PairList list;
  text = trim(text);
  if (equal_ignoring_case(text, "all")) {
    list.all = true;
    value = std::move(list);
    return true;
  }
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view item = trim(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : trim(text.substr(comma + 1));
    const std::size_t dash = item.find('-');
    int first = 0;
    int second = 0;
    if (dash == std::string_view::npos || !read_rank(item.substr(0, dash), first) ||
        !read_rank(item.substr(dash + 1), second)) {
      reason = "must be \"all\" or pairs of ranks, such as 0-1,2-3";
      return false;
    }
    list.pairs.emplace_back(std::min(first, second), std::max(first, second));
  }
  value = std::move(list);
  return true;
}

std::string PairsType::format(const PairList& value) {
  if (value.all) return "all";
  std::string text;
  for (const auto& [first, second] : value.pairs) {
    if (!text.empty()) text += ',';
    text += std::to_string(first) + '-' + std::to_string(second);
  }
  return text;
}

}  // namespace od::config
