/* Inside smpi.h: broadcast, scatter and allgather of views.
 *
 * Inside a group descriptors are exchanged, by the MPI library's (or Overdrive's) own collectives.
 * Between groups the leaders exchange data once, and every leader lends what it has received to its
 * group. Without Overdrive every rank is a group.
 */
#ifndef OVERDRIVE_SMPI_COLLECTIVES_H_
#define OVERDRIVE_SMPI_COLLECTIVES_H_

#include "overdrive/smpi_views.h"

/* The arguments of a collective call; null: wrong, and *code says how. */
SMPI_API_ struct smpi_comm_* smpi_collective_(MPI_Comm comm, MPI_Count count, MPI_Datatype datatype,
                                              int root, const void* out, uint64_t* bytes,
                                              int* code) {
  struct smpi_comm_* c = smpi_find_(comm);
  *code = c == 0 || c->is_inter ? MPI_ERR_COMM : smpi_bytes_(count, datatype, bytes);
  if (*code == MPI_SUCCESS && out == 0) *code = MPI_ERR_ARG;
  if (*code == MPI_SUCCESS && (root < 0 || root >= c->size)) *code = MPI_ERR_ROOT;
  /* Longer ones would need counts that MPI_Bcast of MPI 3 does not have. */
  if (*code == MPI_SUCCESS && *bytes > SMPI_INT_BYTES_) *code = MPI_ERR_COUNT;
  if (*code == MPI_SUCCESS) return c;
  smpi_raise_(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, *code);
  return 0;
}

SMPI_API_ int smpi_group_size_(const struct smpi_comm_* c) {
  return c->group_sizes[c->group_of[c->rank]];
}

/* This rank's rank in `node`, and whether it leads its group. */
SMPI_API_ int smpi_in_group_(const struct smpi_comm_* c) { return c->position[c->rank]; }

/* Hands the place from rank `from` of the group to all of it. */
SMPI_API_ int smpi_spread_(struct smpi_comm_* c, int from, struct overdrive_smpi_place* place) {
  if (c->node == MPI_COMM_NULL) return MPI_SUCCESS;
  return MPI_Bcast(place, (int)sizeof *place, MPI_BYTE, from, c->node);
}

/* A view of part of a place. */
SMPI_API_ int smpi_part_(struct smpi_comm_* c, const struct overdrive_smpi_place* whole,
                         uint64_t from, uint64_t bytes, int source, SMPI_View* view) {
  struct overdrive_smpi_place part = *whole;
  *view = smpi_view_new_(c);
  if (*view == 0) return MPI_ERR_NO_MEM;
  (*view)->source = source;
  (*view)->tag = MPI_ANY_TAG;
  part.offset += from;
  part.bytes = bytes;
  return smpi_view_open_(*view, &part);
}

/* A new block of this rank for what comes from another group. */
SMPI_API_ int smpi_shelf_(uint64_t bytes, void** block) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  *block = engine->alloc(engine->self, bytes, smpi_site_);
  return *block == 0 ? MPI_ERR_NO_MEM : MPI_SUCCESS;
}

/* Lends it, now that the data is there, and forgets it: the last viewer frees it. */
SMPI_API_ void smpi_shelf_lend_(void* block, uint64_t bytes, uint32_t views,
                                struct overdrive_smpi_place* place) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  if (block == 0) return;
  engine->lend(engine->self, block, bytes, views, place);
  engine->free(engine->self, block, 0);
}

/* The address, for the moment, of what a near rank has lent; there is a view of it besides. */
SMPI_API_ const void* smpi_address_(const struct overdrive_smpi_place* place, uint64_t* number) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  const void* address = 0;
  engine->open(engine->self, place, "a collective call", &address, number);
  return address;
}

SMPI_API_ void smpi_address_done_(const struct overdrive_smpi_place* place, uint64_t number) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  engine->close(engine->self, place, number);
}

