// Drives the fabric.
#include "switch/program.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <utility>

#include "switch/compute.h"
#include "switch/status.h"

namespace od::fabric {
namespace {

constexpr std::size_t kFramesPerTurn = 64;  // of one port, before the others get their turn
constexpr std::uint64_t kLeastMarginNs = 2'000;
constexpr std::uint64_t kMostMarginNs = 60'000;
constexpr std::uint64_t kLongestSleepNs = 1'000'000'000;
constexpr std::uint64_t kLookAfterNs = 1'000'000'000;
// While it polls, sockets and signals are looked at once in so many rounds or frames.
constexpr std::uint32_t kRoundsPerLook = 256;

std::uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// glibc has the call's name from 2.35 on, kernels have the call from 5.11 on; others wait by ppoll.
int wait_for_events(int epoll, epoll_event* events, int room, const timespec& timeout) {
#ifdef SYS_epoll_pwait2
  const long count =
      syscall(SYS_epoll_pwait2, epoll, events, room, &timeout, nullptr, sizeof(std::uint64_t));
  if (count >= 0 || errno == EINTR) return static_cast<int>(count);
#endif
  pollfd one{.fd = epoll, .events = POLLIN, .revents = 0};
  if (ppoll(&one, 1, &timeout, nullptr) <= 0) return 0;
  return epoll_wait(epoll, events, room, 0);
}

}  // namespace

Program::Program(Config config, std::string path)
    : config_(std::move(config)),
      path_(std::move(path)),
      pool_(config_.memory_bytes),
      fabric_(pool_, *this) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGHUP, SIGTERM, SIGINT}) sigaddset(&handled, number);
  sigprocmask(SIG_BLOCK, &handled, nullptr);
  signals_ = signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC);
  if (epoll_ < 0 || signals_ < 0) {
    throw std::runtime_error(std::string("no event queue: ") + std::strerror(errno));
  }
  prctl(PR_SET_TIMERSLACK, 1ul);
  if (config_.realtime) {
    sched_param lowest{};
    lowest.sched_priority = sched_get_priority_min(SCHED_FIFO);
    // Without the right to it, latencies are kept as well as the other processes permit.
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest) != 0) {
      std::fprintf(stderr, "overdrive-switch: no realtime priority: %s\n", std::strerror(errno));
    }
  }
  watch(signals_);
  if (!config_.control.empty()) control_ = std::make_unique<ControlSocket>(config_.control, epoll_);
  build();
  started_ns_ = monotonic_ns();
}

Program::~Program() {
  packet_ports_.clear();
  control_.reset();
  if (signals_ >= 0) close(signals_);
  if (epoll_ >= 0) close(epoll_);
}

void Program::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
}

void Program::build() {
  for (const SwitchConfig& own : config_.switches) {
    const std::uint32_t number = fabric_.add_switch(own.name, own.latency_ns);
    if (own.computes) {
      fabric_.switches()[number].compute = std::make_unique<Compute>(fabric_, number, own.compute);
    }
    for (const PortConfig& port : own.ports) {
      fabric_.add_port(number, port.interface, config_.seed, port.only_in_network, port.spine);
      packet_ports_.push_back(std::make_unique<PacketPort>(port.interface));
      watch(packet_ports_.back()->descriptor());
    }
  }
  for (const LinkConfig& link : config_.links) {
    const auto number = [this](const std::string& name) {
      const auto found = std::ranges::find(config_.switches, name, &SwitchConfig::name);
      return static_cast<std::uint32_t>(found - config_.switches.begin());
    };
    fabric_.connect(number(link.one), number(link.other), config_.seed, link.only_in_network);
  }
  packet_ports_.resize(fabric_.ports().size());
  for (std::uint32_t i = 0; i < config_.switches.size(); ++i) {
    const SwitchConfig& own = config_.switches[i];
    gates_.push_back(own.udp.empty() ? nullptr
                                     : std::make_unique<UdpGate>(own.udp, fabric_, i, config_.seed,
                                                                 own.udp_link));
    if (gates_.back()) watch(gates_.back()->descriptor());
  }
  apply(config_);
}

// Gives the fabric the values of a configuration of the same structure.
void Program::apply(const Config& config) {
  std::size_t port = 0;
  for (std::size_t i = 0; i < config.switches.size(); ++i) {
    fabric_.switches()[i].latency_ns = config.switches[i].latency_ns;
    if (gates_[i]) gates_[i]->set_link(config.switches[i].udp_link);
    for (const PortConfig& own : config.switches[i].ports) {
      fabric_.ports()[port++].link.set(own.link);
    }
  }
  for (const LinkConfig& link : config.links) {
    fabric_.ports()[port++].link.set(link.link);
    fabric_.ports()[port++].link.set(link.link);
  }
  pool_.set_limit_bytes(config.memory_bytes);
}

