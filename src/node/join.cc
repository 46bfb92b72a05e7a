// How a node is joined: two exchanges over the job, and a hand-over of descriptors between them.
//
//   1. every rank makes an empty memfd and a listening socket and identifies itself to all
//   2. ranks with equal keys are candidates; all plan the same layout; each makes its region
//   3. descriptors are handed over through sockets; what did not arrive is opened through /proc
//   4. each region is mapped and its header compared with its owner's identity
//   5. every rank reports whom it could not map; all remove the same candidates
// Every step can fail without harm: the rank then has nobody to share with and says why.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/clock.h"
#include "node/agreement.h"
#include "node/crowding.h"
#include "node/descriptor_limit.h"
#include "node/handover.h"
#include "node/identity.h"
#include "node/node.h"
#include "node/region.h"
#include "node/separation.h"

namespace od::node {
namespace {

// How long a peer whose descriptor came through /proc may take to finish its region.
constexpr std::uint64_t kUnfinishedLimitNs = 2'000'000'000;
// The region of a rank that shares with nobody only serves messages to itself.
constexpr std::uint64_t kPrivateBuffersBytes = 64 << 20;
constexpr std::uint64_t kLeastPrivatePoolBytes = 256 << 10;
constexpr std::uint64_t kLeastPrivateEnvelopes = 256;

void close_if_open(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

}  // namespace

class Joiner {
 public:
  Joiner(const Exchange& exchange, const JoinOptions& options)
      : exchange_(exchange),
        options_(options),
        node_(new Node),
        all_(static_cast<std::size_t>(exchange.size)) {}
  ~Joiner() {
    close_if_open(&memfd_);
    close_if_open(&listener_);
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      unmap_region(peers_[i].base, layout_);
      let_go(peers_[i]);
      close_if_open(&peers_[i].pidfd);
    }
    unmap_region(my_base_, layout_);
  }
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  std::unique_ptr<Node> run() {
    read_test_setting();
    const RaisedDescriptorLimit descriptors;
    usual_descriptors_ = descriptors.usual();
    identify_self();
    if (!exchange_identities()) {
      because("the exchange between the ranks failed");
      return alone();
    }
    node_->oversubscribed_ = too_few_processors(all_, exchange_.rank);
    if (options_.look_for_crowding) node_->crowding_ = crowding_on_node(all_, exchange_.rank);
    find_group();
    if (group_.size() > 1 && make_own_region()) {
      hand_over();
      open_missing_through_proc();
      open_missing_reach_through_proc();
      open_spaces();
      acknowledge_reach();
    } else if (group_.size() > 1) {
      // The others must not wait for what does not come, nor find it through /proc.
      close_if_open(&memfd_);
      hand_over();
    }
    if (!agree()) return alone();
    return together();
  }

 private:
  struct Peer {
    std::byte* base = nullptr;
    std::byte* reach = nullptr;
    std::uint64_t reach_bytes = 0;
    std::int64_t space = 0;
    int pidfd = -1;
  };

  void let_go(Peer& peer) const {
    unmap_reach_file(std::exchange(peer.reach, nullptr), peer.reach_bytes);
    if (peer.space != 0) options_.space.close(std::exchange(peer.space, 0));
  }

  void because(const std::string& reason) {
    if (!node_->why_.empty()) node_->why_ += "; ";
    node_->why_ += reason;
  }

  RegionOwner owner_of(std::size_t position) const {
    const Identity& identity = group_[position];
    return {.world_rank = ranks_[position],
            .pid = identity.pid,
            .version = options_.version,
            .nonce = {identity.nonce[0], identity.nonce[1]}};
  }

  void read_test_setting() {
    if (options_.test_remote == "all") {
      node_->all_separated_ = true;
    } else if (!parse_pairs(options_.test_remote, &node_->separated_)) {
      node_->separated_.clear();
      because("the pairs of ranks to separate could not be read: " + options_.test_remote);
    }
  }

