// Drives a leader over UDP.
#include "innetwork/endpoint.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

namespace od::innetwork {
namespace {

constexpr std::size_t kLongestDatagram = 9000;
constexpr int kDatagramsAtOnce = 64;

std::uint64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(time.tv_nsec);
}

sockaddr_in socket_address(Address address) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_addr.s_addr = htonl(address.ip);
  made.sin_port = htons(address.port);
  return made;
}

// A socket at this address, whose own address is put there; -1 if that fails.
int open_socket(Address& address) {
  const int opened = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (opened < 0) return -1;
  // Identification 0 and "do not fragment": the ICRC covers both, so they have to be known.
  const int discover = IP_PMTUDISC_DO;
  const int room = 1 << 20;
  sockaddr_in bound = socket_address(address);
  socklen_t bytes = sizeof bound;
  if (setsockopt(opened, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof discover) != 0 ||
      bind(opened, reinterpret_cast<const sockaddr*>(&bound), sizeof bound) != 0 ||
      getsockname(opened, reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
    const int error = errno;
    close(opened);
    errno = error;
    return -1;
  }
  setsockopt(opened, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  address.port = ntohs(bound.sin_port);
  return opened;
}

// Sleeps until one of the sockets has something, or for `ns`.
void sleep_on(int one, int other, std::uint64_t ns) {
  std::array<pollfd, 2> sockets{{{one, POLLIN, 0}, {other, POLLIN, 0}}};
  const timespec time{static_cast<time_t>(ns / 1'000'000'000),
                      static_cast<long>(ns % 1'000'000'000)};
  ppoll(sockets.data(), other >= 0 ? 2 : 1, &time, nullptr);
}

}  // namespace

std::unique_ptr<Endpoint> Endpoint::open(std::uint32_t ip, std::uint16_t port, std::string& error) {
  Peer peer{{ip, port}, {ip, static_cast<std::uint16_t>(port == 0 ? 0 : port + 1)}};
  const int data = open_socket(peer.data);
  const int service = data < 0 ? -1 : open_socket(peer.service);
  const int wake = service < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    error = std::strerror(errno);
    if (service >= 0) close(service);
    if (data >= 0) close(data);
    return nullptr;
  }
  return std::unique_ptr<Endpoint>(new Endpoint(data, service, wake, peer));
}

Endpoint::Endpoint(int data, int service, int wake, Peer peer)
    : data_(data), service_(service), wake_(wake), peer_(peer), process_(getpid()) {
  // Signals of the program are for its own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Endpoint::~Endpoint() {
  if (process_ == getpid()) {
    {
      const std::lock_guard<std::mutex> hold(lock_);
      ending_ = true;
    }
    wake();
    thread_.join();
  } else {
    thread_.detach();
  }
  close(wake_);
  close(service_);
  close(data_);
}

void Endpoint::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
}

void Endpoint::send(Address to, const Packet& packet, bool service) {
  std::array<std::uint8_t, kLongestDatagram> bytes;
  const std::size_t length =
      innetwork::write(packet, service ? peer_.service : peer_.data, to, bytes);
  const sockaddr_in address = socket_address(to);
  // What cannot be sent now is lost, as anywhere on the way, and will be repeated.
  sendto(service ? service_ : data_, bytes.data(), length, MSG_DONTWAIT,
         reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

bool Endpoint::drain(int socket, Address own, std::uint64_t now_ns) {
  std::array<std::uint8_t, kLongestDatagram> bytes;
  bool any = false;
  for (int i = 0; i < kDatagramsAtOnce; ++i) {
    sockaddr_in from{};
    socklen_t from_bytes = sizeof from;
    const ssize_t length = recvfrom(socket, bytes.data(), bytes.size(), MSG_DONTWAIT,
                                    reinterpret_cast<sockaddr*>(&from), &from_bytes);
    if (length < 0) {
      if (errno == EINTR || errno == ECONNREFUSED) continue;
      break;
    }
    any = true;
    const Address sender{ntohl(from.sin_addr.s_addr), ntohs(from.sin_port)};
    const std::span<const std::uint8_t> content(bytes.data(), static_cast<std::size_t>(length));
    Packet packet;
    if (leader_ == nullptr || !check(content, sender, own) ||
        parse(content.first(content.size() - kIcrcBytes), packet) != Fault::none) {
      continue;
    }
    leader_->receive(packet, sender, now_ns);
  }
  return any;
}

// The own thread: answers other leaders, and between join() and the first operation also those
// whose answer of the root leader was lost.
void Endpoint::serve() {
  bool answering = false;
  while (true) {
    std::array<pollfd, 3> sockets{
        {{service_, POLLIN, 0}, {wake_, POLLIN, 0}, {answering ? data_ : -1, POLLIN, 0}}};
    ::poll(sockets.data(), sockets.size(), -1);
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_, &count, sizeof count);
    const std::lock_guard<std::mutex> hold(lock_);
    if (ending_) return;
    answering = answering_;
    drain(service_, peer_.service, now());
    if (answering) drain(data_, peer_.data, now());
  }
}

bool Endpoint::waiting() const {
  const Leader::State state = leader_->state();
  return state == Leader::State::joining || state == Leader::State::busy ||
         state == Leader::State::settling;
}

void Endpoint::wait() {
  std::uint64_t active_ns = now();
  while (true) {
    std::uint64_t sleep_ns = 0;
    {
      const std::lock_guard<std::mutex> hold(lock_);
      const std::uint64_t now_ns = now();
      if (drain(data_, peer_.data, now_ns)) active_ns = now_ns;
      leader_->advance(now_ns);
      if (!waiting()) return;
      if (now_ns - active_ns >= spin_ns_) {
        const std::uint64_t due_ns = leader_->next_due_ns();
        // The own thread may change the state meanwhile; that is noticed a little later.
        constexpr std::uint64_t kMostNs = 2'000'000;
        sleep_ns = due_ns > now_ns ? std::min(due_ns - now_ns, kMostNs) : 1;
      }
    }
    if (sleep_ns == 0) {
      sched_yield();
    } else {
      sleep_on(data_, -1, sleep_ns);
    }
  }
}

bool Endpoint::poll() {
  const std::lock_guard<std::mutex> hold(lock_);
  const std::uint64_t now_ns = now();
  drain(data_, peer_.data, now_ns);
  leader_->advance(now_ns);
  return !waiting();
}

bool Endpoint::join(LeaderSettings settings) {
  begin_join(std::move(settings));
  wait();
  return joined();
}

void Endpoint::begin_join(LeaderSettings settings) {
  const std::lock_guard<std::mutex> hold(lock_);
  leader_ = std::make_unique<Leader>(
      std::move(settings),
      [this](Address to, const Packet& packet, bool service) { send(to, packet, service); });
  leader_->begin(now());
}

bool Endpoint::joined() {
  const std::lock_guard<std::mutex> hold(lock_);
  if (leader_->state() != Leader::State::ready) return false;
  answering_ = true;
  wake();
  return true;
}

bool Endpoint::start(Operation operation, Type type, std::size_t count, const void* in, void* out) {
  const std::lock_guard<std::mutex> hold(lock_);
  if (leader_ == nullptr || !leader_->start(operation, type, count, in, out, now())) return false;
  answering_ = false;
  return true;
}

bool Endpoint::served() const {
  const std::lock_guard<std::mutex> hold(lock_);
  return leader_->state() == Leader::State::ready;
}

bool Endpoint::usable() const {
  const std::lock_guard<std::mutex> hold(lock_);
  // Whether an operation is under way does not matter.
  return leader_ != nullptr && leader_->state() != Leader::State::joining && !leader_->abandoned();
}

bool Endpoint::allreduce(Operation operation, Type type, std::size_t count, const void* in,
                         void* out) {
  if (!start(operation, type, count, in, out)) return false;
  wait();
  return served();
}

void Endpoint::leave() {
  const std::lock_guard<std::mutex> hold(lock_);
  if (leader_ == nullptr) return;
  leader_->leave();
}

LeaderCounters Endpoint::counters() const {
  const std::lock_guard<std::mutex> hold(lock_);
  return leader_ == nullptr ? LeaderCounters{} : leader_->counters();
}

Cause Endpoint::cause() const {
  const std::lock_guard<std::mutex> hold(lock_);
  return leader_ == nullptr ? Cause::none : leader_->cause();
}

}  // namespace od::innetwork
