// Functions of the program that the host calls from within itself: error handlers, the copy and
// delete functions of attributes, and those of generalized requests. Where they are created the
// host gets a function of ours that calls the program's.
//
// The host calls them while the thread is marked as being in a host call (host_call_scope.h). But
// they are the program's: what they send is ours to carry, and error handlers may never come back,
// by longjmp or by a C++ exception. So the mark is lifted before the program's function is called,
// and set again if it returns. What the host creates for its own use keeps the mark. Error handlers
// are not called where the engine itself is told of the error (engine_asks_host).
//
// Such a function gets nothing that could lead to the program's, so there is a fixed number of
// ours, each with a place where the one that it stands for is remembered. They hand on what they
// get, whatever it is: the same function pointer may be called by C's or by Fortran's convention.
// Places are never given back: a function lives as long as anything it is attached to.
#include "face/program_functions.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "face/state.h"

namespace od::face {
namespace {

// All of them take integers and addresses, at most seven (copying an attribute, in Fortran), and
// return an int or nothing.
using Function = long(void* first, ...);

// Far more than programs and their libraries define; others keep the mark.
constexpr std::size_t kMostFunctions = 256;
constinit std::atomic<Function*> functions[kMostFunctions];

enum class Kind { plain, error_handler };

// The standard ABI's predefined functions are small numbers.
constexpr std::uintptr_t kLeastAddress = 4096;

// Not marked as a host call while it lives. Nothing is undone if the program's function does not
// return: the thread is then outside of the host.
template <typename Call>
long unmarked(Call&& call) {
  const int depth = std::exchange(host_call_depth, 0);
  const bool window = std::exchange(host_window_open, false);
  if (window) finish_blocking();
  const long result = call();
  if (window) host_window_open = prepare_to_block();
  host_call_depth = depth;
  return result;
}

template <Kind kKind, std::size_t kPlace>
long stand_in(void* a, void* b, void* c, void* d, void* e, void* f, void* g) {
  if (kKind == Kind::error_handler && engine_asks_host) return 0;
  return unmarked([&] {
    // Acquire: pairs with the release in wrapped().
    return functions[kPlace].load(std::memory_order_acquire)(a, b, c, d, e, f, g);
  });
}

using StandIn = long(void*, void*, void*, void*, void*, void*, void*);
template <Kind kKind, std::size_t... kPlaces>
StandIn* stand_in_at(std::size_t place, std::index_sequence<kPlaces...>) {
  static constexpr StandIn* kAll[] = {stand_in<kKind, kPlaces>...};
  return kAll[place];
}

// What the host gets for the program's function.
template <Kind kKind = Kind::plain>
void* wrapped(void* wanted) {
  if (InHostCall() || reinterpret_cast<std::uintptr_t>(wanted) < kLeastAddress) return wanted;
  auto* const function = reinterpret_cast<Function*>(wanted);
  for (std::size_t place = 0; place < kMostFunctions; ++place) {
    Function* found = functions[place].load(std::memory_order_acquire);
    // Release: pairs with stand_in().
    if (found == nullptr &&
        functions[place].compare_exchange_strong(found, function, std::memory_order_release,
                                                 std::memory_order_acquire)) {
      found = function;
    }
    if (found == function) {
      return reinterpret_cast<void*>(
          stand_in_at<kKind>(place, std::make_index_sequence<kMostFunctions>{}));
    }
  }
  return wanted;
}

// --- the end -------------------------------------------------------------------------------------

void (*at_the_end)() = nullptr;

int no_copy(MPI_Comm, int, void*, void*, void*, int* flag) {
  *flag = 0;
  return MPI_SUCCESS;
}

int self_goes(MPI_Comm, int, void*, void*) {
  unmarked([] {
    at_the_end();
    return 0L;
  });
  return MPI_SUCCESS;
}

}  // namespace

bool call_at_end(void (*function)()) {
  HostCallScope scope(HostCallKind::kLocal);
  int keyval = 0;
  at_the_end = function;
  return OD_HOST(Comm_create_keyval)(reinterpret_cast<void*>(no_copy),
                                     reinterpret_cast<void*>(self_goes), &keyval,
                                     nullptr) == MPI_SUCCESS &&
         OD_HOST(Comm_set_attr)(abi::comm_self(), keyval, nullptr) == MPI_SUCCESS;
}

}  // namespace od::face

using od::face::Kind;
using od::face::wrapped;

#define OD_CREATE_ERRHANDLER(name)                                            \
  int od_MPI_##name(void* function, MPI_Errhandler* errhandler) {             \
    return OD_HOST(name)(wrapped<Kind::error_handler>(function), errhandler); \
  }

OD_CREATE_ERRHANDLER(Comm_create_errhandler)
OD_CREATE_ERRHANDLER(Errhandler_create)
OD_CREATE_ERRHANDLER(File_create_errhandler)
OD_CREATE_ERRHANDLER(Session_create_errhandler)
OD_CREATE_ERRHANDLER(Win_create_errhandler)

#define OD_CREATE_KEYVAL(name)                                                        \
  int od_MPI_##name(void* copy_fn, void* delete_fn, int* keyval, void* extra_state) { \
    return OD_HOST(name)(wrapped(copy_fn), wrapped(delete_fn), keyval, extra_state);  \
  }

OD_CREATE_KEYVAL(Comm_create_keyval)
OD_CREATE_KEYVAL(Keyval_create)
OD_CREATE_KEYVAL(Type_create_keyval)
OD_CREATE_KEYVAL(Win_create_keyval)

int od_MPI_Grequest_start(void* query_fn, void* free_fn, void* cancel_fn, void* extra_state,
                          MPI_Request* request) {
  return OD_HOST(Grequest_start)(wrapped(query_fn), wrapped(free_fn), wrapped(cancel_fn),
                                 extra_state, request);
}
