// Point-to-point messages from, to and between buffers on devices: every entry point, every place
// a buffer can be in, datatypes of every shape. --device=0 leaves out the buffers that the host
// must not touch, for hosts alone.
#include "device.h"

enum { SPLIT_RUNS = 70000 };

// --- datatypes with their type maps
typedef struct {
  const char* name;
  MPI_Datatype type;
  long extent;
  int runs;
  const long (*run)[2];  // offset and length of each, in typemap order
} Type;

static const long kBytes[][2] = {{0, 1}};
static const long kVector[][2] = {{0, 16}, {40, 16}, {80, 16}};
static const long kStruct[][2] = {{24, 4}, {0, 8}, {12, 2}, {50, 7}};
static const long kResized[][2] = {{8, 8}};
static const long kBackwards[][2] = {{0, 8}, {-32, 8}, {-64, 8}};
static long split[SPLIT_RUNS][2];
enum { BYTES, VECTOR, STRUCT, RESIZED, BACKWARDS, SPLIT, TYPES };
static Type types[TYPES];

static void make_types(void) {
  types[BYTES] = (Type){"bytes", MPI_BYTE, 1, 1, kBytes};
  types[VECTOR] = (Type){"vector", MPI_DATATYPE_NULL, 96, 3, kVector};
  MPI_Type_vector(3, 2, 5, MPI_DOUBLE, &types[VECTOR].type);
  types[STRUCT] = (Type){"struct", MPI_DATATYPE_NULL, 57, 4, kStruct};
  int lengths[] = {4, 8, 2, 7};
  MPI_Aint places[] = {24, 0, 12, 50};
  MPI_Type_create_hindexed(4, lengths, places, MPI_BYTE, &types[STRUCT].type);
  types[RESIZED] = (Type){"resized", MPI_DATATYPE_NULL, 24, 1, kResized};
  MPI_Datatype shifted;
  int one = 1;
  MPI_Aint eight = 8;
  MPI_Type_create_hindexed(1, &one, &eight, MPI_DOUBLE, &shifted);
  MPI_Type_create_resized(shifted, 0, 24, &types[RESIZED].type);
  MPI_Type_free(&shifted);
  types[BACKWARDS] = (Type){"backwards", MPI_DATATYPE_NULL, 72, 3, kBackwards};
  MPI_Type_create_hvector(3, 1, -32, MPI_DOUBLE, &types[BACKWARDS].type);
  // More runs than Overdrive keeps in a list.
  static int split_lengths[SPLIT_RUNS];
  static MPI_Aint split_places[SPLIT_RUNS];
  long at = 0;
  for (int i = 0; i < SPLIT_RUNS; i++) {
    split[i][0] = split_places[i] = at;
    split[i][1] = split_lengths[i] = 1 + i * 7 % 3;
    at += split_lengths[i] + 1 + i * 5 % 4;
  }
  types[SPLIT] = (Type){"split", MPI_DATATYPE_NULL, 0, SPLIT_RUNS, (const long(*)[2])split};
  types[SPLIT].extent = split[SPLIT_RUNS - 1][0] + split[SPLIT_RUNS - 1][1];
  MPI_Type_create_hindexed(SPLIT_RUNS, split_lengths, split_places, MPI_BYTE, &types[SPLIT].type);
  for (int t = VECTOR; t < TYPES; t++) MPI_Type_commit(&types[t].type);
}

// --- typed buffers with a copy of what must be in them
typedef struct {
  Buffer buffer;
  const Type* type;
  int count;
  long lower, bytes;  // the stretch of memory around the elements' address
  long size;          // of the data
  char* expected;     // everything in that stretch
} Data;

