// The running switch: a fabric, the interfaces of its outside ports, and the loop that drives them.
//
// One thread, which sleeps until a frame, a due time, a request or a signal. Sleepers wake up late,
// by a few microseconds on a busy processor and by 50 on an idle one of a virtual machine; so it is
// woken earlier than a frame is due, by as much as it has overslept lately, and polls for the rest.
// With `spin` it also polls that long for more after the last frame. With realtime priority it
// never waits for a processor that an ordinary process has, as a real switch would not.
// SIGHUP reads the configuration file again, SIGTERM and SIGINT end the program.
#ifndef OVERDRIVE_SWITCH_PROGRAM_H_
#define OVERDRIVE_SWITCH_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "switch/config.h"
#include "switch/control_socket.h"
#include "switch/fabric.h"
#include "switch/packet_port.h"
#include "switch/udp_gate.h"

namespace od::fabric {

class Program : private Transmitter {
 public:
  // `path` is the file that a reload reads; empty: there is none. Throws std::runtime_error.
  Program(Config config, std::string path);
  ~Program() override;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Returns when a signal ends it.
  void run();

 private:
  bool transmit(std::uint32_t port, Frame& frame) override;
  void build();
  void apply(const Config& config);
  void watch(int descriptor);
  std::string answer(std::string_view request);
  // Returns what is wrong with the file; empty if it is in force now.
  std::string reload();

  std::size_t receive_all(std::uint64_t now_ns);
  // Handles what epoll reports, waiting for it until `until_ns`; false when the program is to end.
  bool handle_events(std::uint64_t now_ns, std::uint64_t until_ns);
  bool handle_signals();
  void adapt_margin(std::uint64_t overslept_ns);
  void look_after(std::uint64_t now_ns);

  Config config_;
  std::string path_;
  FramePool pool_;
  Fabric fabric_;
  std::vector<std::unique_ptr<PacketPort>> packet_ports_;  // by port; null: inside
  std::vector<std::unique_ptr<UdpGate>> gates_;            // by switch; null: none
  int epoll_ = -1;
  int signals_ = -1;
  std::unique_ptr<ControlSocket> control_;
  std::uint64_t started_ns_ = 0;
  std::uint64_t looked_ns_ = 0;
  std::uint64_t margin_ns_ = 10'000;  // how much earlier than needed to be woken
};

}  // namespace od::fabric

#endif  // OVERDRIVE_SWITCH_PROGRAM_H_