SMPI_API_ int SMPI_Bcast(const void* buf, MPI_Count count, MPI_Datatype datatype, int root,
                         MPI_Comm comm, SMPI_View* view) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct overdrive_smpi_place place;
  uint64_t bytes = 0, number = 0;
  void* block = 0;
  int code, mine;
  struct smpi_comm_* c = smpi_collective_(comm, count, datatype, root, view, &bytes, &code);
  if (c == 0) return code;
  smpi_progress_();
  memset(&place, 0, sizeof place);
  mine = c->group_of[root] == c->group_of[c->rank];
  if (mine) {
    /* One lease more for the leader, who reads it for the other groups. */
    const uint32_t views = (uint32_t)smpi_group_size_(c) + (c->all_near ? 0 : 1);
    if (c->rank == root) code = smpi_lend_(buf, bytes, views, &place);
    if (code == MPI_SUCCESS) code = smpi_spread_(c, c->position[root], &place);
  }
  if (code == MPI_SUCCESS && c->leaders != MPI_COMM_NULL) {
    const void* data;
    if (!mine) {
      code = smpi_shelf_(bytes, &block);
      data = block;
    } else {
      data = smpi_address_(&place, &number);
      engine->note_copy(engine->self, bytes);
    }
    if (code == MPI_SUCCESS) {
      code = MPI_Bcast((void*)(uintptr_t)data, (int)bytes, MPI_BYTE, c->group_of[root], c->leaders);
    }
    if (mine) smpi_address_done_(&place, number);
    smpi_shelf_lend_(block, bytes, (uint32_t)smpi_group_size_(c), &place);
  }
  if (code == MPI_SUCCESS && !mine) code = smpi_spread_(c, 0, &place);
  if (code == MPI_SUCCESS) code = smpi_part_(c, &place, 0, bytes, root, view);
  return smpi_raise_(comm, code);
}

SMPI_API_ int SMPI_Scatter(const void* buf, MPI_Count count, MPI_Datatype datatype, int root,
                           MPI_Comm comm, SMPI_View* view) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct overdrive_smpi_place place;
  uint64_t bytes = 0, number = 0, at;
  void* block = 0;
  int code, mine, i, g;
  struct smpi_comm_* c = smpi_collective_(comm, count, datatype, root, view, &bytes, &code);
  if (c == 0) return code;
  smpi_progress_();
  memset(&place, 0, sizeof place);
  mine = c->group_of[root] == c->group_of[c->rank];
  if (mine) {
    const uint32_t views = (uint32_t)smpi_group_size_(c) + (c->all_near ? 0 : 1);
    if (c->rank == root) code = smpi_lend_(buf, bytes * (uint64_t)c->size, views, &place);
    if (code == MPI_SUCCESS) code = smpi_spread_(c, c->position[root], &place);
  }
  if (code == MPI_SUCCESS && c->leaders != MPI_COMM_NULL && mine) {
    const char* data = (const char*)smpi_address_(&place, &number);
    /* Each group's parts one after the other. */
    int longest = 0;
    char* packed;
    for (g = 0; g < c->groups; g++) {
      if (c->group_sizes[g] > longest) longest = c->group_sizes[g];
    }
    packed = (char*)malloc((size_t)(bytes * (uint64_t)longest + 1));
    if (packed == 0) code = MPI_ERR_NO_MEM;
    for (g = 0; g < c->groups && code == MPI_SUCCESS; g++) {
      if (g == c->group_of[root]) continue;
      for (i = 0; i < c->size; i++) {
        if (c->group_of[i] != g || bytes == 0) continue;
        memcpy(packed + bytes * (uint64_t)c->position[i], data + bytes * (uint64_t)i,
               (size_t)bytes);
      }
      at = bytes * (uint64_t)c->group_sizes[g];
      engine->note_copy(engine->self, at);
      code = MPI_Send(packed, (int)at, MPI_BYTE, g, c->tag_ub, c->leaders);
    }
    free(packed);
    smpi_address_done_(&place, number);
  }
  if (code == MPI_SUCCESS && !mine) {
    if (c->leaders != MPI_COMM_NULL) {
      at = bytes * (uint64_t)smpi_group_size_(c);
      code = smpi_shelf_(at, &block);
      if (code == MPI_SUCCESS) {
        code = MPI_Recv(block, (int)at, MPI_BYTE, c->group_of[root], c->tag_ub, c->leaders,
                        MPI_STATUS_IGNORE);
        smpi_shelf_lend_(block, at, (uint32_t)smpi_group_size_(c), &place);
      }
    }
    if (code == MPI_SUCCESS) code = smpi_spread_(c, 0, &place);
  }
  i = mine ? c->rank : smpi_in_group_(c);
  if (code == MPI_SUCCESS) {
    code = smpi_part_(c, &place, bytes * (uint64_t)i, bytes, root, view);
  }
  return smpi_raise_(comm, code);
}

