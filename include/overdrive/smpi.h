/* SMPI: pass the address of a message instead of its data.
 *
 * Between ranks that run under Overdrive on one node a message of this interface is a few words
 * that say where its data lies; the receiver gets a read-only view of it there. Ranks of other
 * nodes, and programs that run without Overdrive, get copies by the program's own MPI library: the
 * source is the same, and so are the results.
 *
 * Include this header after, or instead of, <mpi.h>; there is nothing to link. All functions return
 * MPI error codes and call the error handler of the communicator as MPI's own do. They may be
 * called from several threads where the program has asked for MPI_THREAD_MULTIPLE.
 *
 *   SMPI_Comm_attach(comm);                     // collective, once for each communicator
 *   SMPI_Alloc(n * sizeof(double), &block);     // message memory
 *   SMPI_Send(block, n, MPI_DOUBLE, 1, 0, comm);                  // lends it
 *   SMPI_Recv(&view, n, MPI_DOUBLE, 0, 0, comm, &status);         // rank 1: sees it
 *   SMPI_View_get(view, &data, MPI_STATUS_IGNORE);
 *   SMPI_View_release(&view);
 *   SMPI_Reclaim(block);                        // the owner may write again
 *
 * Rules:
 * - What is sent with SMPI calls is received with SMPI calls on the same communicator; they never
 *   match other messages.
 * - A block that was sent may not be written until SMPI_Reclaim has returned or SMPI_Lent says 0.
 * - Any memory may be sent; what does not lie in a block is copied first.
 * - Datatypes are contiguous ones: size and extent are equal.
 * - Requests of SMPI_Isend, SMPI_Irecv, SMPI_Ipass and of non-blocking collective calls are
 *   ordinary ones: MPI_Wait, MPI_Waitall, MPI_Testany and so on complete them, in arrays together
 *   with others. Source and tag of their statuses are right; how long the message was, and errors
 *   of SMPI, SMPI_View_get says.
 * The manual pages smpi(7) and SMPI_*(3) say more; examples lie in share/overdrive/examples.
 */
#ifndef OVERDRIVE_SMPI_H_
#define OVERDRIVE_SMPI_H_

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A received message: its data may be read until the view is released. */
typedef struct smpi_view_* SMPI_View;
#define SMPI_VIEW_NULL ((SMPI_View)0)

/* Makes `comm` known to SMPI; collective. It is detached when it is freed. On
 * inter-communicators messages are possible, collectives are not. */
int SMPI_Comm_attach(MPI_Comm comm);
int SMPI_Comm_detach(MPI_Comm comm);
/* Whether messages to and from `rank` go by address. */
int SMPI_Comm_near(MPI_Comm comm, int rank, int* flag);

/* Message memory of `size` bytes, aligned to 64; `baseptr` is the address of a pointer. Its owner
 * may write it while it is not lent, and gives it back with SMPI_Free or away with SMPI_Pass. */
int SMPI_Alloc(MPI_Aint size, void* baseptr);
/* Views of it stay valid; the memory is used again when the last one is released. */
int SMPI_Free(void* base);
/* How many views of the block there are, messages under way included. */
int SMPI_Lent(const void* base, int* views);
/* Waits until there are none: from then on the owner may write again. */
int SMPI_Reclaim(const void* base);

/* Lends count elements at `buf` to rank `dest`. */
int SMPI_Send(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
              MPI_Comm comm);
int SMPI_Isend(const void* buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag,
               MPI_Comm comm, MPI_Request* request);
/* Makes `dest` the owner of the block that begins at `base`; count elements of it are the message.
 * The caller must not touch it any more, also before the request is complete; it never waits for
 * the receiver. */
int SMPI_Pass(void* base, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);
int SMPI_Ipass(void* base, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
               MPI_Request* request);

/* Receives a message of at most count elements. */
int SMPI_Recv(SMPI_View* view, MPI_Count count, MPI_Datatype datatype, int source, int tag,
              MPI_Comm comm, MPI_Status* status);
int SMPI_Irecv(SMPI_View* view, MPI_Count count, MPI_Datatype datatype, int source, int tag,
               MPI_Comm comm, MPI_Request* request);
/* The status tells source, tag and, by MPI_Get_count, how long the message is. */
int SMPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status);
int SMPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status);

/* Where the data of a view is; `addressp` is the address of a pointer to const, or null. Of a view
 * from SMPI_Irecv only after its request is complete. */
int SMPI_View_get(SMPI_View view, void* addressp, MPI_Status* status);
/* Ends the view. */
int SMPI_View_release(SMPI_View* view);
/* Ends the view and gives the caller a block of its own with the data: the one that was passed,
 * else a copy. */
int SMPI_View_own(SMPI_View* view, void* baseptr);

/* Collective calls. Each rank gets views of its own to release, the root included. Counts and
 * datatypes are the same on all ranks. `buf` is significant at the root of SMPI_Bcast and
 * SMPI_Scatter (count: elements for each rank). `views` has room for one view per rank. */
int SMPI_Bcast(const void* buf, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
               SMPI_View* view);
int SMPI_Scatter(const void* buf, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
                 SMPI_View* view);
int SMPI_Allgather(const void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Comm comm,
                   SMPI_View views[]);

/* The same without waiting. `buf` is not to be changed before the request is complete, and views
 * are not to be looked at or released. */
int SMPI_Ibcast(const void* buf, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
                SMPI_View* view, MPI_Request* request);
int SMPI_Iscatter(const void* buf, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm,
                  SMPI_View* view, MPI_Request* request);
int SMPI_Iallgather(const void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Comm comm,
                    SMPI_View views[], MPI_Request* request);

#include "overdrive/smpi_icollectives.h"

#ifdef __cplusplus
}
#endif

/* The debug mode reports the place in the program where a block or view was made. */
#ifndef SMPI_WITHOUT_SITES
#define SMPI_TEXT2_(x) #x
#define SMPI_TEXT_(x) SMPI_TEXT2_(x)
#define SMPI_AT_(function) (smpi_site_ = __FILE__ ":" SMPI_TEXT_(__LINE__), (function))
#define SMPI_Alloc(...) SMPI_AT_(SMPI_Alloc)(__VA_ARGS__)
#define SMPI_Recv(...) SMPI_AT_(SMPI_Recv)(__VA_ARGS__)
#define SMPI_Irecv(...) SMPI_AT_(SMPI_Irecv)(__VA_ARGS__)
#define SMPI_Bcast(...) SMPI_AT_(SMPI_Bcast)(__VA_ARGS__)
#define SMPI_Scatter(...) SMPI_AT_(SMPI_Scatter)(__VA_ARGS__)
#define SMPI_Allgather(...) SMPI_AT_(SMPI_Allgather)(__VA_ARGS__)
#define SMPI_Ibcast(...) SMPI_AT_(SMPI_Ibcast)(__VA_ARGS__)
#define SMPI_Iscatter(...) SMPI_AT_(SMPI_Iscatter)(__VA_ARGS__)
#define SMPI_Iallgather(...) SMPI_AT_(SMPI_Iallgather)(__VA_ARGS__)
#define SMPI_View_own(...) SMPI_AT_(SMPI_View_own)(__VA_ARGS__)
#endif

#endif /* OVERDRIVE_SMPI_H_ */
