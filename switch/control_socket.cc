// Serves requests on the Unix socket, and makes them.
#include "switch/control_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace od::fabric {
namespace {

constexpr std::size_t kLongestRequest = 4096;

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    throw std::runtime_error("control socket '" + path + "': the path must have 1 to " +
                             std::to_string(sizeof address.sun_path - 1) + " characters");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

std::runtime_error failure(const std::string& path, const std::string& what) {
  return std::runtime_error("control socket " + path + ": " + what + ": " + std::strerror(errno));
}

// The connected socket, or -1 with errno.
int connect_to(const std::string& path) {
  const sockaddr_un address = address_of(path);
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return -1;
  if (connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return descriptor;
  }
  const int error = errno;
  close(descriptor);
  errno = error;
  return -1;
}

std::string http(std::string_view body, std::string_view type) {
  return "HTTP/1.0 200 OK\r\nContent-Type: " + std::string(type) +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

// The answer to a request of either kind.
std::string reply_to(std::string_view request, const ControlSocket::Answer& answer) {
  if (!request.starts_with("GET ")) return answer(request.substr(0, request.find('\n')));
  const std::string_view path = request.substr(4, request.find(' ', 4) - 4);
  if (path == "/metrics") return http(answer("metrics"), "text/plain; version=0.0.4");
  if (path == "/status") return http(answer("status json"), "application/json");
  return "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n";
}

bool complete(std::string_view request) {
  return request.starts_with("GET ") ? request.find("\r\n\r\n") != std::string_view::npos
                                     : request.find('\n') != std::string_view::npos;
}

}  // namespace

ControlSocket::ControlSocket(const std::string& path, int epoll) : path_(path), epoll_(epoll) {
  const sockaddr_un address = address_of(path);
  const int other = connect_to(path);
  if (other >= 0) {
    close(other);
    throw std::runtime_error("control socket " + path + ": another switch answers there");
  }
  if (errno == ECONNREFUSED) unlink(path.c_str());  // left by one that was killed
  listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener_ < 0) throw failure(path, "cannot be made");
  const mode_t before = umask(0177);
  const int bound = bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  umask(before);
  if (bound != 0 || listen(listener_, kMostClients) != 0) {
    const std::runtime_error error = failure(path, "cannot be bound");
    close(listener_);
    throw error;
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listener_;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &event);
}

ControlSocket::~ControlSocket() {
  while (!clients_.empty()) drop(clients_.size() - 1);
  close(listener_);
  unlink(path_.c_str());
}

void ControlSocket::drop(std::size_t index) {
  close(clients_[index].descriptor);
  clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(index));
}

void ControlSocket::accept_all(std::uint64_t now_ns) {
  while (true) {
    const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) return;
    if (clients_.size() >= kMostClients) {
      close(descriptor);
      continue;
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
    clients_.push_back({descriptor, now_ns, {}, {}, 0});
  }
}

void ControlSocket::read_request(Client& client, const Answer& answer) {
  char part[512];
  const ssize_t length = recv(client.descriptor, part, sizeof part, MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length > 0) client.request.append(part, static_cast<std::size_t>(length));
  if (complete(client.request)) {
    client.reply = reply_to(client.request, answer);
    epoll_event event{};
    event.events = EPOLLOUT;
    event.data.fd = client.descriptor;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, client.descriptor, &event);
  } else if (length <= 0 || client.request.size() > kLongestRequest) {
    client.since_ns = 0;  // stale
  }
}

void ControlSocket::write_reply(Client& client) {
  const ssize_t length = ::send(client.descriptor, client.reply.data() + client.sent,
                                client.reply.size() - client.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length > 0) client.sent += static_cast<std::size_t>(length);
  if (length <= 0 || client.sent == client.reply.size()) client.since_ns = 0;
}

bool ControlSocket::serve(int descriptor, std::uint64_t now_ns, const Answer& answer) {
  if (descriptor == listener_) {
    accept_all(now_ns);
    return true;
  }
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    if (clients_[i].descriptor != descriptor) continue;
    if (clients_[i].reply.empty()) {
      read_request(clients_[i], answer);
    } else {
      write_reply(clients_[i]);
    }
    if (clients_[i].since_ns == 0) drop(i);
    return true;
  }
  return false;
}

void ControlSocket::close_stale(std::uint64_t now_ns) {
  for (std::size_t i = clients_.size(); i-- > 0;) {
    if (now_ns - clients_[i].since_ns > kClientSeconds * 1'000'000'000) drop(i);
  }
}

std::string ask(const std::string& path, std::string_view request) {
  const int descriptor = connect_to(path);
  if (descriptor < 0) {
    throw std::runtime_error("no switch answers at " + path + ": " + std::strerror(errno) +
                             "; --control names the socket of a running one");
  }
  const std::string line = std::string(request) + "\n";
  ::send(descriptor, line.data(), line.size(), MSG_NOSIGNAL);
  std::string reply;
  char part[4096];
  ssize_t length = 0;
  while ((length = recv(descriptor, part, sizeof part, 0)) > 0) {
    reply.append(part, static_cast<std::size_t>(length));
  }
  close(descriptor);
  return reply;
}

}  // namespace od::fabric
