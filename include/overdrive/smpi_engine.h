/* What Overdrive offers to the SMPI interface of a program: one table of plain functions.
 *
 * Programs do not use this directly; smpi.h, the Python module and the library share it. The
 * preloaded library exports `overdrive_smpi_engine`, which returns the table, or null when this
 * process shares nothing. All functions may be called by several threads at once and take
 * overdrive_smpi_engine.self as first argument. The header knows no MPI and no C++.
 */
#ifndef OVERDRIVE_SMPI_ENGINE_H_
#define OVERDRIVE_SMPI_ENGINE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever the meaning or the layout of anything below changes. What is only added at the
 * end of the table is there if size_bytes says so. */
#define OVERDRIVE_SMPI_VERSION 2u

/* Room in front of a block's first byte: its record, at last 48 bytes which the interface uses for
 * the head of a message that travels together with the block's contents. */
#define OVERDRIVE_SMPI_FRONT_BYTES 192u
#define OVERDRIVE_SMPI_HEAD_BYTES 48u
/* What a short message begins with. */
#define OVERDRIVE_SMPI_PREFIX_BYTES 16u
/* Every block begins at a multiple of this. */
#define OVERDRIVE_SMPI_ALIGNMENT 64u

/* Results. */
enum {
  OVERDRIVE_SMPI_OK = 0,
  OVERDRIVE_SMPI_NOT_A_BLOCK = 1, /* the memory is not that of a live block */
  OVERDRIVE_SMPI_NO_MEMORY = 2,
  OVERDRIVE_SMPI_BAD_PLACE = 3, /* a peer has told a place that cannot be */
  OVERDRIVE_SMPI_BY_CONTENT = 4 /* nothing was lent: the data had better go with the message */
};

/* Where the data of a message lies: in the arena of which rank of this group, and where there. */
struct overdrive_smpi_place {
  uint64_t block;  /* offset of the block's first byte */
  uint64_t offset; /* of the message's */
  uint64_t bytes;
  uint32_t home;   /* whose arena: overdrive_smpi_engine.member of that rank */
  uint32_t passed; /* 1: the receiver becomes the owner */
};

struct overdrive_smpi_engine {
  uint32_t version;
  uint32_t size_bytes;
  void* self;
  /* Ranks with the same group reach each other's blocks; member tells them apart. */
  uint64_t group[2];
  int32_t member;
  int32_t debug; /* views are mapped for themselves, misuse is reported */

  /* A new block of this rank; null: no (reachable) memory. `site`: where in the program, or null;
   * such texts live as long as the process. */
  void* (*alloc)(void* self, uint64_t bytes, const char* site);
  /* Gives up ownership. The memory is used again when no view is left. */
  int (*free)(void* self, void* block, const char* site);
  /* Room of a block that this rank owns, by its first byte. */
  int (*capacity)(void* self, const void* block, uint64_t* bytes);
  /* Lends [address, address + bytes), which lies in a live block, to `views` viewers. */
  int (*lend)(void* self, const void* address, uint64_t bytes, uint32_t views,
              struct overdrive_smpi_place* place);
  /* Takes back what nobody will receive. */
  void (*take_back)(void* self, const struct overdrive_smpi_place* place, uint32_t views);
  /* Hands a block over: it is the receiver's from here on. */
  int (*pass)(void* self, void* block, uint64_t bytes, struct overdrive_smpi_place* place);
  /* Makes a block what a view refers to, as if it had been passed and received: open() follows. */
  int (*settle)(void* self, void* block, uint64_t bytes, struct overdrive_smpi_place* place);
  /* The address of what a peer has lent or passed, and a number for it (0 without debug). */
  int (*open)(void* self, const struct overdrive_smpi_place* place, const char* site,
              const void** address, uint64_t* view);
  /* Ends a view. */
  void (*close)(void* self, const struct overdrive_smpi_place* place, uint64_t view);
  /* Ends a view whose block was passed, and makes the caller the block's owner. */
  int (*own)(void* self, const struct overdrive_smpi_place* place, uint64_t view, const char* site,
             void** block);
  /* How many views of the block there are, those under way included; -1: not a block. */
  int64_t (*lent)(void* self, const void* block);
  /* Between two looks at `lent`: gives the core away, ends the job when a peer has died. */
  void (*pause)(void* self);
  /* Reports a view that is released twice. */
  void (*released_twice)(void* self, uint64_t view);
  /* A message whose data was copied because the peer is not in this group. */
  void (*note_copy)(void* self, uint64_t bytes);

  /* Added at the end. */

  /* As lend() to one viewer, but may find that the data had better be copied into the message;
   * *place tells also then where it is. */
  int (*offer)(void* self, const void* address, uint64_t bytes, struct overdrive_smpi_place* place);
  /* A block is being sent by a request of MPI's, whose handle lies at `request`, which the program
   * gets: gives the block up now, and frees it when the program has completed the request. Anything
   * but OVERDRIVE_SMPI_OK: nothing was done, the caller has to complete the request itself. */
  int (*free_after)(void* self, void* block, const void* request);

  /* Short messages without MPI's calls, on the communicator whose handle lies at `comm`: what the
   * two functions below take for it, valid until it is freed; null: there are none. The same
   * messages as MPI_Send and MPI_Recv send and receive, in one order with them. */
  void* (*messages)(void* self, const void* comm);
  /* A message of OVERDRIVE_SMPI_PREFIX_BYTES at `prefix` and `bytes` at `data` behind them.
   * Anything but OVERDRIVE_SMPI_OK: it cannot leave at once, and nothing has been sent. */
  int (*send_short)(void* messages, const void* prefix, const void* data, uint32_t bytes, int dest,
                    int tag);
  /* Receives a message of at most `room` bytes: its length. Less than 0: it has not come yet or is
   * none of the kind, and nothing was received. */
  int64_t (*recv_short)(void* messages, void* to, uint32_t room, int source, int tag);
};

typedef const struct overdrive_smpi_engine* (*overdrive_smpi_engine_fn)(uint32_t version);
#define OVERDRIVE_SMPI_SYMBOL "overdrive_smpi_engine"

#ifdef __cplusplus
}
#endif

#endif /* OVERDRIVE_SMPI_ENGINE_H_ */
