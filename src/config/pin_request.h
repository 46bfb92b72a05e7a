// What the setting `pin` asks for: `compact`, `scatter`, `core`, `cache`, `numa`, `socket`, or
// `list:0-3,8`; `:force` behind it lets it overrule what the launcher was told.
//
// Read by the settings and, long before these exist, by the preloaded library, which depends on the
// C library alone: nothing here allocates.
#ifndef OVERDRIVE_CONFIG_PIN_REQUEST_H_
#define OVERDRIVE_CONFIG_PIN_REQUEST_H_

#include <cstddef>
#include <string_view>

namespace od::config {

// A list may name processors below this.
inline constexpr int kPinProcessors = 4096;

enum class PinPolicy { kNone, kCompact, kScatter, kCore, kCache, kNuma, kSocket, kList };

struct PinRequest {
  PinPolicy policy = PinPolicy::kNone;
  bool force = false;
  std::string_view list{};  // what stands behind "list:"; lives as long as the text that was read
};

// What is wrong with the text, or null; `text` may be empty, which is none.
const char* parse_pin(std::string_view text, PinRequest* request);

// How many ranks a list that was read has places for.
int pin_list_size(std::string_view list);

// The processors of the list's place `rank`, counted from 0: calls add(context, processor) for
// each. A list without '/' gives each rank one processor; with '/' between them the parts are sets.
void pin_list_place(std::string_view list, int rank, void (*add)(void* context, int processor),
                    void* context);

}  // namespace od::config

#endif  // OVERDRIVE_CONFIG_PIN_REQUEST_H_
