// What a rank counts: one table of plain 64-bit counters.
//
// A row is X(field, kind, group, doc):
//   field  member of od::observe::Counters; carries its unit if it is not a number of events
//   kind   kSum: totals of ranks are added; kPeak: the largest value counts
//   group  heading in the table; one of messages, in_network, bytes, matching, buffering, copying,
//          smpi, waiting, host, overlap, setup
//   doc    one line for the table and the manual
// Counters belong to one rank and are written by its own threads only, under whatever protects the
// code that counts; they are never shared, so incrementing costs one add.
#ifndef OVERDRIVE_OBSERVE_COUNTERS_H_
#define OVERDRIVE_OBSERVE_COUNTERS_H_

#include <array>
#include <cstddef>
#include <cstdint>

// clang-format off
#define OD_COUNTERS(X)                                                                             \
  X(sends_inline, kSum, messages, "messages sent inside a fast box")                               \
  X(sends_cell, kSum, messages, "messages sent through cells of the pool, in one go")              \
  X(sends_frame, kSum, messages, "messages sent in an exchange frame, in one go")                  \
  X(sends_stream, kSum, messages, "messages sent through rotating cells, piece by piece")          \
  X(sends_buffered, kSum, messages, "of these, sent from own memory after waiting for the receiver")\
  X(sends_push, kSum, messages, "of the streams, written into the receive buffer in the end")      \
  X(sends_direct, kSum, messages, "messages the receiver read from the sender's buffer")           \
  X(sends_cooperative, kSum, messages, "messages that both sides copied at the same time")         \
  X(sends_self, kSum, messages, "messages a rank sent to itself")                                  \
  X(sends_host, kSum, messages, "sends passed to the installed MPI library")                       \
  X(receives_inline, kSum, messages, "messages received from a fast box")                          \
  X(receives_at_once, kSum, messages, "of these, taken without a request (SMPI)")                  \
  X(receives_cell, kSum, messages, "messages received from cells of the pool, in one go")          \
  X(receives_frame, kSum, messages, "messages received from an exchange frame, in one go")           \
  X(receives_stream, kSum, messages, "messages received piece by piece")                           \
  X(receives_buffered, kSum, messages, "messages received from memory of a sender that went on")   \
  X(receives_pull, kSum, messages, "messages read from the sender's shared buffer")                \
  X(receives_kernel, kSum, messages, "messages read through the operating system")                 \
  X(receives_cooperative, kSum, messages, "messages that both sides copied at the same time")      \
  X(receives_push, kSum, messages, "messages the sender wrote into the receive buffer")            \
  X(receives_self, kSum, messages, "messages a rank received from itself")                         \
  X(receives_host, kSum, messages, "receives passed to the installed MPI library")                 \
  X(collectives_served, kSum, messages, "collective calls of ranks served by Overdrive")           \
  X(collectives_host, kSum, messages, "collective calls of ranks left to the installed MPI library")\
  X(collectives_shared, kSum, messages, "of the served ones, made in shared memory inside nodes")   \
  X(collectives_lines, kSum, messages, "of the shared ones, done with a line of each rank at once") \
  X(collectives_later, kSum, messages, "of the served ones, non-blocking and persistent")           \
  X(collectives_later_shm, kSum, messages, "of these, made in shared memory")                    \
  X(collectives_neighbour, kSum, messages, "of the served ones, among the neighbours of a topology") \
  X(arrival_calls, kSum, messages, "collectives that a node's first or last rank begins or ends")      \
  X(arrival_claims, kSum, messages, "of these, where this rank was the one")                          \
  X(arrival_late, kSum, messages, "of those calls, where nothing was left to wait for")              \
  X(arrival_long, kSum, messages, "blocks of different lengths that go straight to or from the root")  \
  X(arrival_agreements, kSum, messages, "agreements about how far apart ranks come to calls")        \
  X(arrival_trials, kSum, messages, "measurements of such calls against the usual algorithm")        \
  X(arrival_chosen, kSum, messages, "of those, after which they go on that way")                     \
  X(collectives_between, kSum, messages, "of the non-blocking ones, served between nodes")        \
  X(trials, kSum, messages, "measurements of a collective against the installed MPI library's")     \
  X(trials_learnt, kSum, messages, "kinds of calls that began with what `learn_file` says")          \
  X(trials_to_host, kSum, messages, "of those, after which the installed MPI library serves it")   \
  X(trials_to_other, kSum, messages, "of those, after which another own algorithm serves it")      \
  X(trials_anew, kSum, messages, "begun anew with others, which what was seen speaks for")         \
  X(trials_renewed, kSum, messages, "ways that had never been measured, for which one makes room") \
  X(teams_made, kSum, messages, "communicators whose ranks on this node work in shared memory")    \
  X(teams_refused, kSum, messages, "communicators without, because collective slots had run out")  \
  X(team_messages, kSum, messages, "blocks that ranks of such a pair have sent as messages")        \
  X(reductions_in_groups, kSum, messages,                                                          \
    "long reductions made among ranks that share a cache, then across")                            \
  X(switch_groups, kSum, in_network, "leaders' communicators for which a switch adds")             \
  X(switch_refused, kSum, in_network, "leaders' communicators for which none could be asked to")   \
  X(switch_operations, kSum, in_network, "collective calls of leaders made by a switch")           \
  X(switch_bytes, kSum, in_network, "bytes that these calls were about")                           \
  X(switch_fallbacks, kSum, in_network, "calls that failed at the switch and ended without it")    \
  X(switch_repeated, kSum, in_network, "packets to a switch that were sent again")                 \
  X(bytes_inline, kSum, bytes, "bytes sent inside fast boxes")                                     \
  X(bytes_cell, kSum, bytes, "bytes sent through cells, in one go")                                \
  X(bytes_frame, kSum, bytes, "bytes sent in exchange frames, in one go")                           \
  X(bytes_stream, kSum, bytes, "bytes sent through rotating cells, piece by piece")                \
  X(bytes_buffered, kSum, bytes, "bytes sent from own memory after waiting for the receiver")      \
  X(bytes_direct, kSum, bytes, "bytes receivers read from senders' buffers, alone or with help")   \
  X(bytes_push, kSum, bytes, "bytes sent straight into receivers' buffers")                        \
  X(bytes_self, kSum, bytes, "bytes ranks sent to themselves")                                     \
  X(bytes_received, kSum, bytes, "bytes received from local ranks")                                \
  X(matched_posted, kSum, matching, "messages that found their receive posted")                    \
  X(matched_unexpected, kSum, matching, "messages that came before their receive")                 \
  X(unexpected_peak, kPeak, matching, "most messages that waited for a receive at once")           \
  X(wildcard_receives, kSum, matching, "receives from any source")                                 \
  X(wildcard_from_host, kSum, matching, "of these, served by the installed MPI library")           \
  X(receives_lent, kSum, matching, "receives lent to it during its blocking calls")                \
  X(host_entries_awaited, kSum, matching, "collective calls of it that awaited the node's ranks")  \
  X(taken_aside, kSum, matching, "messages received meanwhile before their receive was known")     \
  X(probes, kSum, matching, "probes answered")                                                     \
  X(cancels, kSum, matching, "operations cancelled")                                               \
  X(truncations, kSum, matching, "messages longer than their receive")                             \
  X(self_buffered, kSum, buffering, "messages a sender copied aside because the receiver was late")\
  X(self_buffered_bytes, kSum, buffering, "bytes of these messages")                               \
  X(buffer_peak_bytes, kPeak, buffering, "most memory such messages took at once")                 \
  X(buffer_limit_waits, kSum, buffering, "times a sender waited because buffer_limit was reached") \
  X(pool_full_waits, kSum, buffering, "times a sender waited for a free cell")                     \
  X(sends_called, kSum, buffering, "sends among many whose receivers told that they had come")     \
  X(box_full, kSum, buffering, "times a fast box was full and the queue was used")                 \
  X(box_refused, kSum, buffering, "peers without a fast box because fastbox_peers was reached")    \
  X(offers_withdrawn, kSum, buffering, "messages buffered because the receiver did not read them soon")\
  X(offers_declined, kSum, buffering, "messages sent through cells because the receiver could not read")\
  X(device_copies, kSum, copying, "copies of buffers in memory of devices, by their runtime")        \
  X(device_bytes, kSum, copying, "bytes copied from and to memory of devices")                      \
  X(xpmem_reads, kSum, copying, "messages read, in part or whole, from memory attached by XPMEM")  \
  X(xpmem_writes, kSum, copying, "messages written, in part or whole, to memory attached by XPMEM")\
  X(xpmem_bytes, kSum, copying, "bytes copied from and to such memory")                            \
  X(xpmem_attached, kSum, copying, "windows of other ranks' memory attached by XPMEM")             \
  X(xpmem_detached, kSum, copying, "of these, given up again")                                     \
  X(xpmem_refused, kSum, copying, "times XPMEM did not attach a window")                           \
  X(xpmem_unfit, kSum, copying, "buffers of a kind that cannot be attached, such as read-only ones")\
  X(ordinary_bytes, kSum, copying, "bytes copied with ordinary stores")                            \
  X(nontemporal_bytes, kSum, copying, "bytes copied with non-temporal stores")                     \
  X(layouts_direct, kSum, copying, "messages with a derived datatype copied without packing")      \
  X(layouts_host_packed, kSum, copying, "messages packed or unpacked by the installed MPI library")\
  X(path_trials, kSum, copying, "times a few messages took another way to measure it")             \
  X(path_changes, kSum, copying, "times one of these was faster and took over")                    \
  X(smpi_blocks, kSum, smpi, "blocks of message memory allocated")                                 \
  X(smpi_peak_bytes, kPeak, smpi, "most memory in such blocks at once")                            \
  X(smpi_returned, kSum, smpi, "blocks that came back from the rank that let go last")             \
  X(smpi_lent, kSum, smpi, "views lent by address")                                                \
  X(smpi_passed, kSum, smpi, "blocks passed on to another owner by address")                       \
  X(smpi_by_content, kSum, smpi, "short blocks sent with their data: new, for a core that is far") \
  X(smpi_by_copy, kSum, smpi, "blocks lent as a copy: new, for a viewer who reads all of it")      \
  X(smpi_views, kSum, smpi, "messages received by address")                                        \
  X(smpi_copied, kSum, smpi, "messages whose data was copied, to ranks out of reach")              \
  X(smpi_copied_bytes, kSum, smpi, "bytes of these")                                               \
  X(smpi_freed_after, kSum, smpi, "blocks sent to other nodes and freed with their request")       \
  X(smpi_leaked, kSum, smpi, "views that were left at MPI_Finalize (debug mode)")                  \
  X(yields, kSum, waiting, "times a waiting rank gave its core away")                              \
  X(yields_peer_away, kSum, waiting, "of these, because the rank it waited for had no core")       \
  X(idle_rounds, kSum, waiting, "looks of waiting or polling ranks that found nothing new")          \
  X(poll_yields, kSum, waiting, "times a rank that polls in vain gave its core away")              \
  X(thread_yields, kSum, waiting, "times a waiting thread gave its core to another thread")        \
  X(receives_overtaken, kSum, waiting, "times a thread's MPI_Recv went before another thread's equal one") \
  X(peer_checks, kSum, waiting, "times a waiting rank checked that a peer is alive")               \
  X(helper_rounds, kSum, waiting, "looks at the queues by the helper thread during host calls")     \
  X(stall_reports, kSum, waiting, "stall reports written")                                         \
  X(host_polls, kSum, host, "times the installed MPI library was given a chance to progress")      \
  X(comms_served, kSum, host, "communicators served")                                              \
  X(comms_passed, kSum, host, "communicators left to the installed MPI library")                   \
  X(fallback_no_region, kSum, host, "1 per rank that shares no memory with any other")             \
  X(fallback_remote, kSum, host, "messages to or from ranks of other nodes")                       \
  X(fallback_comm, kSum, host, "messages on communicators that are not served")                    \
  X(fallback_datatype, kSum, host, "messages whose datatype could not be examined")                \
  X(overlapped, kSum, overlap, "collective calls that returned before they were complete")         \
  X(overlap_complete, kSum, overlap, "suitable calls that were complete when they returned")       \
  X(overlap_settled, kSum, overlap, "of those that were not, completed by the next call of MPI")   \
  X(overlap_faults, kSum, overlap, "accesses that met a guarded page")                             \
  X(overlap_hidden_ns, kSum, overlap, "time they went on while the program did not wait, in ns")   \
  X(overlap_wait_ns, kSum, overlap, "time spent waiting at guarded pages, in nanoseconds")         \
  X(overlap_system_calls, kSum, overlap, "system calls that waited for guarded memory")            \
  X(overlap_traced, kSum, overlap, "calls after which first accesses were recorded")               \
  X(overlap_ordered, kSum, overlap, "calls that sent first what a trace says is needed first")     \
  X(overlap_trials, kSum, overlap, "verdicts whether overlap pays (`overlap=auto`)")               \
  X(overlap_turned_on, kSum, overlap, "of these, those after which calls overlap")                 \
  X(overlap_turned_off, kSum, overlap, "of these, those after which calls do so no more")          \
  X(local_ranks_peak, kPeak, setup, "ranks that share memory on one node")                         \
  X(region_bytes_peak, kPeak, setup, "memory shared by one rank, without buffered messages")       \
  X(reach_peers_peak, kPeak, setup, "local ranks whose buffers a rank reaches directly")           \
  X(reach_heap_peak, kPeak, setup, "most address space of reachable memory in use, in bytes")      \
  X(reach_static_peak, kPeak, setup, "static data that peers can reach, in bytes")                 \
  X(reach_private_blocks, kSum, setup, "large blocks of malloc that peers cannot reach")           \
  X(reach_forks, kSum, setup, "forked children that got copies of reachable memory")               \
  X(xpmem_peers_peak, kPeak, setup, "local ranks whose memory a rank can attach by XPMEM")         \
  X(join_ns, kSum, setup, "time spent in MPI_Init, in nanoseconds")                                \
  X(warmed_bytes, kSum, setup, "pool memory made ready while waiting, not in MPI_Init")             \
  X(verified, kSum, setup, "messages whose checksum was compared")