std::string Program::reload() {
  if (path_.empty()) return "the switch was started without a configuration file";
  try {
    Config wanted = read_config_file(path_);
    // What the command line has set stays.
    if (wanted.control.empty()) wanted.control = config_.control;
    const std::string difference = fixed_difference(config_, wanted);
    if (!difference.empty()) return path_ + ": " + difference + " can only be changed by a restart";
    config_ = std::move(wanted);
    apply(config_);
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

bool Program::transmit(std::uint32_t port, Frame& frame) {
  if (port >= packet_ports_.size() || !packet_ports_[port]) {
    UdpGate* const gate = gates_[fabric_.ports()[port].owner].get();
    return gate != nullptr && gate->owns(port) && gate->send(port, frame);
  }
  return packet_ports_[port]->send(frame);
}

std::string Program::answer(std::string_view request) {
  const std::uint64_t uptime_ns = monotonic_ns() - started_ns_;
  if (request == "status text") return status_text(fabric_, uptime_ns);
  if (request == "status json") return status_json(fabric_, uptime_ns);
  if (request == "metrics") return status_metrics(fabric_, uptime_ns);
  if (request == "reload") {
    const std::string fault = reload();
    return fault.empty() ? "ok\n" : "error: " + fault + "\n";
  }
  return "error: unknown request\n";
}

bool Program::handle_signals() {
  signalfd_siginfo information{};
  while (read(signals_, &information, sizeof information) == sizeof information) {
    if (information.ssi_signo != SIGHUP) return false;
    const std::string fault = reload();
    std::fprintf(
        stderr, "overdrive-switch: %s\n",
        fault.empty() ? "configuration read again" : ("nothing is changed: " + fault).c_str());
  }
  return true;
}

bool Program::handle_events(std::uint64_t now_ns, std::uint64_t until_ns) {
  epoll_event events[32];
  timespec timeout{};
  if (until_ns > now_ns) {
    const std::uint64_t ns = std::min(until_ns - now_ns, kLongestSleepNs);
    timeout.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  }
  const int count = wait_for_events(epoll_, events, 32, timeout);
  const std::uint64_t woken_ns = monotonic_ns();
  if (count == 0 && until_ns > now_ns && until_ns - now_ns < kLongestSleepNs) {
    adapt_margin(woken_ns - std::min(woken_ns, until_ns));
  }
  for (int i = 0; i < count; ++i) {
    const int descriptor = events[i].data.fd;
    if (descriptor == signals_) {
      if (!handle_signals()) return false;
    } else if (control_) {
      control_->serve(descriptor, woken_ns,
                      [this](std::string_view request) { return answer(request); });
    }
  }
  return true;
}

// Follows what is overslept: at once when it is more, slowly when it is less.
void Program::adapt_margin(std::uint64_t overslept_ns) {
  const std::uint64_t wanted_ns = std::clamp(overslept_ns, kLeastMarginNs, kMostMarginNs);
  if (wanted_ns > margin_ns_) {
    margin_ns_ = wanted_ns;
  } else {
    margin_ns_ -= (margin_ns_ - wanted_ns) / 16;
  }
}

std::size_t Program::receive_all(std::uint64_t now_ns) {
  std::size_t count = 0;
  for (std::uint32_t number = 0; number < packet_ports_.size(); ++number) {
    if (!packet_ports_[number]) continue;
    count +=
        packet_ports_[number]->receive(pool_, kFramesPerTurn, [&](PacketPort::Received& received) {
          if (!received.frame) {
            const Drop cause = received.oversized ? Drop::oversized : Drop::no_memory;
            return fabric_.count_drop(number, cause);
          }
          // Frames that waited while another process had the processor count from their arrival.
          const std::uint64_t arrival_ns = now_ns > received.age_ns ? now_ns - received.age_ns : 0;
          fabric_.receive(number, std::move(received.frame), arrival_ns, now_ns);
        });
  }
  for (const auto& gate : gates_) {
    if (gate) count += gate->receive(kFramesPerTurn, now_ns);
  }
  return count;
}

// What has to be done once a second.
void Program::look_after(std::uint64_t now_ns) {
  if (now_ns - looked_ns_ < kLookAfterNs) return;
  looked_ns_ = now_ns;
  if (control_) control_->close_stale(now_ns);
  for (std::uint32_t number = 0; number < packet_ports_.size(); ++number) {
    if (!packet_ports_[number]) continue;
    auto& drops = fabric_.ports()[number].counters.drops;
    drops[static_cast<std::size_t>(Drop::queue_full)] += packet_ports_[number]->take_ring_drops();
  }
}

void Program::run() {
  std::uint64_t active_ns = monotonic_ns();
  std::uint32_t rounds = 0;
  while (true) {
    std::uint64_t now_ns = monotonic_ns();
    std::size_t work = receive_all(now_ns);
    if (work > 0) now_ns = monotonic_ns();
    work += fabric_.advance(now_ns);
    look_after(now_ns);
    if (work > 0) active_ns = now_ns;
    if (++rounds % kRoundsPerLook == 0 && !handle_events(now_ns, now_ns)) return;
    if (work > 0) continue;
    const std::uint64_t due_ns = fabric_.next_due_ns();
    const std::uint64_t until_ns = due_ns > margin_ns_ ? due_ns - margin_ns_ : 0;
    if (now_ns - active_ns < config_.spin_ns || until_ns <= now_ns) {
      sched_yield();
    } else if (!handle_events(now_ns, until_ns)) {
      return;
    }
  }
}

}  // namespace od::fabric
