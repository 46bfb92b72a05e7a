// Communicators of random programs.
//
//   comm how=dup|idup parent= id= [q=]           comm how=split parent= colors= keys= ids=
//   comm how=create|group parent= members= id= [tag=]
//   comm how=inter parent= leader= remote= tag= side= id= bridge=   comm how=merge parent= high=
//   id= commfree c=          topologies: topologies.h; a duplicate has its parent's
// Each line of a new communicator also says who must be in it: size=, rank= (and remote=) follow
// from `members of` lists that the planner gives as ranks=R,R,.. of MPI_COMM_WORLD, rank 0 first.
#ifndef COMMUNICATORS_H_
#define COMMUNICATORS_H_

#include "topologies.h"

static void comm_set(const Op* op, long id, MPI_Comm handle) {
  REQUIRE(op, id >= 0 && id < kMostComms && !comms[id].used, "the program is wrong: comm %ld", id);
  comms[id].comm = handle;
}

// Checks a new communicator's group and makes it known.
static void comm_register(const Op* op, long id) {
  Comm* c = &comms[id];
  long members[kMostRanks];
  REQUIRE(op, c->comm != MPI_COMM_NULL, "a new communicator is MPI_COMM_NULL");
  MUST(op, MPI_Comm_rank(c->comm, &c->rank));
  MUST(op, MPI_Comm_size(c->comm, &c->size));
  MUST(op, MPI_Comm_test_inter(c->comm, &c->is_inter));
  c->remote_size = 0;
  if (c->is_inter) MUST(op, MPI_Comm_remote_size(c->comm, &c->remote_size));
  c->place = (int)arg(op, "side", 0);
  char name[24];
  snprintf(name, sizeof name, "ranks%ld", id);
  const int count = arg_list(op, name, members, kMostRanks);
  REQUIRE(op, count == c->size, "a new communicator has %d ranks, not %d", c->size, count);
  REQUIRE(op, members[c->rank] == world_rank, "rank %d of a new communicator should be %ld",
          c->rank, members[c->rank]);
  c->used = 1;
  c->has_neighbours = c->in_count = c->out_count = 0;
  if (has_topology(op)) topology_note(op, c);
  if (arg_is(op, "how", "dup") || arg_is(op, "how", "idup")) {
    const Comm* parent = comm_of(op, "parent");
    c->has_neighbours = parent->has_neighbours;
    c->in_count = parent->in_count;
    c->out_count = parent->out_count;
    memcpy(c->in, parent->in, sizeof c->in);
    memcpy(c->out, parent->out, sizeof c->out);
  }
}

static MPI_Group group_of(const Op* op, const Comm* parent) {
  long members[kMostRanks];
  int ranks[kMostRanks];
  const int count = arg_list(op, "members", members, kMostRanks);
  for (int i = 0; i < count; i++) ranks[i] = (int)members[i];
  MPI_Group whole, part;
  MUST(op, MPI_Comm_group(parent->comm, &whole));
  MUST(op, MPI_Group_incl(whole, count, ranks, &part));
  MUST(op, MPI_Group_free(&whole));
  return part;
}

static void do_comm(Session* s, const Op* op) {
  const Comm* parent = comm_of(op, "parent");
  MPI_Comm made = MPI_COMM_NULL;
  long id = arg(op, "id", -1);
  if (arg_is(op, "how", "dup")) {
    MUST(op, MPI_Comm_dup(parent->comm, &made));
  } else if (arg_is(op, "how", "idup")) {
    Slot* slot = slot_take(s, op, kNewComm);
    comm_set(op, id, MPI_COMM_NULL);
    slot->comm = (int)id;
    slot->active = 1;
    MUST(op, MPI_Comm_idup(parent->comm, &comms[id].comm, &slot->request));
    return;
  } else if (arg_is(op, "how", "split")) {
    long colors[kMostRanks], keys[kMostRanks], ids[kMostRanks];
    arg_list(op, "colors", colors, kMostRanks);
    arg_list(op, "keys", keys, kMostRanks);
    arg_list(op, "ids", ids, kMostRanks);
    const long color = colors[parent->rank];
    MUST(op, MPI_Comm_split(parent->comm, color < 0 ? MPI_UNDEFINED : (int)color,
                            (int)keys[parent->rank], &made));
    id = color < 0 ? -1 : ids[color];
  } else if (arg_is(op, "how", "create") || arg_is(op, "how", "group")) {
    MPI_Group group = group_of(op, parent);
    int inside;
    MUST(op, MPI_Group_rank(group, &inside));
    if (inside == MPI_UNDEFINED) id = -1;
    if (arg_is(op, "how", "create")) {
      MUST(op, MPI_Comm_create(parent->comm, group, &made));
    } else if (inside != MPI_UNDEFINED) {
      MUST(op, MPI_Comm_create_group(parent->comm, group, (int)arg(op, "tag", 0), &made));
    }
    MUST(op, MPI_Group_free(&group));
  } else if (arg_is(op, "how", "inter")) {
    const Comm* bridge = comm_of(op, "bridge");
    MUST(op, MPI_Intercomm_create(parent->comm, (int)arg_needed(op, "leader"), bridge->comm,
                                  (int)arg_needed(op, "remote"), (int)arg(op, "tag", 0), &made));
  } else if (arg_is(op, "how", "merge")) {
    MUST(op, MPI_Intercomm_merge(parent->comm, (int)arg_needed(op, "high"), &made));
  } else if (has_topology(op)) {
    made = topology_make(op, parent);
    if (made == MPI_COMM_NULL) id = -1;  // that it must be so is checked by the others' size
  } else {
    fail(op, "the program is wrong: how");
  }
  if (id < 0) {
    REQUIRE(op, made == MPI_COMM_NULL, "a communicator that this rank is not in");
    return;
  }
  comm_set(op, id, made);
  comm_register(op, id);
}

static void do_comm_free(Session* s, const Op* op) {
  (void)s;
  Comm* c = comm_of(op, "c");
  MUST(op, MPI_Comm_free(&c->comm));
  REQUIRE(op, c->comm == MPI_COMM_NULL, "MPI_Comm_free has kept the handle");
  c->used = 0;
}

#endif  // COMMUNICATORS_H_
