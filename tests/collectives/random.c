// Every collective in every form against the host's own, on random calls.
//
// A case is a batch of up to three collectives on random communicators, which are under way at the
// same time as messages between neighbours, and are completed in some way. What a reduction must
// give the host has said before, by its blocking function on a communicator of its own and never in
// place; what moves where, and what an operation of the program gives, is known. A case follows
// from seed and number alone, so a failure can be repeated and made smaller:
//   --seed=S --first=N --cases=1   one case            --ops=1     one collective at a time
//   --most=P                       at most P elements  --plain=1   no derived datatypes
//   --blocking=1                   blocking forms only --only=NAME one collective
// What a host gets wrong is left out by name: --without=NAME,NAME...
//   small-sums            sums of 8-bit and 16-bit integers that do not fit
//   signedness            MAX and MIN of unsigned integers above the signed ones
//   user-bounds           operations of the program on datatypes with bytes before their address
//   started-user-bounds   the same in their non-blocking and persistent forms
//   wide                  derived datatypes of elements beyond 16 bytes
//   types                 ranks that describe the same message in different ways
//   allgatherv-types      likewise, of this collective
//   alltoallw-alone       alltoallw on one rank
//   alltoall-pairs        all-to-all in place with pairs
//   ialltoallv-in-place   the non-blocking and persistent forms
//   ialltoallw-in-place   likewise
//   reduce-pairs          MINLOC and MAXLOC of pairs that begin with a double or a long double
//   persistent            all persistent forms
//   persistent-alone      those on communicators of one rank
//   persistent-user       those with operations of the program
#include "host_functions.h"
#include "names.h"
#include "sides.h"

#if MPI_VERSION >= 4
#define HAVE_LARGE 1
#define HAVE_PERSISTENT 1
#elif defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5
#define HAVE_LARGE 0
#define HAVE_PERSISTENT 1
#else
#define HAVE_LARGE 0
#define HAVE_PERSISTENT 0
#endif

typedef enum { kBlocking, kStarted, kPersistent, kForms } Form;
static const char* const kFormNames[kForms] = {"blocking", "non-blocking", "persistent"};

enum { kUserSum = kOps, kUserChain, kUserLeft, kAllOps, kMostOps = 3, kComms = 6, kPerEpoch = 25 };
static const char* const kUserNames[] = {"user sum", "user chain", "user left"};

typedef struct {
  MPI_Comm comm, hosts;  // MPI_COMM_NULL: this rank is not in it
  int rank, size;
} Group;

typedef struct {
  Collective collective;
  Form form;
  int large;
  Group* group;
  int group_number, root, op, in_place, loose, early_free;
  const Base* base;
  long parts;     // basic elements of the vector or block
  int own_types;  // ranks describe it in different ways
  int kind;       // of the datatype of reductions
  uint64_t key;
  MPI_Op handle;
  int counts[kMostRanks];  // of reduce_scatter, elements
  MPI_Count counts_c[kMostRanks];
  Side send, recv;          // before
  Side sending, receiving;  // ours
  Side expected;
  MPI_Request request;
} Operation;

static Group groups[kComms];
static long case_number;
static long most_parts, most_bytes;

// --- operations of the program -------------------------------------------------------------------

// Datatypes that operations of the program may be given.
static Shape known_shapes[2 * kMostOps];
static int known_count;

static const Shape* known_shape(MPI_Datatype type) {
  for (int i = 0; i < known_count; i++) {
    if (known_shapes[i].type == type) return &known_shapes[i];
  }
  CHECK(0, "an operation was called with a datatype that nobody gave it");
  MPI_Abort(MPI_COMM_WORLD, 3);
  return NULL;
}

static long* part_at(void* buffer, const Shape* shape, int element, int part) {
  return (long*)((char*)buffer + element * shape->extent + shape->place[part]);
}

static void user_sum(void* in, void* inout, int* length, MPI_Datatype* type) {
  const Shape* shape = known_shape(*type);
  for (int i = 0; i < *length; i++) {
    for (int j = 0; j < shape->parts; j++) {
      long* to = part_at(inout, shape, i, j);
      *to = (*part_at(in, shape, i, j) + *to) % kPrime;
    }
  }
}

// x -> a x + b, one after the other: pairs (a, b), the left one first.
static void user_chain(void* in, void* inout, int* length, MPI_Datatype* type) {
  const Shape* shape = known_shape(*type);
  for (int i = 0; i < *length; i++) {
    const long a = *part_at(in, shape, i, 0), b = *part_at(in, shape, i, 1);
    long *c = part_at(inout, shape, i, 0), *d = part_at(inout, shape, i, 1);
    const long product = a * *c % kPrime;
    *d = (b * *c + *d) % kPrime;
    *c = product;
  }
}

static void user_left(void* in, void* inout, int* length, MPI_Datatype* type) {
  const Shape* shape = known_shape(*type);
  for (int i = 0; i < *length; i++) {
    for (int j = 0; j < shape->parts; j++) {
      *part_at(inout, shape, i, j) = *part_at(in, shape, i, j);
    }
  }
}

