// A C++ program: messages from vectors, futures that own requests, threads under a mutex,
// exceptions from an error handler, buffers on the stack, in static memory and on the heap.
#include <array>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "odtest.h"

namespace {

std::array<double, 5000> global_values;
thread_local std::array<int, 300> local_values;

class Pending {
 public:
  Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  ~Pending() { MPI_Wait(&request_, MPI_STATUS_IGNORE); }
  MPI_Request* get() { return &request_; }

 private:
  MPI_Request request_ = MPI_REQUEST_NULL;
};

void throwing(MPI_Comm*, int* code, ...) {
  throw std::runtime_error("error class " + std::to_string(odt_class(*code)));
}

void vectors(int peer) {
  for (std::size_t length : {0u, 1u, 100u, 10000u, 300000u}) {
    std::vector<double> out(length), in(length, -1.0);
    std::iota(out.begin(), out.end(), odt.rank * 10.0);
    {
      Pending receive, send;
      MUST(MPI_Irecv(in.data(), static_cast<int>(length), MPI_DOUBLE, peer, 1, MPI_COMM_WORLD,
                     receive.get()));
      MUST(MPI_Isend(out.data(), static_cast<int>(length), MPI_DOUBLE, peer, 1, MPI_COMM_WORLD,
                     send.get()));
    }
    for (std::size_t i = 0; i < length; i++) {
      CHECK(in[i] == peer * 10.0 + static_cast<double>(i), "element %zu is %g", i, in[i]);
      if (in[i] != peer * 10.0 + static_cast<double>(i)) break;
    }
  }
}

void storage(int peer) {
  std::array<int, 300> stack{};
  std::iota(stack.begin(), stack.end(), odt.rank);
  MUST(MPI_Sendrecv(stack.data(), 300, MPI_INT, peer, 2, local_values.data(), 300, MPI_INT, peer, 2,
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CHECK(local_values[299] == peer + 299, "thread local value %d", local_values[299]);
  std::vector<double> heap(5000, odt.rank + 0.5);
  MUST(MPI_Sendrecv(heap.data(), 5000, MPI_DOUBLE, peer, 3, global_values.data(), 5000, MPI_DOUBLE,
                    peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
  CHECK(global_values[4999] == peer + 0.5, "static value %g", global_values[4999]);
}

// Unwinding out of an MPI call must leave everything usable.
void exceptions(int peer) {
  MPI_Comm comm;
  MPI_Errhandler handler;
  MUST(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
  MUST(MPI_Comm_create_errhandler(throwing, &handler));
  MUST(MPI_Comm_set_errhandler(comm, handler));
  bool caught = false;
  std::string text(100, 'x');
  try {
    MPI_Send(text.data(), 1, MPI_CHAR, odt.size + 3, 0, comm);
  } catch (const std::runtime_error&) {
    caught = true;
  }
  CHECK(caught, "no exception arrived");
  char in[100];
  MUST(MPI_Sendrecv(text.data(), 100, MPI_CHAR, peer, 4, in, 100, MPI_CHAR, peer, 4, comm,
                    MPI_STATUS_IGNORE));
  CHECK(text == std::string(in, 100), "wrong text after an exception");
  MUST(MPI_Errhandler_free(&handler));
  MUST(MPI_Comm_free(&comm));
}

// MPI_THREAD_SERIALIZED: several threads, one in MPI at a time.
void serialized(int peer) {
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; id++) {
    threads.emplace_back([&, id] {
      for (int round = 0; round < 50; round++) {
        std::vector<int> out(1000, odt.rank * 1000 + round), in(1000);
        MPI_Request requests[2];
        {
          std::lock_guard<std::mutex> lock(mutex);
          MPI_Irecv(in.data(), 1000, MPI_INT, peer, 100 + id, MPI_COMM_WORLD, &requests[0]);
          MPI_Isend(out.data(), 1000, MPI_INT, peer, 100 + id, MPI_COMM_WORLD, &requests[1]);
        }
        for (int done = 0; !done;) {
          std::lock_guard<std::mutex> lock(mutex);
          MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
        }
        CHECK(in[999] == peer * 1000 + round, "thread %d round %d: %d", id, round, in[999]);
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  odt_start_as("cplusplus", &argc, &argv, MPI_THREAD_SERIALIZED);
  const int peer = odt.rank ^ 1;
  if (peer < odt.size) {
    vectors(peer);
    storage(peer);
    exceptions(peer);
    if (odt.provided >= MPI_THREAD_SERIALIZED) serialized(peer);
  }
  return odt_finish();
}
