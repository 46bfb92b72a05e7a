// Partitioned messages of random programs.
//
//   psend q= c= to= tag= parts= n= type= mem=      precv q= c= from= tag= parts= n= type= mem=
//   start q= m=                                     as other persistent requests
//   pready q= how=one|list|range list=P,P,..        these parts are ready
//   parrived q= part=                               looks; what has arrived must be right
// `n` is the number of basic elements of a part, a multiple of what the datatype holds. The content
// follows from the number of the start, which both sides are given.
#ifndef PARTITIONED_H_
#define PARTITIONED_H_

#include "messages.h"

#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAVE_PARTITIONED 1
#else
#define HAVE_PARTITIONED 0
#endif

static long part_elements(const Slot* slot) { return arg_needed(slot->op, "n"); }

// Elements [first, first + n) of the message.
static void part_write(const Slot* slot, char* address, long first, long n) {
  layout_fill(&slot->layout, address, first, n, slot->key + (uint64_t)first);
}

static void part_start(const Session* s, Slot* slot, long number) {
  slot->key = content_key(s->program, 400000 + number, 0, 0);
  memset(slot->buffer.region, kUntouched, (size_t)slot->buffer.bytes);
}

static void part_check(const Slot* slot, const Op* op) {
  char* image = image_begin(&slot->buffer);
  part_write(slot, image + (slot->buffer.address - slot->buffer.region), 0, slot->elements);
  image_check(op, &slot->buffer, image,
              slot->kind == kPartRecv ? "partitioned message" : "buffer of a partitioned send");
}

#if HAVE_PARTITIONED

static void do_part_init(Session* s, const Op* op) {
  const int sends = strcmp(op->verb, "psend") == 0;
  const Comm* comm = comm_of(op, "c");
  const int parts = (int)arg_needed(op, "parts"), tag = (int)arg_needed(op, "tag");
  Slot* slot = slot_take(s, op, sends ? kPartSend : kPartRecv);
  slot->layout = layout_make(op, arg_text(op, "type"));
  slot->elements = part_elements(slot) * parts;
  slot->buffer = buffer_make(op, &s->arenas, arg_text(op, "mem"), &slot->layout, slot->elements);
  slot->persistent = 1;
  const MPI_Count count = part_elements(slot) / slot->layout.per;
  if (sends) {
    MUST(op, MPI_Psend_init(slot->buffer.address, parts, count, slot->layout.type,
                            peer_arg(op, "to"), tag, comm->comm, MPI_INFO_NULL, &slot->request));
  } else {
    MUST(op, MPI_Precv_init(slot->buffer.address, parts, count, slot->layout.type,
                            peer_arg(op, "from"), tag, comm->comm, MPI_INFO_NULL, &slot->request));
  }
  layout_free_handle(&slot->layout);
}

static void do_part_ready(Session* s, const Op* op) {
  Slot* slot = slot_of(s, op, arg_needed(op, "q"));
  long parts[kMostRanks];
  int list[kMostRanks];
  const int count = arg_list(op, "list", parts, kMostRanks);
  for (int i = 0; i < count; i++) {
    list[i] = (int)parts[i];
    part_write(slot, slot->buffer.address, parts[i] * part_elements(slot), part_elements(slot));
  }
  if (arg_is(op, "how", "list")) {
    MUST(op, MPI_Pready_list(count, list, slot->request));
  } else if (arg_is(op, "how", "range")) {
    MUST(op, MPI_Pready_range(list[0], list[count - 1], slot->request));
  } else {
    for (int i = 0; i < count; i++) MUST(op, MPI_Pready(list[i], slot->request));
  }
}

static void do_part_arrived(Session* s, const Op* op) {
  Slot* slot = slot_of(s, op, arg_needed(op, "q"));
  const long part = arg_needed(op, "part"), n = part_elements(slot);
  int flag = 0;
  if (!slot->active) return;  // a look at all requests has completed it
  MUST(op, MPI_Parrived(slot->request, (int)part, &flag));
  for (long e = 0; flag && e < n; e++) {
    const uint64_t word = content_word(slot->key, part * n + e);
    const char* place = slot->buffer.address + layout_place(&slot->layout, part * n + e);
    REQUIRE(op, memcmp(place, &word, (size_t)slot->layout.size) == 0,
            "part %ld has arrived, but its element %ld is wrong", part, e);
  }
}

#else
static void do_part_init(Session* s, const Op* op) {
  (void)s;
  fail(op, "no partitioned messages here");
}
static void do_part_ready(Session* s, const Op* op) { do_part_init(s, op); }
static void do_part_arrived(Session* s, const Op* op) { do_part_init(s, op); }
#endif

#endif  // PARTITIONED_H_
