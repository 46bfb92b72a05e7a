// Short messages of SMPI, which come here by its table of functions instead of by MPI's calls.
//
// The interface has checked rank, tag and length; whether a message goes this way the engine says.
#include "face/smpi_messages.h"

#include "face/state.h"
#include "smpi/service.h"

namespace od::face {
namespace {

void* messages(void* /*self*/, const void* comm) {
  return serving() != nullptr ? find_comm(*static_cast<const MPI_Comm*>(comm)) : nullptr;
}

int send_short(void* messages, const void* prefix, const void* data, std::uint32_t bytes, int dest,
               int tag) {
  Rank* const rank = serving();
  if (rank == nullptr) return OVERDRIVE_SMPI_NOT_A_BLOCK;
  return rank->send_short(prefix, data, bytes, dest, tag, *static_cast<Comm*>(messages))
             ? OVERDRIVE_SMPI_OK
             : OVERDRIVE_SMPI_NOT_A_BLOCK;
}

std::int64_t recv_short(void* messages, void* to, std::uint32_t room, int source, int tag) {
  Rank* const rank = serving();
  if (rank == nullptr) return -1;
  return rank->recv_short(to, room, source, normal_tag(tag), *static_cast<Comm*>(messages));
}

}  // namespace

void offer_short_messages(smpi::Service& service) {
  service.set_messages(messages, send_short, recv_short);
}

}  // namespace od::face