static Data data_make(enum Place place, const Type* type, int count, uint64_t key) {
  Data data = {.type = type, .count = count};
  long lower = 0, upper = 0;
  for (int i = 0; i < type->runs; i++) {
    if (type->run[i][0] < lower) lower = type->run[i][0];
    if (type->run[i][0] + type->run[i][1] > upper) upper = type->run[i][0] + type->run[i][1];
    data.size += type->run[i][1];
  }
  data.size *= count;
  data.lower = lower;
  data.bytes = upper - lower + (count > 0 ? count - 1 : 0) * type->extent;
  data.buffer = buffer_make(place, (size_t)data.bytes);
  data.expected = malloc((size_t)data.bytes + 1);
  odt_fill(data.expected, (size_t)data.bytes, key);
  buffer_put(&data.buffer, data.expected, (size_t)data.bytes);
  return data;
}
static void* address(const Data* data) { return data->buffer.data - data->lower; }
static void data_refill(Data* data, uint64_t key) {
  odt_fill(data->expected, (size_t)data->bytes, key);
  buffer_put(&data->buffer, data->expected, (size_t)data->bytes);
}
// Moves the first `bytes` of data between `expected` and `packed`.
static void data_move(Data* data, char* packed, long bytes, int pack) {
  char* element = data->expected - data->lower;
  while (bytes > 0) {
    for (int i = 0; i < data->type->runs && bytes > 0; i++) {
      long now = data->type->run[i][1] < bytes ? data->type->run[i][1] : bytes;
      char* run = element + data->type->run[i][0];
      memcpy(pack ? packed : run, pack ? run : packed, (size_t)now);
      packed += now;
      bytes -= now;
    }
    element += data->type->extent;
  }
}
static void data_check(Data* data, const char* what) {
  char* found = malloc((size_t)data->bytes + 1);
  buffer_get(&data->buffer, found, (size_t)data->bytes);
  long at = 0;
  while (at < data->bytes && found[at] == data->expected[at]) at++;
  CHECK(at == data->bytes, "%s: %s x %d in %s memory differs at byte %ld of %ld", what,
        data->type->name, data->count, kPlaceNames[data->buffer.place], at, data->bytes);
  free(found);
}
static void data_drop(Data* data) {
  buffer_drop(&data->buffer);
  free(data->expected);
}

// --- one message
enum SendKind {
  SEND,
  SSEND,
  BSEND,
  RSEND,
  ISEND,
  ISSEND,
  IBSEND,
  IRSEND,
  SEND_INIT,
  SSEND_INIT,
  BSEND_INIT,
  RSEND_INIT,
  SENDS
};
enum RecvKind { RECV, RECV_ANY, IRECV, RECV_INIT, MRECV, IMRECV, RECVS };

typedef int (*Blocking)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
typedef int (*Started)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
static const Blocking kBlocking[] = {MPI_Send, MPI_Ssend, MPI_Bsend, MPI_Rsend};
static const Started kStarted[] = {MPI_Isend, MPI_Issend, MPI_Ibsend, MPI_Irsend};
static const Started kPersistent[] = {MPI_Send_init, MPI_Ssend_init, MPI_Bsend_init,
                                      MPI_Rsend_init};

enum { ROUNDS = 2, TAG = 7 };
static uint64_t keys;