static void make_op(Operation* o) {
  if (o->op < kOps) {
    o->handle = op_handle(o->op);
    return;
  }
  MPI_User_function* const functions[] = {user_sum, user_chain, user_left};
  MUST(MPI_Op_create(functions[o->op - kUserSum], o->op == kUserSum, &o->handle));
}

// --- communicators
// ---------------------------------------------------------------------------------

static void make_groups(long epoch) {
  OdtRandom random = odt_random((uint64_t)(1000000 + epoch));
  const long mask[2] = {odt_below(&random, 1L << odt.size), odt_below(&random, 1L << odt.size)};
  const uint64_t shuffle = odt_next(&random);
  const int me = odt.rank;
  const int keys[kComms] = {0, -me, me, 0, (int)(odt_mix(shuffle + (uint64_t)me) % 1000), me};
  const int colors[kComms] = {
      0, 0, (mask[0] >> me & 1) != 0 ? 1 : MPI_UNDEFINED, me, (int)(mask[1] >> me & 1), me / 2};
  for (int i = 0; i < kComms; i++) {
    Group* group = &groups[i];
    group->hosts = MPI_COMM_NULL;
    MUST(MPI_Comm_split(MPI_COMM_WORLD, colors[i], keys[i], &group->comm));
    if (group->comm == MPI_COMM_NULL) continue;
    MUST(MPI_Comm_rank(group->comm, &group->rank));
    MUST(MPI_Comm_size(group->comm, &group->size));
    MUST(host.Comm_dup(group->comm, &group->hosts));
  }
}

static void free_groups(void) {
  for (int i = 0; i < kComms; i++) {
    if (groups[i].comm == MPI_COMM_NULL) continue;
    MUST(host.Comm_free(&groups[i].hosts));
    MUST(MPI_Comm_free(&groups[i].comm));
  }
}

// --- one operation
// ---------------------------------------------------------------------------------

static int reduces(Collective c) { return c >= k_reduce; }
static int rooted(Collective c) {
  return c == k_bcast || c == k_gather || c == k_gatherv || c == k_scatter || c == k_scatterv ||
         c == k_reduce;
}
static int is_alltoall(Collective c) {
  return c == k_alltoall || c == k_alltoallv || c == k_alltoallw;
}

static long pick_parts(OdtRandom* random) {
  static const long kUsual[] = {0, 1, 2, 3, 5, 7, 17, 64, 100, 1000, 1024, 4096};
  const long way = odt_below(random, 4);
  const long usual = kUsual[odt_below(random, (long)(sizeof kUsual / sizeof kUsual[0]))];
  const long any = odt_below(random, 1L << odt_below(random, 20));
  return way == 0 ? any : usual;
}

// Basic elements that go from one rank to another, or that a rank has; 0 in a tenth of all cases.
static long parts_between(const Operation* o, int from, int to) {
  const int irregular = o->collective == k_gatherv || o->collective == k_scatterv ||
                        o->collective == k_allgatherv || o->collective == k_alltoallv ||
                        o->collective == k_alltoallw || o->collective == k_reduce_scatter;
  if (!irregular) return o->parts;
  if (o->in_place && from > to) return parts_between(o, to, from);
  const uint64_t hash = odt_mix(o->key + (uint64_t)(from * 64 + to));
  const long parts = hash % 10 == 0 ? 0 : (long)(hash / 16 % (uint64_t)(o->parts + 1));
  return parts / kWholeParts * kWholeParts +
         (o->own_types || o->kind != 0 ? 0 : parts % kWholeParts);
}

static uint64_t content_key(const Operation* o, int from, int to) {
  return odt_mix(o->key ^ odt_mix((uint64_t)(from * 1000 + to + 1)));
}

static Shape choose_shape(const Operation* o, int salt) {
  if (reduces(o->collective)) return shape_make(o->base, o->kind);
  if (!o->own_types) return shape_make(o->base, 0);
  const uint64_t hash = odt_mix(o->key + 77 * (uint64_t)(salt + 1) + 9001 * (uint64_t)odt.rank);
  return shape_make(o->base, (int)(hash % kShapeKinds));
}

// Gives a side its blocks: `blocks` of the parts that `from` and `to` say (-1: the block's number).
static void lay_out(const Operation* o, Side* side, int blocks, int from, int to, int irregular) {
  side->used = 1;
  side->blocks = blocks;
  side->typed = o->collective == k_alltoallw;
  const int salt = to == -1 ? 100 : 0;
  for (int i = 0; i < (side->typed ? blocks : 1); i++) side->shape[i] = choose_shape(o, salt + i);
  int order[kMostRanks];
  for (int i = 0; i < blocks; i++) {
    side->parts[i] = parts_between(o, from == -1 ? i : from, to == -1 ? i : to);
    order[i] = irregular && (o->key & 1) != 0 ? blocks - 1 - i : i;
  }
  side_place(side, order, irregular ? (int)(o->key >> 8 & 1) : 0);
}

