// The one table of everything a user can set.
//
// A row is X(field, type, name, default, min, max, group, doc) where every rank has a value of its
// own, and A(...) where ranks would misunderstand each other with different ones: for these the
// values of rank 0 count for the whole job (engine/job_terms.h).
//   field    member of od::config::Settings; carries its unit in its name
//   type     one of the types of settings_types.h
//   name     what users write: `name = value` in a file, OVERDRIVE_NAME (upper case) in the
//            environment, `--set name=value` on the command line
//   default, min, max   built-in value and the accepted range (lengths for strings and lists)
//   group    section of the manual; one of job, report, wait, p2p, copy, reach, smpi, coll, test
//   doc      Markdown, whole sentences; first sentence says what it is
// Add a row and the structure, the parser, `overdrive info` and the manual all know it
// (afterwards run `overdrive manual --write docs/manual/settings.md`).
#ifndef OVERDRIVE_CONFIG_SETTINGS_TABLE_H_
#define OVERDRIVE_CONFIG_SETTINGS_TABLE_H_

#include "config/settings_types.h"

// clang-format off
#define OD_SETTINGS(X, A)                                                                          \
  X(disable, BoolType, "disable", false, false, true, job,                                         \
    "Switches Overdrive off: every call goes to the MPI library that is installed. Meant for "     \
    "comparing, and for finding out whether Overdrive has anything to do with a problem.")         \
  A(strict, BoolType, "strict", false, false, true, job,                                           \
    "Ends the job at start when a setting is wrong or unknown. Without it a wrong setting is "     \
    "reported and the next lower source of the value is used.")                                    \
  X(pin, PinType, "pin", "none", 0, 4096, job,                                                     \
    "Binds each rank to processors before the program starts. `none`: as the launcher has bound "  \
    "it. `compact`: a core each, next to each other; `scatter`: a core each, as far apart as "     \
    "possible; `core`: a core each, spread evenly in order; with `OMP_NUM_THREADS` as many cores " \
    "as threads where there are enough. `cache`, `numa`, `socket`: all cores that share a "        \
    "last-level cache, of a NUMA node, of a socket, ranks in order. `list:0-3,8`: a processor "    \
    "for each local rank in turn; `list:0-3/4-7`: a set each. A binding that the launcher was "    \
    "told explicitly stays, unless `:force` follows, such as `compact:force`. Counts in the "      \
    "environment and on the command line only, and also with `disable`.")                          \
  X(verbose, IntType, "verbose", 0, 0, 3, report,                                                  \
    "How much is written to standard error: 0 errors only, 1 also warnings and what fell back "    \
    "to the installed MPI library and why, 2 also with how many ranks each rank shares memory "    \
    "and how far apart the cores are, 3 also each communicator that is served.")                   \
  A(stats, OutputType, "stats", "0", 0, 4096, report,                                              \
    "Statistics at `MPI_Finalize`: `0` none, `1` one table on standard error with the sum, "       \
    "smallest and largest value over all ranks, anything else is the path of a JSON file that "    \
    "each rank writes; `%r` in it stands for the rank and is appended as `.%r` if missing.")       \
  X(call_times, BoolType, "call_times", true, false, true, report,                                 \
    "Where `stats` asks for statistics: also the time that each rank spends in MPI, and calls, "   \
    "time and longest call of each place in the program that calls MPI. Costs about 0.1 us "      \
    "per call. Off: the table of counters alone.")                                                 \
  X(timeline, OutputType, "timeline", "", 0, 4096, report,                                           \
    "Path of a JSON file that each rank writes at `MPI_Finalize` with the times of all steps of "   \
    "its last collectives, for `overdrive study timeline --measured`; `%r` in it stands for the "  \
    "rank and is appended as `.%r` if missing. Empty: nothing is recorded.")                         \
  X(record, OutputType, "record", "", 0, 4096, report,                                             \
    "Folder into which each rank writes at `MPI_Finalize` what `overdrive report` shows: time in " \
    "MPI by place and over the run, sizes, ways, peers, waiting, memory and what fell back. It "   \
    "is added up while the program runs, so it takes the same memory however long that is. Empty: "\
    "nothing is recorded.")                                                                        \
  A(verify, BoolType, "verify", false, false, true, report,                                        \
    "Computes a checksum of every local message at the sender and compares it at the receiver. "   \
    "A difference ends the job with a message that names the two ranks. Slow; for finding "        \
    "faults.")                                                                                     \
  X(stall_report_ns, DurationType, "stall_report", 0, 0, 24 * 3600 * kSecond, report,              \
    "A rank that waits longer than this in one MPI call writes what it waits for to standard "     \
    "error, once per wait. 0 switches the report off.")                                            \
  X(wait, WaitChoice, "wait", WaitMode::kAuto, WaitMode::kAuto, WaitMode::kSleep, wait,            \
    "How a rank waits: `spin` never gives up its core, `yield` offers it to others, `sleep` "      \
    "spins briefly and then sleeps in the kernel. `auto` spins if every local rank has a core of " \
    "its own (affinity masks and the cgroup's processor quota count); otherwise it yields for a "  \
    "short time and then sleeps.")                                                                 \
  X(spin_ns, DurationType, "spin", 0, 0, 10 * kSecond, wait,                                       \
    "How long a rank spins before it yields or sleeps. 0 means automatic: 50 ms if every local "   \
    "rank has a core; otherwise 0.2 us, or up to 2 us while the rank that it waits for runs, "     \
    "after which it yields for 0.3 ms and then sleeps.")                                           \
  X(peer_check_ns, DurationType, "peer_check", 100 * kMillisecond, kMillisecond, 60 * kSecond,     \
    wait,                                                                                          \
    "How often a rank that waits for a local rank checks that the other process still exists.")    \
  X(host_call_progress, BoolType, "host_call_progress", true, false, true, wait,                   \
    "While a rank with pending receives sits in a blocking call of the installed MPI library, a "  \
    "helper thread looks after them. It starts when first needed and sleeps otherwise.")           \
  X(host_poll_interval, IntType, "host_poll_interval", 0, 0, 1 << 20, wait,                        \
    "A rank that waits asks the installed MPI library to make progress in one of this many "       \
    "rounds if something is pending there. 0 means automatic: in every round while the program "   \
    "has windows or has lately started a collective there, for half of the time while messages "   \
    "of it may come (by what asking costs, which is measured), else for 1/64 of it.")              \
  X(unmatched_wait_ns, DurationType, "unmatched_wait", 50 * kMicrosecond, 0, 10 * kSecond, p2p,    \
    "How long a sender waits for its receiver before it copies the message into its own memory "   \
    "and returns. Small values free senders sooner and use more memory.")                          \
  A(buffer_limit_bytes, SizeType, "buffer_limit", kGiB, 0, kTiB, p2p,                              \
    "Most memory per rank that such copies may take. At the limit senders wait for their "         \
    "receivers.")                                                                                  \
  A(inline_max_bytes, SizeType, "inline_max", 512, 0, 64 * kKiB, p2p,                              \
    "Largest message that travels inside the fast box of a pair of ranks. Values above about a "   \
    "fifth of `fastbox_bytes` count as that much.")                                                \
  A(fastbox_bytes, SizeType, "fastbox_bytes", 8 * kKiB, 1 * kKiB, kMiB, p2p,                       \
    "Memory of one fast box. A fast box belongs to one sender and one receiver and holds small "   \
    "messages.")                                                                                   \
  X(fastbox_peers, IntType, "fastbox_peers", 32, 0, 4096, p2p,                                     \
    "Most local ranks to which a rank keeps a fast box. The others are reached through the "       \
    "shared queue.")                                                                               \
  X(eager_max_bytes, SizeType, "eager_max", 16 * kKiB, 0, kGiB, p2p,                               \
    "Largest message whose data a sender puts into a cell before it knows that the receiver has "  \
    "arrived. Such a message fills one cell at most: values above `cell_bytes` count as "          \
    "`cell_bytes`.")                                                                               \
  A(pool_bytes, SizeType, "pool_bytes", 2 * kMiB, 64 * kKiB, kGiB, copy,                           \
    "Memory of the pool of cells through which a rank sends. The pool rotates: about twice the "   \
    "second-level cache is best, so that a cell that is written again has left the receiver's "    \
    "cache.")                                                                                      \
  A(cell_bytes, SizeType, "cell_bytes", 16 * kKiB, 1 * kKiB, 4 * kMiB, copy,                       \
    "Size of one cell; must be a power of two and at most a quarter of `pool_bytes`.")             \
  X(piece_bytes, SizeType, "piece_bytes", 16 * kKiB, 256, 4 * kMiB, copy,                          \
    "How much of a large message is copied into a cell before the receiver is told: small pieces " \
    "overlap the two copies better, large ones exchange fewer cache lines.")                       \
  A(frame_bytes, SizeType, "frame_bytes", 256 * kKiB, 0, 64 * kMiB, copy,                          \
    "Size of an exchange frame: memory in which the messages of a pair of ranks go to and fro. "   \
    "What is longer than a frame goes on in cells. 0: none.")                                      \
  A(frame_peers, IntType, "frame_peers", 16, 0, 4096, copy,                                        \
    "Most local ranks for which a rank has a frame; those that follow it in the order of ranks "   \
    "come first.")                                                                                 \
  X(copy, CopyChoice, "copy", CopyMode::kAuto, CopyMode::kAuto, CopyMode::kNontemporal, copy,      \
    "Which store instructions fill cells. `auto` decides by the measured distance of the two "     \
    "cores (`far_threshold`): ordinary stores near, non-temporal stores far. `nontemporal` uses "  \
    "them everywhere. Both leave pieces below `nontemporal_min` to ordinary stores.")              \
  X(far_threshold_ns, DurationType, "far_threshold", 100 * kNanosecond, 1 * kNanosecond,           \
    100 * kMicrosecond, copy,                                                                      \
    "Time one cache line takes from core to core from which a pair of ranks counts as far.")       \
  X(nontemporal_min_bytes, SizeType, "nontemporal_min", 1 * kKiB, 0, kTiB, copy,                   \
    "Smallest piece that is copied with non-temporal stores. It is compared with each piece of "   \
    "a message (see `piece_bytes`), not with the whole message.")                                  \
  X(reach, ReachChoice, "reach", ReachMode::kAll, ReachMode::kOff, ReachMode::kAll, reach,         \
    "Which of the program's own memory the ranks of a node may read and write directly. `heap`: "  \
    "large blocks of `malloc`; `static`: the program's static data, that is `.data`, `.bss` and "  \
    "Fortran `COMMON`; `all`: both. The heap begins before settings files are read: for it, set "  \
    "this and the other settings of this group in the environment or with `--set`.")               \
  X(reach_min_bytes, SizeType, "reach_min", 32 * kKiB, 4 * kKiB, kTiB, reach,                      \
    "Smallest block that `malloc` takes from reachable memory. Smaller ones come from the C "      \
    "library.")                                                                                    \
  X(reach_limit_bytes, SizeType, "reach_limit", 0, 0, 256 * kGiB, reach,                           \
    "Most reachable memory of one rank, in address space; what is beyond it comes from the C "     \
    "library. 0: twice the memory of the machine, at most 256 GiB.")                               \
  X(reach_keep_bytes, SizeType, "reach_keep", 0, 0, kTiB, reach,                                   \
    "How much freed reachable memory a rank may keep for reuse, once in its caches and once in "   \
    "its free lists; the rest goes back to the system. 0: a 32nd of the machine's memory divided " \
    "by its processors, between 32 MiB and 1 GiB; a 32nd of a control group's limit divided "      \
    "likewise where that is less.")                                                                \
  X(reach_huge, ReachHugeChoice, "reach_huge", ReachHuge::kAuto, ReachHuge::kAuto,                 \
    ReachHuge::kEager, reach,                                                                      \
    "Huge pages for reachable memory. `auto`: where the kernel gives them to ordinary memory "     \
    "without being asked, and within a part of the machine's memory, so that the program computes " \
    "as fast as without Overdrive; where it gives them to who asks (`madvise`), for memory that "  \
    "the program will probably touch, judged by the blocks before. `eager`: always, at once when " \
    "a block is allocated. `off`: never.")                                                                                      \
  X(reach_libraries, StringType, "reach_libraries", "", 0, 4096, reach,                            \
    "Libraries whose static data is made reachable as well: beginnings of their file names, "      \
    "separated by commas. The C library, the MPI library and Overdrive itself never are.")         \
  X(xpmem, XpmemChoice, "xpmem", XpmemMode::kAuto, XpmemMode::kAuto, XpmemMode::kOff, reach,       \
    "Whether buffers that do not lie in reachable memory (on the stack, of other allocators, in "  \
    "libraries) are read and written directly through the kernel module XPMEM. `auto`: where "     \
    "there is /dev/xpmem and the library was built for it, which `overdrive info` tells; `off`: "  \
    "never.")                                                                                      \
  X(device_memory, BoolType, "device_memory", true, false, true, reach,                            \
    "Recognises buffers in the memory of accelerators (CUDA, ROCm, oneAPI) in the calls that "     \
    "Overdrive serves, and copies them by the accelerator's own library. Costs nothing where no "  \
    "such library is loaded. Off: the program promises that all its buffers are in memory that "   \
    "the processor can touch, such as managed memory.")                                            \
  X(xpmem_min_bytes, SizeType, "xpmem_min", 32 * kKiB, 64, kTiB, reach,                            \
    "Smallest message that takes a buffer through XPMEM. Shorter ones take the same ways as "      \
    "without it.")                                                                                 \
  X(copy_path, PathChoice, "copy_path", CopyPath::kAuto, CopyPath::kAuto, CopyPath::kKernel, copy, \
    "Which way large messages take. `cells`: copied in and out through shared cells; `pull`: the "  \
    "receiver reads the sender's buffer; `push`: the sender writes the receiver's buffer once the " \
    "receive is posted; `cooperative`: both copy at the same time; `kernel`: the receiver reads "   \
    "through the operating system. A message that the chosen way cannot serve takes cells. "       \
    "`auto` chooses for each message by its size, the distance of the two cores and what has "     \
    "happened to the buffer since it was last sent, at first by the thresholds `near_…` and "      \
    "`far_…`, with `learn=on` then by what the ways cost in the running program.")                      \
  X(calibration, StringType, "calibration", "auto", 0, 4096, copy,                                 \
    "Which measured thresholds (the settings `near_…` and `far_…`) replace the built-in ones: "    \
    "`auto` those that `overdrive calibrate` has put into the user's configuration folder, `off` " \
    "none, anything else is the path of a calibration file. A file that was measured on another "  \
    "kind of processor, kernel or version has no effect.")                                         \
  X(pull_wait_ns, DurationType, "pull_wait", 5 * kMicrosecond, 0, 10 * kSecond, copy,               \
    "How long a sender whose buffer the receiver may read itself waits for the receiver before "   \
    "it copies the message aside and returns.")                                                    \
  X(near_pull_min_bytes, SizeType, "near_pull_min", 4 * kKiB, 0, kTiB, copy,                       \
    "Smallest message that the receiver reads from the sender's buffer when the sender has "       \
    "not rewritten it, or less than half of it, between cores that share a cache.")                \
  X(near_pull_rewritten_min_bytes, SizeType, "near_pull_rewritten_min", 768 * kKiB, 0, kTiB, copy,   \
    "The same for a buffer that the sender has rewritten since it last sent it, or received "      \
    "into. One that it sends for the first time is read so from `near_cooperative_min` on.")       \
  X(near_cooperative_min_bytes, SizeType, "near_cooperative_min", 128 * kKiB, 0, kTiB, copy,         \
    "Smallest message, of those that the receiver reads itself, at which the sender helps "        \
    "copying, between cores that share a cache.")                                                  \
  X(near_push_min_bytes, SizeType, "near_push_min", 512 * kKiB, 0, kTiB, copy,                       \
    "Smallest message that the sender writes straight into the receiver's buffer, unless it "      \
    "has received into its own since it last sent it, between cores that share a cache.")          \
  X(near_kernel_min_bytes, SizeType, "near_kernel_min", kTiB, 0, kTiB, copy,                       \
    "Smallest message that is read through the operating system when the sender's buffer is "      \
    "not shared, between cores that share a cache.")                                               \
  X(far_pull_min_bytes, SizeType, "far_pull_min", 4 * kKiB, 0, kTiB, copy,                         \
    "Smallest message that the receiver reads from the sender's buffer when the sender has "       \
    "not rewritten it, or less than half of it, between cores that do not share a cache.")         \
  X(far_pull_rewritten_min_bytes, SizeType, "far_pull_rewritten_min", kTiB, 0, kTiB, copy,         \
    "The same for a buffer that the sender has rewritten since it last sent it, or received "      \
    "into. One that it sends for the first time is read so from `far_cooperative_min` on.")        \
  X(far_cooperative_min_bytes, SizeType, "far_cooperative_min", 128 * kKiB, 0, kTiB, copy,               \
    "Smallest message, of those that the receiver reads itself, at which the sender helps "        \
    "copying, between cores that do not share a cache.")                                           \
  X(far_push_min_bytes, SizeType, "far_push_min", 256 * kKiB, 0, kTiB, copy,                             \
    "Smallest message that the sender writes straight into the receiver's buffer, between "        \
    "cores that do not share a cache.")                                                            \
  X(far_kernel_min_bytes, SizeType, "far_kernel_min", kTiB, 0, kTiB, copy,                         \
    "Smallest message that is read through the operating system when the sender's buffer is "      \
    "not shared, between cores that do not share a cache.")                                        \
  A(smpi_debug, BoolType, "smpi_debug", false, false, true, smpi,                                  \
    "Debug mode of the SMPI interface: each view of a message is a read-only mapping of its own "  \
    "that goes when it is released. Writing through a view, using or releasing it after its "      \
    "release, writing to a block while it is lent, and views that are left at `MPI_Finalize` are " \
    "reported with rank, size and the place in the program. Slow.")                                \
  X(smpi_limit_bytes, SizeType, "smpi_limit", 0, 0, kTiB, smpi,                                    \
    "Most memory of one rank in blocks of the SMPI interface; beyond it `SMPI_Alloc` fails with "  \
    "`MPI_ERR_NO_MEM`. 0: as much as there is reachable memory.")                                  \
  A(collectives, BoolType, "collectives", true, false, true, coll,                                 \
    "Serves collective operations; off leaves all of them to the installed MPI library. The same " \
    "on all ranks.")                                                                               \
  A(collective_memory, SizeType, "collective_memory", 256 * kKiB, 0, kTiB, coll,                   \
    "Most memory for prepared schedules of one communicator in one rank; those that have not "     \
    "been used for longest are made anew when they are needed.")                                   \
  A(collective_driver, DriverChoice, "collective_driver", ReductionDriver::kSegmented,              \
    ReductionDriver::kGeneric, ReductionDriver::kGrouped, coll,                                    \
    "How the ranks of a node divide long reductions. `generic`: each combines a slice of the "     \
    "whole vector. `segmented`: a slice of one segment after the other, first among the "          \
    "ranks that share a last-level cache, then across caches, with segments whose slices are "     \
    "collected while caches still hold them; with more ranks than cores without such groups. "     \
    "`grouped`: with them there, too.")                                                            \
  A(collective_slots, IntType, "collective_slots", 64, 0, 4096, coll,                              \
    "Places of a rank in shared memory for collectives that run at the same time: the "            \
    "blocking calls of a communicator take one, its non-blocking calls another one, and each "     \
    "persistent request one. What finds none left goes by messages. 0: all does.")                 \
  A(collective_slot_bytes, SizeType, "collective_slot", 4 * kMiB, 64 * kKiB, kGiB, coll,               \
    "Shared memory of each of them in a rank, for flags and for what passes through cells; only "  \
    "what is used takes memory.")                                                                  \
  A(tuning, StringType, "tuning", "auto", 0, 4096, coll,                                           \
    "Tuning file (JSON): rules that choose the algorithms of collectives. `auto`: the one that "   \
    "`overdrive tune` has put into the user's configuration folder for the installed MPI "         \
    "library, if there is one; `off`: none; anything else is a path. Rules in variables "          \
    "`OVERDRIVE_ADJUST_...` come before it; where none matches the built-in cost model chooses.")  \
  A(learn, LearnChoice, "learn", LearnMode::kNodes, LearnMode::kOff, LearnMode::kOn, coll,         \
    "Measures in the running program whether a blocking collective is faster with Overdrive "      \
    "or with the installed MPI library, and lets the faster one go on: for each "                  \
    "communicator, collective and range of sizes, in turn from the ninth call on, of short "       \
    "calls from the 33rd and where they have a root from the 81st, for 8 to 40 calls (with a "     \
    "root, or `on`, to 120), and again at call 128, 1,024 and each further power of "              \
    "two, in at most 1 % of the time (of calls below 0.4 ms once that of 64 calls more). "         \
    "`nodes`: on communicators that span nodes; `on`: on all, and more of Overdrive's other "      \
    "algorithms take part; `off`: never. Rules (`tuning`, `OVERDRIVE_ADJUST_...`) are obeyed "     \
    "without measuring. `on` measures the ways of messages from 4 KiB on too (`copy_path`), in "   \
    "at most 2 % of the time. Unless `off`, `MPI_Init` measures what messages between nodes "      \
    "take, for the cost model. As with any two algorithms, the last bits of a floating-point sum " \
    "may depend on who made it.")                                                                  \
  A(learn_file, OutputType, "learn_file", "", 0, 4096, coll,                                       \
    "File (JSON) in which what programs learn (`learn`) about the communicators that rank 0 "      \
    "belongs to is kept: read in `MPI_Init`, written in `MPI_Finalize`. The next job with the same " \
    "layout begins with what serves its calls best and goes on to measure where the one before "   \
    "has stopped; other layouts and sizes stay as they are. One that was written over another "    \
    "MPI library, or on another kind of machine, is neither used nor changed. As `tuning` it fixes " \
    "what was learnt. Empty: nothing is kept.")                                                     \
  A(first_arrival, BoolType, "first_arrival", true, false, true, coll,                             \
    "On communicators that span nodes ranks look how far apart those of each node come to "        \
    "broadcasts, scatters, reductions to a root and gathers of 64 KiB and more, and tell each "    \
    "other when all other algorithms have been measured, and before calls 16, 32, 64 and so on "   \
    "(of up to 256 KiB before 64, 256, 1,024 and so on); places in the program that take turns "   \
    "are told apart. Where it may pay, broadcasts and scatters that start on each node with "      \
    "whoever comes first, reductions that its last rank ends, and gathers whose blocks leave it "  \
    "as they come, take turns for 4 to 24 calls with what has been found the best of all others, " \
    "and are kept to where ranks wait less; from call 1,024 on once wherever ranks come. Needs `learn`. " \
    "`OVERDRIVE_ADJUST_BCAST=first_arrival`, and the same for REDUCE, GATHER, GATHERV, "           \
    "SCATTER and SCATTERV, takes them without measuring.")                                         \
  A(progress, ProgressChoice, "progress", ProgressMode::kOff, ProgressMode::kOff,                  \
    ProgressMode::kAgent, coll,                                                                    \
    "Who makes non-blocking and persistent collectives go on, on communicators that span nodes. "  \
    "`off`: they are left to the installed MPI library. `calls`: Overdrive serves them, with the " \
    "same algorithms as blocking ones, and every call of MPI makes them go on. `agent`: a helper " \
    "thread does so as well while the program computes; it looks every 0.1 or 0.2 ms, and sleeps " \
    "while nothing is under way. Both initialise "                                                 \
    "the installed MPI library for `MPI_THREAD_MULTIPLE`, whatever the program asks for, because " \
    "a helper thread looks after them while the program is in one of that library's own blocking " \
    "calls. Not for programs with MPI windows over Open MPI 4, whose windows over TCP do not "     \
    "permit that level. Set it in the environment or with `--set`.")                               \
  A(nonblocking_min_bytes, SizeType, "nonblocking_min", 64 * kKiB, 0, kTiB, coll,                  \
    "Smallest message of such a collective that Overdrive serves; shorter ones are left to the "   \
    "installed MPI library. The size is that by which algorithms are chosen; `alltoallv` and "     \
    "`alltoallw` have none and count as 0.")                                                       \
  A(nonblocking_reduce_min_bytes, SizeType, "nonblocking_reduce_min", 512 * kKiB, 0, kTiB, coll,   \
    "The same for reductions.")                                                                    \
  A(neighbour_collectives, NeighbourChoice, "neighbour_collectives", NeighbourMode::kNode,         \
    NeighbourMode::kOff, NeighbourMode::kAll, coll,                                                \
    "Which collectives among the neighbours of a topology (`MPI_Neighbor_alltoall` and its kin) "  \
    "Overdrive serves. `node`: those that gain by it for certain, inside a node: equal blocks of " \
    "2 KiB and more on grids of three places or not periodic; and on communicators that span "     \
    "nodes and have two ranks on one, blocking ones on such grids where they are measured to be "  \
    "faster in the running program (`learn`). `all`: all others, too, there as well, "             \
    "unmeasured; non-blocking and persistent ones there need `progress`. `off`: none; they are "   \
    "left to the installed MPI library.")                                                          \
  A(switch_address, StringType, "switch", "off", 0, 256, coll,                                     \
    "A switch that adds up what nodes send (`overdrive-switch`). `auto`: whichever is on the way " \
    "between the nodes, from the first interface that is up; `auto:eth1`: from this one. "         \
    "`10.0.0.1` or `10.0.0.1:4791`: the one at this address. `off`: none. Where it cannot serve "  \
    "or fails, collectives go as usual. In a lab with switches (`overdrive lab`) `auto` is set.")  \
  A(switch_max_bytes, SizeType, "switch_max", 64 * kKiB, 0, 64 * kKiB, coll,                        \
    "Largest message of a collective for which the switch is tried without a rule that says so "   \
    "(`in_network_node`). Up to there it is measured against the other ways, for each range of "   \
    "sizes by itself. 0: it is not tried.")                                                        \
  A(overlap, OverlapChoice, "overlap", OverlapMode::kOff, OverlapMode::kOff, OverlapMode::kAuto, coll, \
    "Lets blocking broadcasts, allgathers and all-to-alls on communicators that span nodes return " \
    "before their data has arrived. `on`: what is still on its way is kept from the program by "   \
    "page protection, whoever touches it waits for it, and the next call of MPI completes the "    \
    "rest. Only for programs that do not ask for `MPI_THREAD_MULTIPLE`, and for receive buffers "  \
    "in reachable memory; other calls complete before they return. `trace`: calls complete "       \
    "before they return, and the order in which the program touches what it got is written to "    \
    "a file (`overlap_trace`). `auto`: as `off`, until measuring a few calls of a kind on a "      \
    "communicator has shown that all places from which they are made gain by `on`; measured "      \
    "again and again. `off`: all calls complete before they return.")                              \
  A(overlap_min_bytes, SizeType, "overlap_min", 64 * kKiB, 1, kTiB, coll,                          \
    "Smallest message that `overlap` applies to: the vector of a broadcast, else the block of one "\
    "rank, on average where blocks differ. Of `MPI_Alltoallv`, whose sizes only two ranks know "   \
    "each, it applies to all calls.")                                                              \
  A(overlap_trace, OutputType, "overlap_trace", "overdrive_trace", 0, 4096, coll,                  \
    "Folder for files about the order in which programs touch what collectives bring, one for "    \
    "each program: `overlap=trace` and `auto` write them, `on` and `auto` send first what was "    \
    "needed first. A file of another program or version is left aside. `off`: neither.")           \
  A(intel_adjust, BoolType, "intel_adjust", false, false, true, coll,                              \
    "Also obeys the variables `I_MPI_ADJUST_...` of Intel MPI where the one of Overdrive is not "  \
    "set, so that scripts carry over.")                                                            \
  A(collective_shuffle, IntType, "collective_shuffle", 0, 0, 1 << 30, test,                       \
    "For tests: serves each collective call with one of the algorithms that can, by chance. The "  \
    "number is the seed; 0: off.")                                                                 \
  A(test_remote, PairsType, "test_remote", {}, 0, 4096, test,                                      \
    "For tests: treats these pairs of ranks of `MPI_COMM_WORLD` as if they were on different "     \
    "nodes. `0-1,2-3` lists pairs, `all` means every pair.")
// clang-format on

#endif  // OVERDRIVE_CONFIG_SETTINGS_TABLE_H_