  void identify_self() {
    Identity& me = all_[static_cast<std::size_t>(exchange_.rank)];
    if (!options_.disabled && exchange_.size > 1) {
      memfd_ = create_region_file();
      if (memfd_ < 0) because(std::string("no memfd: ") + std::strerror(errno));
    }
    me = identify(options_.version);
    me.memfd = memfd_;
    me.reach_fd = -1;
    if (memfd_ >= 0 && options_.reach.fd >= 0) {
      write_reach_header(options_.reach, me.nonce);
      me.reach_fd = options_.reach.fd;
      me.reach_bytes = options_.reach.bytes;
    }
    if (memfd_ >= 0 && options_.space.id > 0) {
      std::copy(std::begin(me.nonce), std::end(me.nonce), options_.space.proof);
      me.space_id = options_.space.id;
      me.space_proof = reinterpret_cast<std::uintptr_t>(options_.space.proof);
    }
    if (memfd_ >= 0) {
      me.flags |= kIdentityShares;
      listener_ = open_listener(me.socket_name);
      if (listener_ >= 0) me.flags |= kIdentityListens;
    }
    if (register_expedited_barrier()) me.flags |= kIdentityExpedited;
  }

  bool exchange_identities() {
    const Identity mine = all_[static_cast<std::size_t>(exchange_.rank)];
    return exchange_.size == 1 || exchange_.allgather(&mine, all_.data(), sizeof(Identity)) == 0;
  }

