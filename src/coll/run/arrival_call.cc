// Leases and limits of a communicator, and what all such calls do with messages.

#include "coll/run/arrival_call.h"

#include <algorithm>
#include <span>
#include <utility>

#include "coll/run/collectives.h"
#include "node/wait.h"

namespace od {

using coll::shm::ArrivalArea;
using coll::shm::SlotLease;
using host::kSuccess;

namespace {

// The share of the slots, one in so many, that stays free for other communicators.
constexpr std::uint32_t kSpare = 4;

}  // namespace

bool starts_with_first(const coll::Decision& decision) {
  // Those whose ranks do not know each other's lengths have no form in two levels but this.
  return (decision.mode == coll::Mode::kHierarchical ||
          coll::info(decision.algorithm->collective).counts_are_local()) &&
         std::strcmp(decision.algorithm->name, "first_arrival") == 0;
}

ArrivalComm::ArrivalComm(Collectives& owner, const Comm& comm, host::Handle host_comm)
    : owner_(owner), comm_(comm), host_comm_(host_comm) {
  const coll::Nodes& nodes = comm.collectives->nodes();
  const std::span<const int> members = nodes.members(nodes.node_of(comm.rank));
  members_.assign(members.begin(), members.end());
  my_place_ = static_cast<std::size_t>(std::find(members_.begin(), members_.end(), comm.rank) -
                                       members_.begin());
}

ArrivalComm::~ArrivalComm() {
  if (area_ != nullptr) area_->leave();
  std::byte* const region = owner_.endpoint.node->member(owner_.endpoint.node->my_index()).base;
  const std::uint64_t members = members_.size();
  for (const SlotLease& lease : leased_) {
    std::vector<coll::shm::Slots::Acknowledgement> open;
    // Before join() nobody has seen them.
    if (area_ != nullptr) {
      open.push_back(
          {&ArrivalArea::left(region, owner_.endpoint.node->layout(), lease.slot), members});
    }
    owner_.slots->release(lease, 0, std::move(open));
  }
}

ArrivalComm::Told ArrivalComm::offer() {
  Told told{};
  if (owner_.slots == nullptr || members_.size() < 2 || members_.front() != comm_.rank) {
    return told;
  }
  const node::RegionLayout& layout = owner_.endpoint.node->layout();
  while (told.lease.count < ArrivalArea::kMostSlots) {
    const SlotLease lease = owner_.slots->allocate(owner_.slots->count() / kSpare);
    if (lease.slot == SlotLease::kNone) break;
    leased_.push_back(lease);
    told.lease.slots[told.lease.count++] = lease.slot;
  }
  told.cells = ArrivalArea::cells_in(layout, told.lease.count);
  ArrivalArea::clear(owner_.endpoint.node->member(owner_.endpoint.node->my_index()).base, layout,
                     told.lease);
  return told;
}

void ArrivalComm::join(const std::vector<Told>& all) {
  const coll::Nodes& nodes = comm_.collectives->nodes();
  std::uint64_t cells = ~std::uint64_t{0};
  std::uint64_t per_rank = ~std::uint64_t{0};
  std::uint64_t long_segments = ~std::uint64_t{0};
  const node::RegionLayout& layout = owner_.endpoint.node->layout();
  for (int node = 0; node < nodes.count(); ++node) {
    const std::span<const int> members = nodes.members(node);
    if (members.size() < 2) continue;
    const Told& told = all[static_cast<std::size_t>(members.front())];
    cells = std::min(cells, told.cells);
    per_rank = std::min(per_rank, told.cells / members.size());
    long_segments = std::min(
        long_segments,
        ArrivalArea::segments_in(layout, told.lease.count,
                                 static_cast<std::uint64_t>(ArrivalCall::kLongMessageBytes)));
  }
  if (cells == ~std::uint64_t{0}) cells = per_rank = long_segments = 0;
  largest_long_ = long_segments * static_cast<std::uint64_t>(ArrivalCall::kLongMessageBytes);
  cells_per_rank_ = per_rank;
  largest_ = cells * ArrivalArea::kCellBytes;
  if (largest_ == 0 || members_.size() < 2) return;
  const auto index_of = [&](int rank) {
    return rank == comm_.rank ? static_cast<int>(owner_.endpoint.my_index)
                              : comm_.local_index[static_cast<std::size_t>(rank)];
  };
  for (const int rank : members_) {
    if (rank != comm_.rank) neighbours_.push_back(index_of(rank));
  }
  const int first = members_.front();
  area_ = std::make_unique<ArrivalArea>(owner_.endpoint.node->member(index_of(first)).base, layout,
                                        all[static_cast<std::size_t>(first)].lease,
                                        static_cast<std::uint32_t>(members_.size()));
}

ArrivalCall::ArrivalCall(ArrivalComm& shared, int root)
    : host_(shared.owner_.endpoint.host),
      area_(shared.area_.get()),
      number_(shared.numbers_++),
      root_(root),
      shared_(shared) {
  ++counters().arrival_calls;
}

std::int64_t ArrivalCall::segment_for(std::int64_t bytes, std::int64_t unit_bytes,
                                      std::int64_t most) {
  const std::int64_t units_each = std::max<std::int64_t>(1, most / unit_bytes);
  const std::int64_t units = std::max<std::int64_t>(1, bytes / unit_bytes);
  const std::int64_t segments = (units + units_each - 1) / units_each;
  return (units + segments - 1) / segments * unit_bytes;
}

observe::Counters& ArrivalCall::counters() const { return shared_.owner_.endpoint.counters; }

const coll::Machine& ArrivalCall::machine() const { return shared_.owner_.selection.machine(); }

std::uint64_t ArrivalCall::cells() const { return shared_.largest_ / ArrivalArea::kCellBytes; }

host::Handle ArrivalCall::send(const void* data, std::int64_t bytes, int to, Tag tag) {
  host::Handle request = 0;
  note(host_.isend(data, bytes, host_.byte_type, to, tag, shared_.host_comm_, &request));
  return request;
}

host::Handle ArrivalCall::receive(void* into, std::int64_t bytes, int from, Tag tag) {
  host::Handle request = 0;
  note(host_.irecv(into, bytes, host_.byte_type, from, tag, shared_.host_comm_, &request));
  return request;
}

bool ArrivalCall::test(host::Handle& request) {
  if (request == 0) return true;
  bool flag = false;
  host::Status seen;
  const int error = host_.test(&request, &flag, &seen);
  if (error == kSuccess && !flag) return false;
  note(error != kSuccess ? error : seen.error);
  request = 0;
  return true;
}

bool ArrivalCall::settle_sent() {
  const std::size_t before = sent_.size();
  std::erase_if(sent_, [this](Sent& sent) { return test(sent.request); });
  return sent_.size() != before;
}

void ArrivalCall::wake_neighbours() const {
  const p2p::Endpoint& endpoint = shared_.owner_.endpoint;
  for (const int index : shared_.neighbours_) {
    node::wake_if_armed(endpoint.node->member(index).header->armed, endpoint.wake_mode);
  }
}

bool ArrivalCall::on_root_node() const {
  const coll::Nodes& nodes = comm().collectives->nodes();
  return nodes.node_of(root_) == nodes.node_of(me());
}

ArrivalCall::Role ArrivalCall::claim_role(std::int64_t bytes, std::int64_t segment_bytes) {
  if (me() == root_) {
    awaited_ = comm().collectives->nodes().count() - 1;
    return Role::root;
  }
  if (on_root_node()) return Role::reader;
  if (area_ != nullptr) {
    switch (area_->claim(number_)) {
      case ArrivalArea::Claim::wait:
        return Role::unknown;
      case ArrivalArea::Claim::others:
        return Role::reader;
      case ArrivalArea::Claim::mine:
        owns_entry_ = true;
    }
  }
  ++counters().arrival_claims;
  tell(root_, kReady, Ready{number_, bytes, static_cast<std::int32_t>(segment_bytes), me()});
  return Role::winner;
}

bool ArrivalCall::open_area(std::uint64_t bytes, std::uint64_t segment_bytes) {
  if (area_ == nullptr) return placed_ = true;
  if (!owns_entry_) owns_entry_ = area_->claim(number_) == ArrivalArea::Claim::mine;
  placed_ = owns_entry_ && area_->reserve(number_, bytes, segment_bytes);
  if (!placed_) return false;
  prepare_area();
  area_->publish(number_, 0);
  return true;
}

// Who is ready for this call is taken in; of others it is kept.
bool ArrivalCall::hear_ready() {
  bool moved = false;
  if (const auto early = shared_.early_.find(number_); early != shared_.early_.end()) {
    const std::vector<Ready> ready = std::move(early->second);
    shared_.early_.erase(early);
    for (const Ready& each : ready) {
      --awaited_;
      take_in(each);
    }
    moved = true;
  }
  while (awaited_ > 0) {
    const int before = error_;
    if (!hearing_) {
      ready_request_ = receive(&ready_, sizeof(ready_), host::kAnySource, kReady);
      if (error_ != before) awaited_ = 0;
      hearing_ = true;
    }
    if (!test(ready_request_)) return moved;
    hearing_ = false;
    moved = true;
    if (error_ != before) {
      awaited_ = 0;
    } else if (ready_.number == number_) {
      --awaited_;
      take_in(ready_);
    } else {
      shared_.early_[ready_.number].push_back(ready_);
    }
  }
  return moved;
}

}  // namespace od
