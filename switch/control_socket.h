// The Unix socket by which a running switch is asked: one line of request, one answer, closed.
//
// Requests: "status text", "status json", "metrics", "reload", and for those who speak HTTP
// "GET /metrics" and "GET /status" (curl --unix-socket). Only the user of the switch may connect.
// Clients are served without ever waiting for one: at most kMostClients, each for kClientSeconds.
#ifndef OVERDRIVE_SWITCH_CONTROL_SOCKET_H_
#define OVERDRIVE_SWITCH_CONTROL_SOCKET_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace od::fabric {

class ControlSocket {
 public:
  static constexpr std::size_t kMostClients = 16;
  static constexpr std::uint64_t kClientSeconds = 5;

  // Throws std::runtime_error if another switch answers there or the path cannot be used. `epoll`
  // gets the descriptors, each with its number as data.
  ControlSocket(const std::string& path, int epoll);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  using Answer = std::function<std::string(std::string_view request)>;
  // Serves a descriptor that epoll reported; false if it is not one of these.
  bool serve(int descriptor, std::uint64_t now_ns, const Answer& answer);
  void close_stale(std::uint64_t now_ns);

 private:
  struct Client {
    int descriptor;
    std::uint64_t since_ns;
    std::string request;
    std::string reply;
    std::size_t sent = 0;
  };
  void accept_all(std::uint64_t now_ns);
  void read_request(Client& client, const Answer& answer);
  void write_reply(Client& client);
  void drop(std::size_t index);

  std::string path_;
  int epoll_;
  int listener_ = -1;
  std::vector<Client> clients_;
};

// Asks the switch at `path`. Throws std::runtime_error if there is none.
std::string ask(const std::string& path, std::string_view request);

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_CONTROL_SOCKET_H_