SMPI_API_ int SMPI_Allgather(const void* buf, MPI_Count count, MPI_Datatype datatype, MPI_Comm comm,
                             SMPI_View views[]) {
  const struct overdrive_smpi_engine* engine = smpi_process_state_.engine;
  struct overdrive_smpi_place place, *places = 0;
  uint64_t bytes = 0;
  void* block = 0;
  int code, i, g, before;
  struct smpi_comm_* c = smpi_collective_(comm, count, datatype, 0, views, &bytes, &code);
  int own, leads;
  if (c == 0) return code;
  smpi_progress_();
  own = c->group_of[c->rank];
  leads = c->leaders != MPI_COMM_NULL;
  places = (struct overdrive_smpi_place*)malloc((size_t)c->size * sizeof *places);
  if (places == 0) return smpi_raise_(comm, MPI_ERR_NO_MEM);
  memset(&place, 0, sizeof place);
  /* Own group: everybody sees everybody's part where it is. One lease more for the leader. */
  code = smpi_lend_(buf, bytes, (uint32_t)smpi_group_size_(c) + (c->all_near ? 0 : 1), &place);
  places[0] = place;
  if (code == MPI_SUCCESS && c->node != MPI_COMM_NULL) {
    code = MPI_Allgather(&place, (int)sizeof place, MPI_BYTE, places, (int)sizeof place, MPI_BYTE,
                         c->node);
  }
  for (i = 0; i < c->size && code == MPI_SUCCESS; i++) {
    if (c->group_of[i] == own)
      code = smpi_part_(c, &places[c->position[i]], 0, bytes, i, &views[i]);
  }
  if (code == MPI_SUCCESS && !c->all_near) {
    /* Other groups: the leaders gather all parts, group by group, and lend them. */
    int* counts = (int*)calloc(2 * (size_t)c->groups, sizeof(int));
    int* displacements = counts + c->groups;
    const uint32_t others = (uint32_t)(c->size - smpi_group_size_(c));
    if (counts == 0 || bytes * (uint64_t)c->size > SMPI_INT_BYTES_) code = MPI_ERR_NO_MEM;
    for (g = 0, before = 0; g < c->groups && code == MPI_SUCCESS; g++) {
      counts[g] = (int)bytes * c->group_sizes[g];
      displacements[g] = (int)bytes * before;
      before += c->group_sizes[g];
    }
    if (code == MPI_SUCCESS && leads) {
      code = smpi_shelf_(bytes * (uint64_t)c->size, &block);
    }
    if (code == MPI_SUCCESS && leads) {
      char* mine = (char*)block + displacements[own];
      engine->note_copy(engine->self, (uint64_t)counts[own]);
      for (i = 0; i < smpi_group_size_(c); i++) {
        uint64_t number = 0;
        const void* data = smpi_address_(&places[i], &number);
        if (bytes > 0) memcpy(mine + bytes * (uint64_t)i, data, (size_t)bytes);
        smpi_address_done_(&places[i], number);
      }
      code = MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, block, counts, displacements,
                            MPI_BYTE, c->leaders);
      smpi_shelf_lend_(block, bytes * (uint64_t)c->size, others * (uint32_t)smpi_group_size_(c),
                       &place);
    }
    if (code == MPI_SUCCESS) code = smpi_spread_(c, 0, &place);
    for (i = 0; i < c->size && code == MPI_SUCCESS; i++) {
      if (c->group_of[i] == own) continue;
      code = smpi_part_(c, &place,
                        (uint64_t)displacements[c->group_of[i]] + bytes * (uint64_t)c->position[i],
                        bytes, i, &views[i]);
    }
    free(counts);
  }
  free(places);
  return smpi_raise_(comm, code);
}

#endif /* OVERDRIVE_SMPI_COLLECTIVES_H_ */