// One block of so many parts.
static void lay_out_vector(const Operation* o, Side* side, long parts) {
  side->used = 1;
  side->blocks = 1;
  side->shape[0] = choose_shape(o, side == &o->send ? 1 : 2);
  side->parts[0] = parts;
  side_place(side, NULL, 0);
}

static void prepare_reduction(Operation* o) {
  const int me = o->group->rank, size = o->group->size;
  long input = o->parts, output = o->parts;
  if (o->collective == k_reduce_scatter_block) input *= size;
  if (o->collective == k_reduce_scatter) {
    input = 0;
    const Shape shape = choose_shape(o, 0);
    for (int i = 0; i < size; i++) {
      const long parts = parts_between(o, i, i);
      o->counts[i] = (int)(parts / shape.parts);
      o->counts_c[i] = o->counts[i];
      input += parts;
    }
    output = parts_between(o, me, me);
    Shape unused = shape;
    shape_free(&unused);
  }
  const int has_output = o->collective != k_reduce || me == o->root;
  const int in_place = o->in_place && has_output;
  if (has_output) lay_out_vector(o, &o->recv, in_place ? input : output);
  if (!in_place) lay_out_vector(o, &o->send, input);
  side_fill(in_place ? &o->recv : &o->send, 0, 0, input, o->op, content_key(o, me, 0));
}

static void prepare_movement(Operation* o) {
  const int me = o->group->rank, size = o->group->size, root = o->root;
  const int at_root = me == root;
  switch (o->collective) {
    case k_bcast:
      lay_out_vector(o, &o->recv, o->parts);
      if (at_root) side_fill(&o->recv, 0, 0, o->parts, kBxor, content_key(o, root, 0));
      break;
    case k_gather:
    case k_gatherv:
    case k_allgather:
    case k_allgatherv: {
      const int has_output = at_root || o->collective >= k_allgather;
      const int in_place = o->in_place && has_output;
      const int irregular = o->collective == k_gatherv || o->collective == k_allgatherv;
      if (has_output) lay_out(o, &o->recv, size, -1, 0, irregular);
      if (in_place) {
        side_fill(&o->recv, me, 0, o->recv.parts[me], kBxor, content_key(o, me, 0));
      } else {
        lay_out_vector(o, &o->send, parts_between(o, me, 0));
        side_fill(&o->send, 0, 0, o->send.parts[0], kBxor, content_key(o, me, 0));
      }
      break;
    }
    case k_scatter:
    case k_scatterv:
      if (at_root) {
        lay_out(o, &o->send, size, 0, -1, o->collective == k_scatterv);
        for (int i = 0; i < size; i++) {
          side_fill(&o->send, i, 0, o->send.parts[i], kBxor, content_key(o, 0, i));
        }
      }
      if (!at_root || !o->in_place) lay_out_vector(o, &o->recv, parts_between(o, 0, me));
      break;
    case k_alltoall:
    case k_alltoallv:
    case k_alltoallw: {
      const int irregular = o->collective != k_alltoall;
      lay_out(o, &o->recv, size, -1, me, irregular);
      if (!o->in_place) lay_out(o, &o->send, size, me, -1, irregular);
      Side* input = o->in_place ? &o->recv : &o->send;
      for (int i = 0; i < size; i++) {
        side_fill(input, i, 0, input->parts[i], kBxor, content_key(o, me, i));
      }
      break;
    }
    default:
      break;
  }
}

// What an operation of the program must give. Not asked of the hosts: several of them write outside
// their buffers for datatypes with gaps or a lower bound.
static void expect_user_reduction(Operation* o) {
  if (!o->recv.used) return;
  const int me = o->group->rank;
  const int first = 0;
  int end = o->group->size;
  long offset = 0, parts = o->expected.parts[0];
  if (o->collective == k_scan) end = me + 1;
  if (o->collective == k_exscan) end = me;
  if (o->collective == k_reduce_scatter_block) offset = me * o->parts, parts = o->parts;
  if (o->collective == k_reduce_scatter) {
    for (int i = 0; i < me; i++) offset += parts_between(o, i, i);
    parts = parts_between(o, me, me);
  }
  const int together = o->op == kUserChain ? 2 : 1;
  for (long i = 0; i < parts; i += together) {
    long result[2] = {0, 0}, next[2] = {0, 0};
    for (int rank = first; rank < end; rank++) {
      for (int j = 0; j < together; j++) {
        const uint64_t key = content_key(o, rank, 0) + (uint64_t)(offset + i + j);
        fill_element(o->base, o->op, (char*)&next[j], odt_mix(key));
      }
      if (rank == first) {
        memcpy(result, next, sizeof result);
      } else if (o->op == kUserSum) {
        result[0] = (result[0] + next[0]) % kPrime;
      } else if (o->op == kUserChain) {
        result[1] = (result[1] * next[0] + next[1]) % kPrime;
        result[0] = result[0] * next[0] % kPrime;
      }
    }
    for (int j = 0; j < together && end > first; j++) {
      memcpy(side_part(&o->expected, 0, i + j), &result[j], sizeof(long));
    }
  }
}

