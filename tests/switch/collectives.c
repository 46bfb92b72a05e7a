// Collectives that a switch can serve, of all types, operations, sizes and communicators, each
// result compared with the definition.
//
// --rounds=N rounds, or with --until=FILE until that file exists and --rounds=N more; --most=N
// elements; --comms=N communicators made and freed on the way; --third=1 one more for the whole
// time; --pause=MS before each round; --later=1 calls that do not block as well.
#include "odtest.h"

enum { kMost = 20000, kTypes = 10, kOps = 10 };

typedef struct {
  MPI_Datatype type;
  size_t bytes;
  int integer;
} Type;

static Type types[kTypes];
static MPI_Op ops[kOps];

static void make_tables(void) {
  const Type all[kTypes] = {{MPI_SIGNED_CHAR, 1, 1},
                            {MPI_UNSIGNED_CHAR, 1, 1},
                            {MPI_SHORT, 2, 1},
                            {MPI_UNSIGNED_SHORT, 2, 1},
                            {MPI_INT, sizeof(int), 1},
                            {MPI_UNSIGNED, sizeof(unsigned), 1},
                            {MPI_LONG, sizeof(long), 1},
                            {MPI_UNSIGNED_LONG, sizeof(long), 1},
                            {MPI_FLOAT, sizeof(float), 0},
                            {MPI_DOUBLE, sizeof(double), 0}};
  const MPI_Op every[kOps] = {MPI_SUM, MPI_MAX,  MPI_MIN, MPI_PROD, MPI_LAND,
                              MPI_LOR, MPI_BAND, MPI_BOR, MPI_LXOR, MPI_BXOR};
  memcpy(types, all, sizeof all);
  memcpy(ops, every, sizeof every);
}

static void put(void* buffer, int type, int i, long value) {
  switch (type) {
    case 0:
      ((signed char*)buffer)[i] = (signed char)value;
      return;
    case 1:
      ((unsigned char*)buffer)[i] = (unsigned char)value;
      return;
    case 2:
      ((short*)buffer)[i] = (short)value;
      return;
    case 3:
      ((unsigned short*)buffer)[i] = (unsigned short)value;
      return;
    case 4:
      ((int*)buffer)[i] = (int)value;
      return;
    case 5:
      ((unsigned*)buffer)[i] = (unsigned)value;
      return;
    case 6:
      ((long*)buffer)[i] = value;
      return;
    case 7:
      ((unsigned long*)buffer)[i] = (unsigned long)value;
      return;
    case 8:
      ((float*)buffer)[i] = (float)value;
      return;
    default:
      ((double*)buffer)[i] = (double)value;
      return;
  }
}

static long get(const void* buffer, int type, int i) {
  switch (type) {
    case 0:
      return ((const signed char*)buffer)[i];
    case 1:
      return ((const unsigned char*)buffer)[i];
    case 2:
      return ((const short*)buffer)[i];
    case 3:
      return ((const unsigned short*)buffer)[i];
    case 4:
      return ((const int*)buffer)[i];
    case 5:
      return (long)((const unsigned*)buffer)[i];
    case 6:
      return ((const long*)buffer)[i];
    case 7:
      return (long)((const unsigned long*)buffer)[i];
    case 8:
      return (long)((const float*)buffer)[i];
    default:
      return (long)((const double*)buffer)[i];
  }
}

// Small, so that no sum or product of a few ranks leaves the shortest type.
static long value(int round, int op, int rank, int i) {
  const long mixed = (round * 31L + rank * 17L + i * 7L) % 5;
  return op == 3 ? 1 + mixed % 2 : mixed;
}

static long expected(int round, int op, int size, int i) {
  long result = value(round, op, 0, i);
  if (op == 4 || op == 5 || op == 8) result = result != 0;
  for (int rank = 1; rank < size; rank++) {
    const long next = value(round, op, rank, i);
    switch (op) {
      case 0:
        result += next;
        break;
      case 1:
        result = result > next ? result : next;
        break;
      case 2:
        result = result < next ? result : next;
        break;
      case 3:
        result *= next;
        break;
      case 4:
        result = result && next;
        break;
      case 5:
        result = result || next;
        break;
      case 6:
        result &= next;
        break;
      case 7:
        result |= next;
        break;
      case 8:
        result = (result != 0) != (next != 0);
        break;
      default:
        result ^= next;
        break;
    }
  }
  return result;
}