static void send_rounds(enum SendKind kind, enum Place place, const Type* type, int count, int to,
                        MPI_Comm comm, uint64_t key) {
  Data data = data_make(place, type, count, key);
  MPI_Request request = MPI_REQUEST_NULL;
  if (kind >= SEND_INIT) {
    MUST(kPersistent[kind - SEND_INIT](address(&data), count, type->type, to, TAG, comm, &request));
  }
  for (int round = 0; round < ROUNDS; round++) {
    data_refill(&data, key + (uint64_t)round);
    // Ready sends want their receive to be posted.
    if (kind % 4 == 3) MUST(MPI_Recv(NULL, 0, MPI_BYTE, to, TAG + 1, comm, MPI_STATUS_IGNORE));
    if (kind < ISEND) {
      MUST(kBlocking[kind](address(&data), count, type->type, to, TAG, comm));
    } else if (kind < SEND_INIT) {
      MUST(kStarted[kind - ISEND](address(&data), count, type->type, to, TAG, comm, &request));
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    } else {
      MUST(MPI_Start(&request));
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
  }
  if (kind >= SEND_INIT) MUST(MPI_Request_free(&request));
  data_check(&data, "sent");
  data_drop(&data);
}

// The receive is `more` elements longer than the message.
static void recv_rounds(enum RecvKind kind, int ready, enum Place place, const Type* type,
                        int count, int more, int from, MPI_Comm comm, uint64_t key) {
  Data data = data_make(place, type, count + more, key + 100);
  Data sent = data_make(HEAP, type, count, key);
  char* packed = malloc((size_t)sent.size + 1);
  int room = count + more;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Status status;
  MPI_Message message;
  if (ready) kind = kind == RECV_INIT ? RECV_INIT : IRECV;
  if (kind == RECV_INIT) {
    MUST(MPI_Recv_init(address(&data), room, type->type, from, TAG, comm, &request));
  }
  for (int round = 0; round < ROUNDS; round++) {
    data_refill(&data, key + 200 + (uint64_t)round);
    if (kind == IRECV) {
      MUST(MPI_Irecv(address(&data), room, type->type, from, TAG, comm, &request));
    } else if (kind == RECV_INIT) {
      MUST(MPI_Start(&request));
    }
    if (ready) MUST(MPI_Send(NULL, 0, MPI_BYTE, from, TAG + 1, comm));
    if (kind == IRECV || kind == RECV_INIT) {
      MUST(MPI_Wait(&request, &status));
    } else if (kind == RECV || kind == RECV_ANY) {
      MUST(MPI_Recv(address(&data), room, type->type, kind == RECV ? from : MPI_ANY_SOURCE, TAG,
                    comm, &status));
    } else {
      MUST(MPI_Mprobe(from, TAG, comm, &message, MPI_STATUS_IGNORE));
      if (kind == MRECV) {
        MUST(MPI_Mrecv(address(&data), room, type->type, &message, &status));
      } else {
        MUST(MPI_Imrecv(address(&data), room, type->type, &message, &request));
        MUST(MPI_Wait(&request, &status));
      }
    }
    int elements = -1;
    MUST(MPI_Get_count(&status, type->type, &elements));
    CHECK(elements == count, "%d elements of %d, %s", elements, count, type->name);
    data_refill(&sent, key + (uint64_t)round);
    data_move(&sent, packed, sent.size, 1);
    data_move(&data, packed, sent.size, 0);
    data_check(&data, "received");
  }
  if (kind == RECV_INIT) MUST(MPI_Request_free(&request));
  free(packed);
  data_drop(&data);
  data_drop(&sent);
}

static int device_buffers = 1;
static int usable(enum Place place) { return place != DEVICE || device_buffers; }

static void message(enum SendKind send, enum RecvKind recv, enum Place from, enum Place to,
                    const Type* type, int count, int more) {
  if (!usable(from) || !usable(to)) return;
  keys += 1000;
  for (int sender = 0; sender < 2; sender++) {
    if (odt.rank == sender) {
      send_rounds(send, from, type, count, 1 - sender, MPI_COMM_WORLD, keys);
    } else if (odt.rank == 1 - sender) {
      recv_rounds(recv, send % 4 == 3, to, type, count, more, sender, MPI_COMM_WORLD, keys);
    }
  }
}

static void every_entry_point(void) {
  static const int kCounts[] = {5, 600, 20000, 300000};
  for (int send = 0; send < SENDS; send++) {
    for (int recv = 0; recv < RECVS; recv++) {
      int count = kCounts[(send + recv) % 4];
      message(send, recv, DEVICE, DEVICE, &types[BYTES], count, 0);
      message(send, recv, DEVICE, HEAP, &types[VECTOR], count / 50 + 1, 0);
      message(send, recv, HEAP, DEVICE, &types[VECTOR], count / 50 + 1, 2);
    }
  }
}

static void every_place_and_type(void) {
  for (int from = 0; from < PLACES; from++) {
    for (int to = 0; to < PLACES; to++) {
      if (from != DEVICE && to != DEVICE && from != to) continue;
      message(SEND, RECV, from, to, &types[BYTES], 0, 3);
      message(SEND, RECV, from, to, &types[BYTES], 100, 0);
      message(ISEND, IRECV, from, to, &types[BYTES], 1500000, 0);
      for (int type = VECTOR; type < SPLIT; type++) {
        message(SEND, IRECV, from, to, &types[type], 3, 1);
        message(SSEND, RECV, from, to, &types[type], 3000, 0);
      }
    }
  }
  for (int both = 0; both < 3; both++) {
    message(SEND, RECV, both == 0 ? HEAP : DEVICE, both == 1 ? HEAP : DEVICE, &types[SPLIT], 1, 1);
  }
}

static void both_ways(int size, enum Place from, enum Place to) {
  if (!usable(from) || !usable(to) || odt.rank > 1) return;
  const Type* type = &types[VECTOR];
  const int other = 1 - odt.rank;
  keys += 1000;
  for (int form = 0; form < 4; form++) {
    const int replace = form % 2 == 1;
    Data out = data_make(replace ? to : from, type, size, keys + (uint64_t)odt.rank);
    Data in = data_make(to, type, size, keys + 10);
    Data theirs = data_make(HEAP, type, size, keys + (uint64_t)other);
    char* packed = malloc((size_t)theirs.size);
    data_move(&theirs, packed, theirs.size, 1);
    Data* target = replace ? &out : &in;
    MPI_Request request = MPI_REQUEST_NULL;
    if (form == 0) {
      MUST(MPI_Sendrecv(address(&out), size, type->type, other, TAG, address(&in), size, type->type,
                        other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else if (form == 1) {
      MUST(MPI_Sendrecv_replace(address(&out), size, type->type, other, TAG, other, TAG,
                                MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else {
#if MPI_VERSION >= 4
      if (form == 2) {
        MUST(MPI_Isendrecv(address(&out), size, type->type, other, TAG, address(&in), size,
                           type->type, other, TAG, MPI_COMM_WORLD, &request));
      } else {
        MUST(MPI_Isendrecv_replace(address(&out), size, type->type, other, TAG, other, TAG,
                                   MPI_COMM_WORLD, &request));
      }
      MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
#endif
    }
    if (form < 2 || MPI_VERSION >= 4) {
      data_move(target, packed, theirs.size, 0);
      data_check(target, "exchanged");
    }
    free(packed);
    data_drop(&out);
    data_drop(&in);
    data_drop(&theirs);
  }
}

static void to_oneself(enum Place from, enum Place to, int count) {
  if (!usable(from) || !usable(to)) return;
  const Type* type = &types[STRUCT];
  Data out = data_make(from, type, count, 5), in = data_make(to, type, count, 6);
  MPI_Request request;
  MUST(MPI_Isend(address(&out), count, type->type, 0, TAG, MPI_COMM_SELF, &request));
  MUST(MPI_Recv(address(&in), count, type->type, 0, TAG, MPI_COMM_SELF, MPI_STATUS_IGNORE));
  MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
  char* packed = malloc((size_t)out.size);
  data_move(&out, packed, out.size, 1);
  data_move(&in, packed, out.size, 0);
  data_check(&in, "to oneself");
  free(packed);
  data_drop(&out);
  data_drop(&in);
}

// Elements at absolute addresses, one in host memory and one on the device.
static void absolute(void) {
  if (!usable(DEVICE) || odt.rank > 1) return;
  Data parts[2] = {data_make(HEAP, &types[BYTES], 1000, 1 + (uint64_t)odt.rank),
                   data_make(DEVICE, &types[BYTES], 500, 3 + (uint64_t)odt.rank)};
  MPI_Aint places[2];
  for (int i = 0; i < 2; i++) MPI_Get_address(address(&parts[i]), &places[i]);
  int lengths[2] = {1000, 500};
  MPI_Datatype type;
  MPI_Type_create_hindexed(2, lengths, places, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  if (odt.rank == 0) {
    MUST(MPI_Send(MPI_BOTTOM, 1, type, 1, TAG, MPI_COMM_WORLD));
  } else {
    MUST(MPI_Recv(MPI_BOTTOM, 1, type, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    odt_fill(parts[0].expected, 1000, 1);
    odt_fill(parts[1].expected, 500, 3);
  }
  for (int i = 0; i < 2; i++) {
    data_check(&parts[i], "absolute");
    data_drop(&parts[i]);
  }
  MPI_Type_free(&type);
}

// A message that is longer than the receive.
static void truncated(void) {
  if (!usable(DEVICE)) return;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (odt.rank == 0) {
    Data data = data_make(DEVICE, &types[BYTES], 3000, 9);
    MUST(MPI_Send(address(&data), 3000, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
    data_drop(&data);
  } else if (odt.rank == 1) {
    Data data = data_make(DEVICE, &types[BYTES], 3000, 10);
    int error = MPI_Recv(address(&data), 1000, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int class = -1;
    MPI_Error_class(error, &class);
    CHECK(class == MPI_ERR_TRUNCATE, "class %d", class);
    odt_fill(data.expected, 3000, 9);
    char rest[2000], all[3000];
    odt_fill(all, 3000, 10);
    memcpy(rest, all + 1000, 2000);
    memcpy(data.expected + 1000, rest, 2000);
    data_check(&data, "truncated");
    data_drop(&data);
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

// A receive into a device's memory completes while its rank sits in a call of the host.
static void inside_host_calls(void) {
  if (!usable(DEVICE) || odt.rank > 1) return;
  MPI_Comm pair;
  MPI_Comm_split(MPI_COMM_SELF, 0, 0, &pair);
  MPI_Comm_free(&pair);
  MPI_Request request;
  Data data = data_make(DEVICE, &types[VECTOR], 2000, 20 + (uint64_t)odt.rank);
  Data theirs = data_make(HEAP, &types[VECTOR], 2000, 20);
  if (odt.rank == 1) {
    MUST(MPI_Irecv(address(&data), 2000, types[VECTOR].type, 0, TAG, MPI_COMM_WORLD, &request));
  } else {
    MUST(MPI_Ssend(address(&data), 2000, types[VECTOR].type, 1, TAG, MPI_COMM_WORLD));
  }
  MPI_Group world, two;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  int ranks[] = {0, 1};
  MPI_Group_incl(world, 2, ranks, &two);
  MUST(MPI_Comm_create_group(MPI_COMM_WORLD, two, 3, &pair));
  if (odt.rank == 1) {
    MUST(MPI_Wait(&request, MPI_STATUS_IGNORE));
    char* packed = malloc((size_t)theirs.size);
    data_move(&theirs, packed, theirs.size, 1);
    data_move(&data, packed, theirs.size, 0);
    free(packed);
    data_check(&data, "inside a host call");
  }
  MPI_Group_free(&world);
  MPI_Group_free(&two);
  MPI_Comm_free(&pair);
  data_drop(&data);
  data_drop(&theirs);
}

// Memory whose owner is known is not asked about.
static void no_questions(void) {
  if (strcmp(odt_option("questions", "0"), "1") != 0 || odt.rank > 1) return;
  static char fixed[256];
  char stack[256];
  char* small = malloc(256);
  Buffer large = buffer_make(HEAP, 1 << 20);
  memset(large.data, 1, 1 << 20);
  char* all[] = {fixed, stack, small, large.data};
  const long before = runtime.questions();
  for (int i = 0; i < 4; i++) {
    for (int round = 0; round < 10; round++) {
      if (odt.rank == 0) {
        MUST(MPI_Send(all[i], 200, MPI_CHAR, 1, TAG, MPI_COMM_WORLD));
      } else {
        MUST(MPI_Recv(all[i], 200, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      }
    }
  }
  CHECK(runtime.questions() == before, "%ld questions", runtime.questions() - before);
  free(small);
  buffer_drop(&large);
}

// Memory that was a device's is the host's afterwards, at the same address, and the other way
// round.
static void addresses_change(void) {
  if (!usable(DEVICE) || odt.rank > 1) return;
  enum { BYTES_EACH = 10000 };
  char found[BYTES_EACH];
  for (int i = 0; i < 6; i++) {
    Buffer buffer = buffer_make(i % 2 == 0 ? DEVICE : MAPPED, BYTES_EACH);
    odt_fill(found, BYTES_EACH, (uint64_t)i);
    if (odt.rank == 0) {
      buffer_put(&buffer, found, BYTES_EACH);
      MUST(MPI_Send(buffer.data, BYTES_EACH, MPI_CHAR, 1, TAG, MPI_COMM_WORLD));
    } else {
      MUST(MPI_Recv(buffer.data, BYTES_EACH, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
      buffer_get(&buffer, found, BYTES_EACH);
      CHECK(odt_mismatch(found, BYTES_EACH, (uint64_t)i) < 0, "round %d", i);
    }
    buffer_drop(&buffer);
  }
}

int main(int argc, char** argv) {
  device_start("messages", &argc, &argv, MPI_THREAD_SINGLE);
  device_buffers = (int)odt_number("device", 1);
  static char attached[4 << 20];
  MPI_Buffer_attach(attached, sizeof attached);
  make_types();
  every_entry_point();
  every_place_and_type();
  for (int size = 1; size < 100000; size *= 9) {
    both_ways(size, DEVICE, DEVICE);
    both_ways(size, HEAP, DEVICE);
    both_ways(size, DEVICE, MAPPED);
    to_oneself(DEVICE, DEVICE, size);
    to_oneself(HEAP, DEVICE, size);
    to_oneself(DEVICE, HEAP, size);
  }
  absolute();
  truncated();
  inside_host_calls();
  no_questions();
  addresses_change();
  for (int t = VECTOR; t < TYPES; t++) MPI_Type_free(&types[t].type);
  void* detached;
  int bytes;
  MPI_Buffer_detach(&detached, &bytes);
  return device_finish();
}