// What a collective that only moves data must give.
static void expect_movement(Operation* o) {
  const int me = o->group->rank;
  Side* out = &o->expected;
  for (int i = 0; out->used && i < out->blocks; i++) {
    int from = i, to = 0;
    if (o->collective == k_bcast) from = o->root;
    if (o->collective == k_scatter || o->collective == k_scatterv) from = 0, to = me;
    if (is_alltoall(o->collective)) to = me;
    side_fill(out, i, 0, out->parts[i], kBxor, content_key(o, from, to));
  }
}

static int without(const char* what) {
  const char* list = odt_option("without", "");
  const size_t length = strlen(what);
  while (*list != '\0') {
    const size_t word = strcspn(list, ",");
    if (word == length && strncmp(list, what, length) == 0) return 1;
    list += word + (list[word] == ',');
  }
  return 0;
}

static void pick_reduction(Operation* o, OdtRandom* random) {
  const long which = odt_below(random, 5);
  const long base_choice = odt_below(random, base_count);
  const long op_choice = odt_below(random, kOps);
  const long user = odt_below(random, 3);
  const long kind = odt_below(random, kShapeKinds);
  const int loose = odt_below(random, 3) == 0;
  if (which == 0) {
    o->op = kUserSum + (int)user;
    for (int i = 0; i < base_count; i++) {
      if (strcmp(bases[i].name, "MPI_LONG") == 0) o->base = &bases[i];
    }
    o->kind = o->op == kUserChain ? 2 : (int)kind;
    const int left_out =
        without("user-bounds") || (o->form != kBlocking && without("started-user-bounds"));
    if (o->op != kUserChain && (o->kind == 3 || o->kind == 4) && left_out) o->kind = 0;
    if (odt_number("plain", 0) != 0) o->kind = o->op == kUserChain ? 2 : 0;
    return;
  }
  o->base = &bases[base_choice];
  for (o->op = (int)op_choice; (o->base->ops & OP_BIT(o->op)) == 0;) o->op = (o->op + 1) % kOps;
  o->loose = loose && o->op == kSum && is_real(o->base);
}

// Steps around what the host gets wrong.
static void avoid_faults(Operation* o) {
  if (o->base->extent > 16 && without("wide")) o->own_types = 0;
  if (without("types")) o->own_types = 0;
  if (o->collective == k_allgatherv && without("allgatherv-types")) o->own_types = 0;
  if (o->collective == k_allgatherv && o->form != kBlocking && without("iallgatherv-types")) {
    o->own_types = 0;
  }
  if (o->collective == k_alltoallw && o->group->size == 1 && without("alltoallw-alone")) {
    o->collective = k_alltoallv;
  }
  if (is_alltoall(o->collective) && o->base->members == 2 && without("alltoall-pairs")) {
    o->in_place = 0;
  }
  if (o->collective == k_alltoallw && o->form != kBlocking && without("ialltoallw-in-place")) {
    o->in_place = 0;
  }
  if (o->collective == k_alltoallv && o->form != kBlocking && without("ialltoallv-in-place")) {
    o->in_place = 0;
  }
  if (o->collective == k_reduce && without("reduce-pairs") &&
      strstr(o->base->name, "DOUBLE_INT") != NULL) {
    o->collective = k_allreduce;
  }
  if (o->collective == k_reduce && o->op == kMinloc && without("reduce-short-int") &&
      strcmp(o->base->name, "MPI_SHORT_INT") == 0) {
    o->op = kMaxloc;
  }
  const int alone = o->group->comm != MPI_COMM_NULL && o->group->size == 1;
  const int user = reduces(o->collective) && o->op >= kUserSum;
  if (o->form == kPersistent && (without("persistent") || (alone && without("persistent-alone")) ||
                                 (user && without("persistent-user")))) {
    o->form = kStarted;
  }
}