static void one_round(MPI_Comm comm, int round, int most) {
  static char in[kMost * 8], out[kMost * 8];
  int rank, size;
  MUST(MPI_Comm_rank(comm, &rank));
  MUST(MPI_Comm_size(comm, &size));
  const int type = round % kTypes;
  int op = round / kTypes % kOps;
  if (!types[type].integer && op > 3) op %= 4;
  static const int kCounts[] = {1, 0, 2, 31, 64, 250, 3, 1000};
  int count = round % 16 == 15 ? most : kCounts[round % 8];
  if (count > most) count = most;
  const int root = round % size;
  const int in_place = round % 3 == 0;

  for (int i = 0; i < count; i++) put(in_place ? out : in, type, i, value(round, op, rank, i));
  MUST(MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, count, types[type].type, ops[op], comm));
  for (int i = 0; i < count; i++) {
    CHECK(get(out, type, i) == expected(round, op, size, i),
          "round %d, allreduce, type %d, operation %d: element %d of %d is %ld, not %ld", round,
          type, op, i, count, get(out, type, i), expected(round, op, size, i));
  }

  for (int i = 0; i < count; i++) put(in, type, i, value(round, op, rank, i));
  memset(out, 0x5a, (size_t)count * types[type].bytes);
  if (in_place && rank == root) memcpy(out, in, (size_t)count * types[type].bytes);
  MUST(MPI_Reduce(in_place && rank == root ? MPI_IN_PLACE : in, out, count, types[type].type,
                  ops[op], root, comm));
  for (int i = 0; i < count; i++) {
    const long wanted = rank == root ? expected(round, op, size, i) : 0;
    if (rank == root) {
      CHECK(get(out, type, i) == wanted,
            "round %d, reduce, type %d, operation %d: element %d of "
            "%d is %ld, not %ld",
            round, type, op, i, count, get(out, type, i), wanted);
    } else {
      CHECK(out[i * (long)types[type].bytes] == 0x5a, "round %d: reduce wrote at rank %d", round,
            rank);
    }
  }

  for (int i = 0; i < count; i++) put(out, type, i, rank == root ? value(round, 0, root, i) : 99);
  MUST(MPI_Bcast(out, count, types[type].type, root, comm));
  for (int i = 0; i < count; i++) {
    CHECK(get(out, type, i) == value(round, 0, root, i), "round %d, bcast: element %d of %d is %ld",
          round, i, count, get(out, type, i));
  }
  MUST(MPI_Barrier(comm));
}

// Calls that do not block of one round on one communicator, and what they need until they end.
struct later {
  MPI_Comm comm;
  int round, type, op, root, count;
  char in[1000 * 8], sums[1000 * 8], out[1000 * 8], all[1000 * 8];
};

static void begin_later(struct later* l, MPI_Comm comm, int round, int most,
                        MPI_Request* requests) {
  static const int kCounts[] = {1, 31, 250, 3, 1000};
  int rank, size;
  MUST(MPI_Comm_rank(comm, &rank));
  MUST(MPI_Comm_size(comm, &size));
  l->comm = comm;
  l->round = round;
  l->type = round % kTypes;
  l->op = round / kTypes % 4;
  l->root = round % size;
  l->count = kCounts[round % 5] < most ? kCounts[round % 5] : most;
  MPI_Datatype type = types[l->type].type;
  for (int i = 0; i < l->count; i++) {
    put(l->in, l->type, i, value(round, l->op, rank, i));
    put(l->out, l->type, i, rank == l->root ? value(round, 0, l->root, i) : 99);
  }
  MUST(MPI_Iallreduce(l->in, l->sums, l->count, type, ops[l->op], comm, &requests[0]));
  MUST(MPI_Ibcast(l->out, l->count, type, l->root, comm, &requests[1]));
  MUST(MPI_Ireduce(l->in, l->all, l->count, type, ops[l->op], l->root, comm, &requests[2]));
  MUST(MPI_Ibarrier(comm, &requests[3]));
}