  void find_group() {
    ranks_ = sharing_candidates(all_, exchange_.rank);
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i] == exchange_.rank) me_ = static_cast<int>(i);
      group_.push_back(all_[static_cast<std::size_t>(ranks_[i])]);
    }
    peers_.resize(group_.size());
    if (options_.disabled) {
      because("switched off");
    } else if (exchange_.size == 1) {
      because("the job has one rank");
    } else if (memfd_ >= 0 && group_.size() < 2) {
      because(ranks_.empty() ? "more local ranks than can share" : "no other rank on this node");
    }
  }

  bool make_own_region() {
    std::uint64_t file_limit = ~std::uint64_t{0};
    std::uint64_t mapping_limit = ~std::uint64_t{0};
    for (const Identity& identity : group_) {
      file_limit = std::min(file_limit, identity.file_limit_bytes);
      mapping_limit = std::min(mapping_limit, identity.mapping_limit_bytes);
    }
    const std::optional<RegionLayout> layout = plan_sparing_region(
        options_.region, static_cast<std::uint32_t>(group_.size()), file_limit, mapping_limit);
    if (!layout) {
      because("the limits on address space or file size (ulimit -v, -f) are too low");
      return false;
    }
    layout_ = *layout;
    std::string why;
    my_base_ = make_region(memfd_, *layout, owner_of(static_cast<std::size_t>(me_)), &why);
    if (my_base_ == nullptr) because(why);
    return my_base_ != nullptr;
  }

  // Whether members see each other's processes under different numbers.
  bool mixed_pid_namespaces() const {
    return std::any_of(group_.begin(), group_.end(), [&](const Identity& identity) {
      return identity.pid_namespace != group_[0].pid_namespace;
    });
  }

  void hand_over() {
    Handover handover;
    handover.group = &group_;
    handover.me = me_;
    handover.listener = std::exchange(listener_, -1);
    handover.memfd = memfd_;
    int own_pidfd = memfd_ >= 0 && mixed_pid_namespaces()
                        ? open_pidfd(group_[static_cast<std::size_t>(me_)].pid)
                        : -1;
    handover.pidfd = own_pidfd;
    handover.reach = group_[static_cast<std::size_t>(me_)].reach_fd;
    reach_limit_ = reach_mapping_limit();
    handover.deliver_memory = [this](int position, int fd) {
      map_peer(position, fd);
      close(fd);
    };
    handover.deliver_process = [this](int position, int fd) {
      Peer& peer = peers_[static_cast<std::size_t>(position)];
      if (peer.pidfd >= 0 || !pidfds_welcome()) {
        close(fd);
      } else {
        peer.pidfd = fd;
      }
    };
    handover.deliver_reach = [this](int position, int fd) {
      map_reach(position, fd);
      close(fd);
    };
    run_handover(handover);
    close_if_open(&own_pidfd);
  }

  // Descriptors that stay open must not get in the program's way.
  bool pidfds_welcome() const { return usual_descriptors_ / 8 > group_.size(); }

  MapResult map_peer(int position, int fd) {
    const auto index = static_cast<std::size_t>(position);
    if (position == me_ || peers_[index].base != nullptr || my_base_ == nullptr) {
      return MapResult::ok;
    }
    return map_peer_region(fd, layout_, owner_of(index), &peers_[index].base, &map_why_);
  }

  // A file that cannot be mapped only means that its owner's buffers are reached in other ways.
  void map_reach(int position, int fd) {
    const auto index = static_cast<std::size_t>(position);
    Peer& peer = peers_[index];
    const Identity& identity = group_[index];
    if (position == me_ || peer.reach != nullptr || identity.reach_bytes == 0) return;
    if (identity.reach_bytes > reach_limit_) {
      node_->reach_why_ = "the limit on address space (ulimit -v) is too low";
      return;
    }
    std::byte* const mapped =
        map_reach_file(fd, identity.reach_bytes, identity.nonce, &node_->reach_why_);
    if (mapped == nullptr) return;
    peer.reach = mapped;
    peer.reach_bytes = identity.reach_bytes;
    reach_limit_ -= identity.reach_bytes;
  }

  void open_missing_reach_through_proc() {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      const Identity& identity = group_[i];
      if (static_cast<int>(i) == me_ || peers_[i].reach != nullptr || identity.reach_bytes == 0 ||
          identity.reach_bytes > reach_limit_) {
        continue;
      }
      int fd =
          open_through_proc(group_[static_cast<std::size_t>(me_)], identity, identity.reach_fd);
      if (fd < 0) {
        node_->reach_why_ = "a reach file could not be handed over";
        continue;
      }
      map_reach(static_cast<int>(i), fd);
      close_if_open(&fd);
    }
  }

  void open_spaces() {
    if (options_.space.open == nullptr) return;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      const Identity& identity = group_[i];
      if (peers_[i].base == nullptr || identity.space_id <= 0) continue;
      peers_[i].space =
          options_.space.open(identity.space_id, identity.space_proof, identity.nonce);
    }
  }

  // Tells the owners what of theirs is mapped or open here; they read it after the next exchange.
  void acknowledge_reach() {
    const auto me = static_cast<std::size_t>(me_);
    const std::uint64_t bit = std::uint64_t{1} << (me % 64);
    for (const Peer& peer : peers_) {
      if (peer.base == nullptr) continue;
      auto* const header = reinterpret_cast<RegionHeader*>(peer.base);
      // Relaxed: the exchange orders both.
      if (peer.reach != nullptr) {
        header->reached_by[me / 64].fetch_or(bit, std::memory_order_relaxed);
      }
      if (peer.space != 0) header->opened_by[me / 64].fetch_or(bit, std::memory_order_relaxed);
    }
  }

  void open_missing_through_proc() {
    const std::uint64_t deadline_ns = now_ns() + kUnfinishedLimitNs;
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      if (static_cast<int>(i) == me_ || peers_[i].base != nullptr) continue;
      int fd = open_through_proc(group_[static_cast<std::size_t>(me_)], group_[i], group_[i].memfd);
      if (fd < 0) {
        if (map_why_.empty()) map_why_ = "its memory could not be handed over";
        continue;
      }
      MapResult result = MapResult::not_yet;
      while ((result = map_peer(static_cast<int>(i), fd)) == MapResult::not_yet &&
             now_ns() < deadline_ns) {
        usleep(200);
      }
      if (result == MapResult::not_yet) map_why_ = "it did not finish its region in time";
      close_if_open(&fd);
    }
  }

  // Exchanges who could not map whom; false when this rank stays alone.
  bool agree() {
    MapReport mine = {};
    if (my_base_ != nullptr) {
      mine.took_part = 1;
      for (std::size_t i = 0; i < peers_.size(); ++i) {
        if (static_cast<int>(i) == me_ || peers_[i].base != nullptr) continue;
        if (mine.failures < MapReport::kMostNamed) {
          mine.positions[mine.failures] = static_cast<std::uint16_t>(i);
        }
        ++mine.failures;
      }
    }
    std::vector<MapReport> everybody(all_.size());
    if (exchange_.size > 1 &&
        exchange_.allgather(&mine, everybody.data(), sizeof(MapReport)) != 0) {
      because("the exchange between the ranks failed");
      return false;
    }
    // From here on nobody opens this memfd through /proc any more.
    close_if_open(&memfd_);
    if (group_.size() < 2) return false;
    std::vector<MapReport> reports;
    for (const int rank : ranks_) reports.push_back(everybody[static_cast<std::size_t>(rank)]);
    stays_ = survivors(reports);
    for (std::size_t i = 0; i < stays_.size(); ++i) {
      if (stays_[i]) continue;
      because(static_cast<int>(i) == me_
                  ? "this rank could not share memory with the others on its node" +
                        (map_why_.empty() ? "" : " (" + map_why_ + ")")
                  : "rank " + std::to_string(ranks_[i]) + " could not share its memory" +
                        (map_why_.empty() ? "" : " (" + map_why_ + ")"));
    }
    const auto count = std::count(stays_.begin(), stays_.end(), true);
    return stays_[static_cast<std::size_t>(me_)] && count > 1;
  }

  std::unique_ptr<Node> together() {
    node_->layout_ = layout_;
    node_->index_of_world_rank_.assign(all_.size(), -1);
    const Identity& me = group_[static_cast<std::size_t>(me_)];
    bool expedited = !node_->oversubscribed_;
    read_acknowledgements();
    for (std::size_t i = 0; i < group_.size(); ++i) {
      if (!stays_[i]) continue;
      const Identity& identity = group_[i];
      Member member;
      member.world_rank = ranks_[i];
      member.pid = identity.pid;
      if (static_cast<int>(i) == me_) {
        node_->my_index_ = node_->size();
        member.base = std::exchange(my_base_, nullptr);
        member.reach = identity.reach_bytes > 0 ? options_.reach.start : nullptr;
        member.reach_bytes = identity.reach_bytes;
      } else {
        member.base = std::exchange(peers_[i].base, nullptr);
        member.reach = std::exchange(peers_[i].reach, nullptr);
        member.reach_bytes = member.reach != nullptr ? peers_[i].reach_bytes : 0;
        member.reaches_us = (reached_by_[i / 64] >> (i % 64) & 1) != 0;
        member.space = std::exchange(peers_[i].space, 0);
        member.opens_us = (opened_by_[i / 64] >> (i % 64) & 1) != 0;
        watch(me, identity, &peers_[i].pidfd, &member);
      }
      member.header = reinterpret_cast<RegionHeader*>(member.base);
      node_->index_of_world_rank_[static_cast<std::size_t>(ranks_[i])] = node_->size();
      node_->members_.push_back(member);
      expedited = expedited && (identity.flags & kIdentityExpedited) != 0;
    }
    // A sleeper's expedited barrier interrupts all running ranks. Where ranks sleep all the time
    // the publishers' fences are the smaller evil.
    node_->wake_mode_.expedited = expedited;
    own_header().phase.store(static_cast<std::uint32_t>(RankPhase::running),
                             std::memory_order_release);  // pairs with Node::dead
    return std::move(node_);
  }

  void read_acknowledgements() {
    const auto* header = reinterpret_cast<const RegionHeader*>(my_base_);
    // Relaxed: the exchange has ordered it.
    for (std::size_t word = 0; word < std::size(reached_by_); ++word) {
      reached_by_[word] = header->reached_by[word].load(std::memory_order_relaxed);
      opened_by_[word] = header->opened_by[word].load(std::memory_order_relaxed);
    }
  }

  // Chooses how the liveness of a member is seen: through /proc where that shows the processes of
  // our own pid namespace and the member is in it, else through a pidfd. That the process has the
  // start time that it has told itself is seen at every look (Node::dead): here it would cost every
  // rank a file for every other one.
  void watch(const Identity& me, const Identity& peer, int* pidfd, Member* member) {
    if (me.pid_namespace != 0 && me.pid_namespace == peer.pid_namespace) {
      if (peer.start_time != 0 && proc_shows_own_namespace()) {
        member->start_time = peer.start_time;
        return;
      }
      if (*pidfd < 0 && pidfds_welcome()) *pidfd = open_pidfd(peer.pid);
    }
    if (*pidfd < 0 || !pid_shown_by_pidfd(*pidfd, &member->pidfd_shows)) return;
    member->pidfd = std::exchange(*pidfd, -1);
  }

  std::unique_ptr<Node> alone() {
    const auto rank = static_cast<std::size_t>(exchange_.rank);
    unmap_region(std::exchange(my_base_, nullptr), layout_);
    for (Peer& peer : peers_) {
      unmap_region(std::exchange(peer.base, nullptr), layout_);
      let_go(peer);
    }
    RegionRequest request = options_.region;
    request.buffers_bytes = std::min(request.buffers_bytes, kPrivateBuffersBytes);
    constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};
    std::optional<RegionLayout> layout =
        plan_region(request, 1, kNoLimit, all_[rank].mapping_limit_bytes);
    if (!layout) {
      // The least that serves messages of a rank to itself; the kernel has the last word.
      request.buffers_bytes = 0;
      layout = plan_region(request, 1, kNoLimit, kNoLimit);
    }
    Member member;
    member.world_rank = exchange_.rank;
    member.pid = static_cast<std::uint32_t>(getpid());
    if (layout) {
      const RegionOwner owner = {.world_rank = exchange_.rank,
                                 .pid = member.pid,
                                 .version = options_.version,
                                 .nonce = {all_[rank].nonce[0], all_[rank].nonce[1]}};
      member.base = make_private_region(*layout, owner);
      if (member.base == nullptr) {
        // A few hundred KiB, with which messages to itself still work.
        request.buffers_bytes = 0;
        request.pool_bytes = kLeastPrivatePoolBytes;
        request.envelope_count = kLeastPrivateEnvelopes;
        layout = plan_region(request, 1, kNoLimit, kNoLimit);
        if (layout) member.base = make_private_region(*layout, owner);
      }
    }
    if (member.base == nullptr) because("no memory for a region of its own");
    node_->layout_ = member.base != nullptr ? *layout : RegionLayout{};
    member.header = reinterpret_cast<RegionHeader*>(member.base);
    node_->members_.assign(1, member);
    node_->my_index_ = 0;
    node_->index_of_world_rank_.assign(all_.size(), -1);
    node_->index_of_world_rank_[rank] = 0;
    return std::move(node_);
  }

  RegionHeader& own_header() {
    return *node_->members_[static_cast<std::size_t>(node_->my_index_)].header;
  }

  const Exchange& exchange_;
  const JoinOptions& options_;
  std::unique_ptr<Node> node_;
  std::vector<Identity> all_;                           // by world rank
  std::vector<int> ranks_;                              // world ranks of the candidates, ascending
  std::vector<Identity> group_;                         // the candidates, by position
  std::vector<Peer> peers_;                             // by position
  std::vector<bool> stays_;                             // by position
  RegionLayout layout_;                                 // of the candidates' regions
  std::string map_why_;                                 // why the last peer could not be mapped
  std::uint64_t reach_limit_ = 0;                       // address space left for reach files
  std::uint64_t reached_by_[kMaxLocalRanks / 64] = {};  // by position
  std::uint64_t opened_by_[kMaxLocalRanks / 64] = {};
  int me_ = 0;  // own position
  int memfd_ = -1;
  int listener_ = -1;
  rlim_t usual_descriptors_ = 0;
  std::byte* my_base_ = nullptr;
};

std::unique_ptr<Node> Node::join(const Exchange& exchange, const JoinOptions& options) {
  return Joiner(exchange, options).run();
}

}  // namespace od::node