static void pick(Operation* o, OdtRandom* random) {
  memset(o, 0, sizeof *o);
  const char* only = odt_option("only", NULL);
  o->collective = (Collective)odt_below(random, kCollectives);
  for (int i = 0; only != NULL && i < kCollectives; i++) {
    if (strcmp(only, kNames[i]) == 0) o->collective = (Collective)i;
  }
  o->group_number = (int)odt_below(random, kComms);
  o->group = &groups[o->group_number];
  o->form = (Form)odt_below(random, HAVE_PERSISTENT ? kForms : kPersistent);
  if (odt_number("blocking", 0) != 0) o->form = kBlocking;
  o->large = HAVE_LARGE && odt_below(random, 4) == 0;
  const long root = odt_below(random, 1000);
  o->in_place = odt_below(random, 4) == 0 && o->collective != k_barrier && o->collective != k_bcast;
  o->early_free = odt_below(random, 2) == 0;
  o->own_types = odt_below(random, 2) == 0 && odt_number("plain", 0) == 0;
  o->key = odt_next(random);
  o->parts = pick_parts(random);
  o->base = &bases[odt_below(random, base_count)];
  o->op = kBxor;
  OdtRandom own = odt_random(o->key);
  if (reduces(o->collective)) pick_reduction(o, &own);
  if (o->parts > most_parts) o->parts = most_parts;
  const long spread =
      is_alltoall(o->collective) || o->collective == k_reduce_scatter ? odt.size : 1;
  const long most = most_bytes / (6L * o->base->extent * spread);
  if (o->parts > most) o->parts = most;
  avoid_faults(o);
  if (o->own_types || o->kind != 0) o->parts -= o->parts % kWholeParts;
  if (o->group->comm != MPI_COMM_NULL) o->root = (int)(root % o->group->size);
  if (!rooted(o->collective)) o->root = 0;
}

static void prepare(Operation* o) {
  any_real_numbers = o->loose;
  if (reduces(o->collective)) {
    prepare_reduction(o);
    make_op(o);
    Side* some = o->send.used ? &o->send : &o->recv;
    known_shapes[known_count++] = some->shape[0];
    if (o->send.used && o->recv.used) {
      // The datatype of a call is one handle.
      shape_free(&o->recv.shape[0]);
      o->recv.shape[0] = o->send.shape[0];
    }
  } else {
    prepare_movement(o);
  }
  side_copy(&o->sending, &o->send);
  side_copy(&o->receiving, &o->recv);
  side_copy(&o->expected, &o->recv);
}

// Calls the host (`functions`) or MPI on a pair of sides.
#define ARGUMENTS_MOVE send_buf, send_count, send_type, recv_buf, recv_count, recv_type
#if HAVE_PERSISTENT
#define FORM_INIT(Name, c, ...) MPI_##Name##_init##c(__VA_ARGS__, comm, MPI_INFO_NULL, request)
#else
#define FORM_INIT(Name, c, ...) MPI_ERR_OTHER
#endif
#define FORMS(Name, IName, c, ...)                                 \
  (form == kBlocking  ? MPI_##Name##c(__VA_ARGS__, comm)           \
   : form == kStarted ? MPI_##IName##c(__VA_ARGS__, comm, request) \
                      : FORM_INIT(Name, c, __VA_ARGS__))
#if HAVE_LARGE
#define SIZES(Name, IName, large_arguments, ...) \
  (o->large ? FORMS(Name, IName, _c, LIST large_arguments) : FORMS(Name, IName, , __VA_ARGS__))
#else
#define SIZES(Name, IName, large_arguments, ...) FORMS(Name, IName, , __VA_ARGS__)
#endif
#define LIST(...) __VA_ARGS__
#define CALL(Name, IName, large_arguments, ...) \
  (by_host ? host.Name(__VA_ARGS__, comm) : SIZES(Name, IName, large_arguments, __VA_ARGS__))