static void check_later(const struct later* l) {
  int rank, size;
  MUST(MPI_Comm_rank(l->comm, &rank));
  MUST(MPI_Comm_size(l->comm, &size));
  for (int i = 0; i < l->count; i++) {
    const long wanted = expected(l->round, l->op, size, i);
    CHECK(get(l->sums, l->type, i) == wanted,
          "round %d, iallreduce, type %d: element %d is %ld, not %ld", l->round, l->type, i,
          get(l->sums, l->type, i), wanted);
    CHECK(rank != l->root || get(l->all, l->type, i) == wanted,
          "round %d, ireduce: element %d is %ld", l->round, i, get(l->all, l->type, i));
    CHECK(get(l->out, l->type, i) == value(l->round, 0, l->root, i),
          "round %d, ibcast: element %d is %ld", l->round, i, get(l->out, l->type, i));
  }
}

static void add_up(MPI_Comm comm, int round) {
  int rank, size;
  MUST(MPI_Comm_rank(comm, &rank));
  MUST(MPI_Comm_size(comm, &size));
  long mine = rank, total = 0;
  MUST(MPI_Allreduce(&mine, &total, 1, MPI_LONG, MPI_SUM, comm));
  CHECK(total == size * (size - 1L) / 2, "round %d: the sum among them", round);
}

// Several at once on two communicators, and a blocking call among them, before which some ranks
// have begun them and others have not; they are waited for in different ways.
static void later_round(MPI_Comm one, MPI_Comm other, int round, int most) {
  static struct later first, second;
  int rank;
  MUST(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  MPI_Request requests[8];
  const int blocks = round % 3 == 0;
  const int before = rank % 2 == round / 3 % 2;
  if (blocks && before) add_up(one, round);
  begin_later(&first, one, round, most, requests);
  begin_later(&second, other, round + 1, most, requests + 4);
  if (blocks && !before) add_up(one, round);
  if (round % 7 == 6) usleep((useconds_t)(500 * (1 + rank % 3)));
  if (round % 4 == 0) {
    MUST(MPI_Waitall(8, requests, MPI_STATUSES_IGNORE));
  } else if (round % 4 == 1) {  // the last one first
    for (int i = 8; i-- > 0;) MUST(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
  } else if (round % 4 == 2) {
    for (int done = 0; !done;) MUST(MPI_Testall(8, requests, &done, MPI_STATUSES_IGNORE));
  } else {
    for (int i = 0, index = 0; i < 8; i++) {
      MUST(MPI_Waitany(8, requests, &index, MPI_STATUS_IGNORE));
    }
  }
  check_later(&first);
  check_later(&second);
}

static int goes_on(const char* file, int round, int rounds) {
  static int last = -1;
  if (file == NULL) return round < rounds;
  if (last < 0 && round % 8 == 0) {
    int found = access(file, F_OK) == 0;
    MUST(MPI_Bcast(&found, 1, MPI_INT, 0, MPI_COMM_WORLD));
    if (found) last = round + rounds;
  }
  return last < 0 || round < last;
}

int main(int argc, char** argv) {
  odt_start("collectives", &argc, &argv);
  make_tables();
  const int rounds = (int)odt_number("rounds", 200);
  const int most = (int)odt_number("most", 200);
  const int comms = (int)odt_number("comms", 0);
  const int later = odt_number("later", 0) != 0;
  const long pause = odt_number("pause", 0);
  const char* file = odt_option("until", NULL);
  MPI_Comm reversed, third = MPI_COMM_NULL;
  if (odt_number("third", 0) != 0) MUST(MPI_Comm_dup(MPI_COMM_WORLD, &third));
  MUST(MPI_Comm_split(MPI_COMM_WORLD, 0, odt.size - odt.rank, &reversed));
  for (int round = 0; goes_on(file, round, rounds); round++) {
    if (pause > 0) usleep((useconds_t)(pause * 1000));
    one_round(MPI_COMM_WORLD, round, most);
    if (later) later_round(MPI_COMM_WORLD, reversed, round, most);
    if (round % 2 == 0) one_round(reversed, round, most);
    if (third != MPI_COMM_NULL) one_round(third, round + 1, most);
    if (round < comms) {
      MPI_Comm own;
      MUST(MPI_Comm_dup(round % 2 == 0 ? MPI_COMM_WORLD : reversed, &own));
      one_round(own, round, most);
      MUST(MPI_Comm_free(&own));
    }
  }
  MUST(MPI_Comm_free(&reversed));
  if (third != MPI_COMM_NULL) MUST(MPI_Comm_free(&third));
  return odt_finish();
}
