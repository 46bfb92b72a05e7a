// Creation of error handlers: the host gets a function of ours that calls the program's.
//
// The host calls an error handler from within itself, while the thread is marked as being in a host
// call (host_call_scope.h). But the handler is the program's: what it sends is ours to carry, and
// it may never come back, by longjmp or by a C++ exception. So the mark is lifted before it is
// called, and set again if it returns.
//
// A handler gets no pointer that could lead to the program's function, so there is a fixed number
// of functions, each with a place where the one that it stands for is remembered. Places are never
// given back: a handler lives as long as anything it is attached to.
#include <atomic>
#include <cstddef>
#include <utility>

#include "face/state.h"

namespace od::face {
namespace {

// Of communicators, windows, files and sessions alike: pointers to the handle and to the code.
// Hosts may pass more, which is handed on.
using Handler = void(void* handle, int* code, ...);

// Far more than programs and their libraries define; others keep the mark.
constexpr std::size_t kMostHandlers = 256;
constinit std::atomic<Handler*> handlers[kMostHandlers];

// Not marked as a host call while it lives. Nothing is undone if the handler does not return: the
// thread is then outside of the host.
void call_unmarked(Handler* handler, void* handle, int* code, void* const (&more)[4]) {
  const int depth = std::exchange(host_call_depth, 0);
  const bool window = std::exchange(host_window_open, false);
  if (window) finish_blocking();
  handler(handle, code, more[0], more[1], more[2], more[3]);
  if (window) host_window_open = prepare_to_block();
  host_call_depth = depth;
}

template <std::size_t kPlace>
void stand_in(void* handle, int* code, void* a, void* b, void* c, void* d) {
  // Acquire: pairs with the release in wrapped().
  call_unmarked(handlers[kPlace].load(std::memory_order_acquire), handle, code, {a, b, c, d});
}

using StandIn = void(void*, int*, void*, void*, void*, void*);
template <std::size_t... kPlaces>
StandIn* stand_in_at(std::size_t place, std::index_sequence<kPlaces...>) {
  static constexpr StandIn* kAll[] = {stand_in<kPlaces>...};
  return kAll[place];
}

// What the host gets for the program's function.
void* wrapped(void* function) {
  if (function == nullptr) return nullptr;
  auto* const handler = reinterpret_cast<Handler*>(function);
  for (std::size_t place = 0; place < kMostHandlers; ++place) {
    Handler* found = handlers[place].load(std::memory_order_acquire);
    // Release: pairs with stand_in().
    if (found == nullptr &&
        handlers[place].compare_exchange_strong(found, handler, std::memory_order_release,
                                                std::memory_order_acquire)) {
      found = handler;
    }
    if (found == handler) {
      return reinterpret_cast<void*>(stand_in_at(place, std::make_index_sequence<kMostHandlers>{}));
    }
  }
  return function;
}

}  // namespace
}  // namespace od::face

#define OD_CREATE_ERRHANDLER(name)                                 \
  int od_MPI_##name(void* function, MPI_Errhandler* errhandler) {  \
    return OD_HOST(name)(od::face::wrapped(function), errhandler); \
  }

OD_CREATE_ERRHANDLER(Comm_create_errhandler)
OD_CREATE_ERRHANDLER(Errhandler_create)
OD_CREATE_ERRHANDLER(File_create_errhandler)
OD_CREATE_ERRHANDLER(Session_create_errhandler)
OD_CREATE_ERRHANDLER(Win_create_errhandler)
