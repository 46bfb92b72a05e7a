// Collectives that are one exchange: which one each of them is.
//
// Buffers are contiguous. `send` may equal `recv`, or where the collective has MPI_IN_PLACE be
// null, which means that the input is where the standard says it is in `recv`.
#ifndef OVERDRIVE_COLL_SHM_SINGLE_EXCHANGES_H_
#define OVERDRIVE_COLL_SHM_SINGLE_EXCHANGES_H_

#include <cstdint>

#include "coll/shm/exchange_spec.h"
#include "coll/shm/team_shape.h"

namespace od::coll::shm {

// That a member has come: to all, to the root, or from the root.
PlannedExchange signal_exchange(Pattern pattern, int root);
PlannedExchange bcast_exchange(const TeamShape& shape, int root, void* data, std::uint64_t bytes);
PlannedExchange gather_exchange(const TeamShape& shape, int root, const void* send,
                                std::uint64_t send_bytes, const Blocks& recv);
PlannedExchange scatter_exchange(const TeamShape& shape, int root, const Blocks& send, void* recv,
                                 std::uint64_t recv_bytes);
PlannedExchange allgather_exchange(const TeamShape& shape, const void* send,
                                   std::uint64_t send_bytes, const Blocks& recv);
PlannedExchange alltoall_exchange(const TeamShape& shape, const Blocks& send, const Blocks& recv);

// Reductions; `combiner` outlives the exchange. In teams of more than two, short vectors are shown
// as they are, and each member combines its block of them; of longer ones a block is shown to each.
PlannedExchange reduce_scatter_exchange(const TeamShape& shape, const Blocks& send, void* recv,
                                        const Combiner& combiner);
// Members show all that they contribute, and whoever reads combines it: `bytes` at `send`, which is
// not null, into `recv`.
PlannedExchange reduce_exchange(const TeamShape& shape, int root, const void* send, void* recv,
                                std::uint64_t bytes, const Combiner& combiner);
PlannedExchange allreduce_exchange(const TeamShape& shape, const void* send, void* recv,
                                   std::uint64_t bytes, const Combiner& combiner);
// `takes_self`: a scan, else an exscan.
PlannedExchange scan_exchange(const TeamShape& shape, const void* send, void* recv,
                              std::uint64_t bytes, const Combiner& combiner, bool takes_self);

}  // namespace od::coll::shm

#endif  // OVERDRIVE_COLL_SHM_SINGLE_EXCHANGES_H_