static int call(Operation* o, int by_host, Side* send, Side* recv, MPI_Request* request) {
  const MPI_Comm comm = by_host ? o->group->hosts : o->group->comm;
  const Form form = o->form;
  const int me = o->group->rank, root = o->root, at_root = me == root;
  const Collective c = o->collective;
  const int scatters = c == k_scatter || c == k_scatterv;
  const int here = !rooted(c) || at_root;
  // What is not significant here must not be looked at.
  const void* send_buf = send->used ? send->origin : here && !scatters ? MPI_IN_PLACE : NULL;
  void* recv_buf = recv->used ? recv->origin : here && scatters ? MPI_IN_PLACE : NULL;
  const int none = -1;
  const int send_count = send->used ? send->count[0] : none;
  const int recv_count = recv->used ? recv->count[0] : none;
  const MPI_Datatype send_type = send->used ? send->shape[0].type : MPI_DATATYPE_NULL;
  const MPI_Datatype recv_type = recv->used ? recv->shape[0].type : MPI_DATATYPE_NULL;
  const MPI_Datatype type = send->used ? send_type : recv_type;
  const MPI_Op op = o->handle;
  const int vector = o->collective == k_reduce_scatter_block
                         ? (int)(o->parts / side_shape(send->used ? send : recv, 0)->parts)
                         : (send->used ? send_count : recv_count);
  switch (c) {
    case k_barrier:
      if (by_host) return host.Barrier(comm);
      if (form == kBlocking) return MPI_Barrier(comm);
      if (form == kStarted) return MPI_Ibarrier(comm, request);
#if HAVE_PERSISTENT
      return MPI_Barrier_init(comm, MPI_INFO_NULL, request);
#else
      return MPI_ERR_OTHER;
#endif
    case k_bcast:
      return CALL(Bcast, Ibcast, (recv_buf, recv_count, recv_type, root), recv_buf, recv_count,
                  recv_type, root);
    case k_gather:
      return CALL(Gather, Igather, (ARGUMENTS_MOVE, root), ARGUMENTS_MOVE, root);
    case k_scatter:
      return CALL(Scatter, Iscatter, (ARGUMENTS_MOVE, root), ARGUMENTS_MOVE, root);
    case k_allgather:
      return CALL(Allgather, Iallgather, (ARGUMENTS_MOVE), ARGUMENTS_MOVE);
    case k_alltoall:
      return CALL(Alltoall, Ialltoall, (ARGUMENTS_MOVE), ARGUMENTS_MOVE);
    case k_gatherv:
      return CALL(Gatherv, Igatherv,
                  (send_buf, send_count, send_type, recv_buf, recv->count_c, recv->displ_c,
                   recv_type, root),
                  send_buf, send_count, send_type, recv_buf, recv->count, recv->displ, recv_type,
                  root);
    case k_scatterv:
      return CALL(Scatterv, Iscatterv,
                  (send_buf, send->count_c, send->displ_c, send_type, recv_buf, recv_count,
                   recv_type, root),
                  send_buf, send->count, send->displ, send_type, recv_buf, recv_count, recv_type,
                  root);
    case k_allgatherv:
      return CALL(
          Allgatherv, Iallgatherv,
          (send_buf, send_count, send_type, recv_buf, recv->count_c, recv->displ_c, recv_type),
          send_buf, send_count, send_type, recv_buf, recv->count, recv->displ, recv_type);
    case k_alltoallv:
      return CALL(Alltoallv, Ialltoallv,
                  (send_buf, send->count_c, send->displ_c, send_type, recv_buf, recv->count_c,
                   recv->displ_c, recv_type),
                  send_buf, send->count, send->displ, send_type, recv_buf, recv->count, recv->displ,
                  recv_type);
    case k_alltoallw:
      return CALL(Alltoallw, Ialltoallw,
                  (send_buf, send->count_c, send->displ_c, send->types, recv_buf, recv->count_c,
                   recv->displ_c, recv->types),
                  send_buf, send->count, send->displ, send->types, recv_buf, recv->count,
                  recv->displ, recv->types);
    case k_reduce:
      return CALL(Reduce, Ireduce, (send_buf, recv_buf, vector, type, op, root), send_buf, recv_buf,
                  vector, type, op, root);
    case k_allreduce:
      return CALL(Allreduce, Iallreduce, (send_buf, recv_buf, vector, type, op), send_buf, recv_buf,
                  vector, type, op);
    case k_scan:
      return CALL(Scan, Iscan, (send_buf, recv_buf, vector, type, op), send_buf, recv_buf, vector,
                  type, op);
    case k_exscan:
      return CALL(Exscan, Iexscan, (send_buf, recv_buf, vector, type, op), send_buf, recv_buf,
                  vector, type, op);
    case k_reduce_scatter:
      return CALL(Reduce_scatter, Ireduce_scatter, (send_buf, recv_buf, o->counts_c, type, op),
                  send_buf, recv_buf, o->counts, type, op);
    case k_reduce_scatter_block:
      return CALL(Reduce_scatter_block, Ireduce_scatter_block,
                  (send_buf, recv_buf, vector, type, op), send_buf, recv_buf, vector, type, op);
    default:
      return MPI_ERR_OTHER;
  }
}

static void describe_operation(const Operation* o, char* text, size_t room) {
  char how[64] = "";
  if (o->own_types && !reduces(o->collective)) snprintf(how, sizeof how, ", each as it likes");
  if (reduces(o->collective)) {
    snprintf(how, sizeof how, " (shape %d), %s", o->kind,
             o->op < kOps ? kOpNames[o->op] : kUserNames[o->op - kUserSum]);
  }
  snprintf(text, room,
           "case %ld: %s %s%s on communicator %d (rank %d of %d), root %d, %ld x %s%s%s%s%s",
           case_number, kFormNames[o->form], kNames[o->collective], o->large ? "_c" : "",
           o->group_number, o->group->rank, o->group->size, o->root, o->parts, o->base->name, how,
           o->in_place ? ", in place" : "", o->loose ? ", any numbers" : "",
           o->early_free ? ", freed early" : "");
}

// Sums of any real numbers must have the same bits on all ranks.
static void check_same_bits(Operation* o, const char* what) {
  uint64_t mine = 0, all[kMostRanks];
  const Base* base = o->base;
  for (long i = 0; i < o->receiving.parts[0]; i++) {
    uint64_t bits = 0;
    memcpy(&bits, side_part(&o->receiving, 0, i),
           base->member[0].part == kLongDouble ? 8 : (size_t)base->member[0].bytes);
    mine = odt_mix(mine ^ bits);
  }
  MUST(host.Allgather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, o->group->hosts));
  for (int i = 0; i < o->group->size; i++) {
    CHECK(all[i] == mine, "%s: rank %d has other bits than rank %d", what, i, o->group->rank);
  }
}

