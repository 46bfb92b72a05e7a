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

// Several that do not block at once, one blocking call among them.
static void later_round(MPI_Comm comm, int round, int most) {
  static char in[kMost * 8], sums[kMost * 8], out[kMost * 8], all[kMost * 8];
  int rank, size;
  MUST(MPI_Comm_rank(comm, &rank));
  MUST(MPI_Comm_size(comm, &size));
  const int type = round % kTypes;
  const int op = round / kTypes % 4;
  const int root = round % size;
  static const int kCounts[] = {1, 31, 250, 3};
  const int count = kCounts[round % 4] < most ? kCounts[round % 4] : most;
  for (int i = 0; i < count; i++) {
    put(in, type, i, value(round, op, rank, i));
    put(out, type, i, rank == root ? value(round, 0, root, i) : 99);
  }
  MPI_Request requests[4];
  MUST(MPI_Iallreduce(in, sums, count, types[type].type, ops[op], comm, &requests[0]));
  MUST(MPI_Ibcast(out, count, types[type].type, root, comm, &requests[1]));
  MUST(MPI_Ireduce(in, all, count, types[type].type, ops[op], root, comm, &requests[2]));
  long mine = rank, total = 0;
  if (round % 3 == 0) MUST(MPI_Allreduce(&mine, &total, 1, MPI_LONG, MPI_SUM, comm));
  MUST(MPI_Ibarrier(comm, &requests[3]));
  MUST(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
  if (round % 3 == 0) CHECK(total == size * (size - 1L) / 2, "round %d: the sum among them", round);
  for (int i = 0; i < count; i++) {
    const long wanted = expected(round, op, size, i);
    CHECK(get(sums, type, i) == wanted, "round %d, iallreduce, type %d: element %d is %ld, not %ld",
          round, type, i, get(sums, type, i), wanted);
    CHECK(rank != root || get(all, type, i) == wanted, "round %d, ireduce: element %d is %ld",
          round, i, get(all, type, i));
    CHECK(get(out, type, i) == value(round, 0, root, i), "round %d, ibcast: element %d is %ld",
          round, i, get(out, type, i));
  }
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
    if (later) later_round(round % 2 == 0 ? reversed : MPI_COMM_WORLD, round, most);
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