// clang-format on

namespace od::observe {

struct Counters {
#define OD_COUNTER_FIELD(field, kind, group, doc) std::uint64_t field = 0;
  OD_COUNTERS(OD_COUNTER_FIELD)
#undef OD_COUNTER_FIELD
};

#define OD_COUNTER_COUNT(field, kind, group, doc) +1
inline constexpr std::size_t kCounterCount = 0 OD_COUNTERS(OD_COUNTER_COUNT);
#undef OD_COUNTER_COUNT

// Counters travel between ranks as plain bytes.
static_assert(sizeof(Counters) == kCounterCount * sizeof(std::uint64_t));

enum class CounterKind { kSum, kPeak };

struct CounterInfo {
  const char* name;
  CounterKind kind;
  const char* group;
  const char* doc;
  std::uint64_t Counters::*field;
};

inline constexpr std::array<CounterInfo, kCounterCount> kCounterInfos = {{
#define OD_COUNTER_INFO(field, kind, group, doc) \
  CounterInfo{#field, CounterKind::kind, #group, doc, &Counters::field},
    OD_COUNTERS(OD_COUNTER_INFO)
#undef OD_COUNTER_INFO
}};

}  // namespace od::observe

#endif  // OVERDRIVE_OBSERVE_COUNTERS_H_