static void verify(Operation* o) {
  char what[320], wrong[400];
  any_real_numbers = o->loose;
  describe_operation(o, what, sizeof what);
  long defined[kMostRanks];
  memcpy(defined, o->recv.parts, sizeof defined);
  if (o->collective == k_exscan && o->group->rank == 0) defined[0] = 0;
  if (o->in_place && o->recv.used) {
    if (o->collective == k_reduce_scatter_block) defined[0] = o->parts;
    if (o->collective == k_reduce_scatter) {
      defined[0] = parts_between(o, o->group->rank, o->group->rank);
    }
  }
  const int receives =
      side_differs(&o->receiving, &o->expected, &o->recv, defined, wrong, sizeof wrong);
  CHECK(!receives, "%s: output: %s", what, wrong);
  const int sends = o->send.used && memcmp(o->sending.memory, o->send.memory, o->send.bytes) != 0;
  CHECK(!sends, "%s: the input was changed", what);
  if (o->loose && o->collective == k_allreduce) check_same_bits(o, what);
}

static void finish(Operation* o) {
  const int same_type = reduces(o->collective) && o->send.used && o->recv.used;
  for (int i = 0; o->send.used && i < (o->send.typed ? o->send.blocks : 1); i++) {
    shape_free(&o->send.shape[i]);
  }
  for (int i = 0; o->recv.used && !same_type && i < (o->recv.typed ? o->recv.blocks : 1); i++) {
    shape_free(&o->recv.shape[i]);
  }
  Side* const sides[] = {&o->send, &o->recv, &o->sending, &o->receiving, &o->expected};
  for (int i = 0; i < 5; i++) {
    if (sides[i]->used) free(sides[i]->memory);
  }
  if (reduces(o->collective) && o->op >= kOps && o->handle != MPI_OP_NULL) {
    MUST(MPI_Op_free(&o->handle));
  }
}

// The program has no more use for what a call has been given.
static void free_early(Operation* o) {
  if (!o->early_free || o->form == kBlocking) return;
  for (int i = 0; o->send.used && i < (o->send.typed ? o->send.blocks : 1); i++) {
    shape_free(&o->send.shape[i]);
  }
  const int same_type = reduces(o->collective) && o->send.used;
  for (int i = 0; o->recv.used && !same_type && i < (o->recv.typed ? o->recv.blocks : 1); i++) {
    shape_free(&o->recv.shape[i]);
  }
  if (reduces(o->collective) && o->op >= kOps) {
    MUST(MPI_Op_free(&o->handle));
    CHECK(o->handle == MPI_OP_NULL, "MPI_Op_free leaves a handle");
  }
}

// --- batches
// ---------------------------------------------------------------------------------------

