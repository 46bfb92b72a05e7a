// Short messages of SMPI between two ranks of a node, without what MPI's calls need: no datatype,
// no request, no matching where there is nothing to match with.
//
// They are ordinary messages of the communicator, in one order with all others: what cannot go or
// come this way at once takes the usual calls, and nobody can tell which way another one took.
#include "base/pause.h"
#include "engine/engine.h"
#include "engine/rank_state.h"

namespace od {
namespace {

// Looks for a message before a request is made: an answer of a near peer takes a quarter of that.
constexpr int kLooks = 64;
// So many receives may look at one peer alone; then all others get their turn once.
constexpr std::uint32_t kReceivesPerRound = 64;

}  // namespace

bool Rank::send_short(const void* prefix, const void* data, std::uint32_t bytes, int dest, int tag,
                      Comm& comm) {
  RankState& s = *state_;
  const int index = comm.local_index[static_cast<std::size_t>(dest)];
  if (index == kRemote || index == static_cast<int>(s.my_index) || s.settings.verify) [[unlikely]]
    return false;
  Guard guard(s);
  p2p::MessageHeader header = p2p::header_for(comm, tag);
  header.kind = p2p::Kind::inline_data;
  return s.transport->try_send_behind(static_cast<std::uint32_t>(index), header, prefix, data,
                                      bytes);
}

std::int64_t Rank::recv_short(void* to, std::uint32_t room, int source, int tag, Comm& comm) {
  RankState& s = *state_;
  const int index = comm.local_index[static_cast<std::size_t>(source)];
  if (index == kRemote || index == static_cast<int>(s.my_index) || s.settings.verify) [[unlikely]]
    return -1;
  Guard guard(s);
  // An older receive might want the message, an older message is to be received first, and what is
  // under way goes on in rounds of progress alone.
  if (s.matching.posted_count() != 0 || s.matching.holds_any() || comm.lent != 0 ||
      s.transport->streams_active() || !s.collectives.active.empty() || !s.orphans.empty() ||
      s.notes.any() || s.matching.find_unexpected(comm.context, source, tag) != nullptr ||
      ++s.short_receives % kReceivesPerRound == 0) {
    return -1;
  }
  for (int looks = 0; looks < kLooks; ++looks) {
    const std::int32_t taken =
        s.transport->take_short(static_cast<std::uint32_t>(index), comm.context,
                                static_cast<std::uint32_t>(source), tag, to, room);
    if (taken >= 0) {
      s.empty_polls.reset();
      return taken;
    }
    if (taken == p2p::Receiver::kAnother || !s.tight_looks || s.lock.wanted()) break;
    pause_processor();
  }
  return -1;
}

}  // namespace od