static void complete(int way, int count, MPI_Request* requests) {
  int flag = 0, at = 0, indices[16], some = 0;
  MPI_Status statuses[16];
  switch (way) {
    case 0:
      for (int i = 0; i < count; i++) MUST(MPI_Wait(&requests[i], &statuses[i]));
      break;
    case 1:
      for (int i = count - 1; i >= 0; i--) MUST(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
      break;
    case 2:
      MUST(MPI_Waitall(count, requests, statuses));
      break;
    case 3:
      do MUST(MPI_Waitany(count, requests, &at, &statuses[0]));
      while (at != MPI_UNDEFINED);
      break;
    case 4:
      do MUST(MPI_Waitsome(count, requests, &some, indices, statuses));
      while (some != MPI_UNDEFINED);
      break;
    case 5:
      for (int i = 0; i < count; i++) {
        for (flag = 0; !flag;) MUST(MPI_Test(&requests[i], &flag, &statuses[0]));
      }
      break;
    case 6:
      while (!flag) MUST(MPI_Testall(count, requests, &flag, statuses));
      break;
    case 7:
      do MUST(MPI_Testany(count, requests, &at, &flag, &statuses[0]));
      while (!flag || at != MPI_UNDEFINED);
      break;
    case 8:
      do MUST(MPI_Testsome(count, requests, &some, indices, statuses));
      while (some != MPI_UNDEFINED);
      break;
    default:
      for (int i = 0; i < count; i++) {
        for (flag = 0; !flag;) MUST(MPI_Request_get_status(requests[i], &flag, &statuses[0]));
        MUST(MPI_Wait(&requests[i], &statuses[0]));
      }
  }
}
enum { kWays = 10 };

static void run_case(Group* hosts_world) {
  OdtRandom random = odt_random((uint64_t)case_number);
  OdtRandom own = odt_random((uint64_t)case_number * 64 + 7777777 + (uint64_t)odt.rank);
  int ops = 1 + (int)odt_below(&random, kMostOps);
  const long most_ops = odt_number("ops", kMostOps);
  Operation operations[kMostOps];
  for (int i = 0; i < ops; i++) pick(&operations[i], &random);
  if (ops > most_ops) ops = (int)most_ops;
  const int with_host = odt_below(&random, 3) == 0;
  const long message = odt_below(&random, 3) == 0 ? odt_size(&random, 100000) : -1;
  if (odt_number("trace", 0) != 0 && odt.rank == 0) {
    fprintf(stderr, "case %ld: %d operations\n", case_number, ops);
  }
  known_count = 0;
  for (int i = 0; i < ops; i++) {
    Operation* o = &operations[i];
    if (o->group->comm == MPI_COMM_NULL) continue;
    prepare(o);
    if (odt_number("trace", 0) != 0) {
      char what[320];
      describe_operation(o, what, sizeof what);
      fprintf(stderr, "rank %d: %s\n", odt.rank, what);
    }
    if (o->op >= kOps) {
      expect_user_reduction(o);
    } else if (reduces(o->collective)) {
      // Intel MPI writes to the output of a reduction also where there is none.
      Side* input = o->send.used ? &o->send : &o->recv;
      Side unused;
      side_copy(&unused, input);
      MUST(call(o, 1, input, o->expected.used ? &o->expected : &unused, NULL));
      free(unused.memory);
    } else {
      expect_movement(o);
    }
  }
  MPI_Request requests[kMostOps + 3];
  int count = 0;
  char *out = NULL, *in = NULL;
  const int right = (odt.rank + 1) % odt.size, left = (odt.rank + odt.size - 1) % odt.size;
  if (message >= 0) {
    out = odt_memory((size_t)message);
    in = odt_memory((size_t)message);
    odt_fill(out, (size_t)message, odt_key(odt.rank, right, 3, case_number));
    MUST(MPI_Irecv(in, (int)message, MPI_BYTE, left, 5, MPI_COMM_WORLD, &requests[count++]));
  }
  if (with_host) MUST(host.Ibarrier(hosts_world->hosts, &requests[count++]));
  if (odt_below(&own, 8) == 0) odt_sleep_ms(1);
  for (int i = 0; i < ops; i++) {
    Operation* o = &operations[i];
    o->request = MPI_REQUEST_NULL;
    if (o->group->comm == MPI_COMM_NULL) continue;
    MUST(call(o, 0, &o->sending, &o->receiving, &o->request));
    free_early(o);
    if (o->form == kPersistent) MUST(MPI_Start(&o->request));
    if (o->form != kBlocking) requests[count++] = o->request;
  }
  if (message >= 0) {
    MUST(MPI_Isend(out, (int)message, MPI_BYTE, right, 5, MPI_COMM_WORLD, &requests[count++]));
  }
  complete((int)odt_below(&own, kWays), count, requests);
  if (message >= 0) CHECK_DATA(in, message, odt_key(left, odt.rank, 3, case_number));
  free(out);
  free(in);
  for (int i = 0; i < ops; i++) {
    if (operations[i].group->comm != MPI_COMM_NULL) verify(&operations[i]);
  }
  for (int round = 0; round < 2; round++) {
    count = 0;
    for (int i = 0; i < ops; i++) {
      Operation* o = &operations[i];
      if (o->form != kPersistent || o->group->comm == MPI_COMM_NULL) continue;
      side_reset(&o->receiving, &o->recv);
      requests[count++] = o->request;
    }
    MUST(MPI_Startall(count, requests));
    complete((int)odt_below(&own, kWays), count, requests);
    for (int i = 0; i < ops; i++) {
      Operation* o = &operations[i];
      if (o->form == kPersistent && o->group->comm != MPI_COMM_NULL) verify(o);
    }
  }
  for (int i = 0; i < ops; i++) {
    Operation* o = &operations[i];
    if (o->group->comm == MPI_COMM_NULL) continue;
    if (o->form == kPersistent) MUST(MPI_Request_free(&o->request));
    finish(o);
  }
}

int main(int argc, char** argv) {
  odt_start("random", &argc, &argv);
  if (odt.size > kMostRanks) MPI_Abort(MPI_COMM_WORLD, 2);
  host_find();
  find_bases();
  host_small_sums_saturate = without("small-sums");
  host_signedness_is_wrong = without("signedness");
  most_parts = odt_number("most", 1 << 20);
  most_bytes = odt_number("bytes", 1 << 20);
  const long first = odt_number("first", 0), cases = odt_number("cases", 200);
  Group world = {.comm = MPI_COMM_WORLD};
  MUST(host.Comm_dup(MPI_COMM_WORLD, &world.hosts));
  long epoch = -1;
  for (case_number = first; case_number < first + cases; case_number++) {
    if (case_number / kPerEpoch != epoch) {
      if (epoch >= 0) free_groups();
      epoch = case_number / kPerEpoch;
      make_groups(epoch);
    }
    run_case(&world);
    long failures = odt.failures, all = 0;
    MUST(host.Allreduce(&failures, &all, 1, MPI_LONG, MPI_SUM, world.hosts));
    if (all != 0) break;  // the first tells the story
  }
  if (epoch >= 0) free_groups();
  MUST(host.Comm_free(&world.hosts));
  return odt_finish();
}
