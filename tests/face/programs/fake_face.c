/* A face with just enough in it to see that the loader keeps its side of the contract. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "face_abi.h"

static const struct od_loader_info* loader;
static atomic_int sends; /* programs send from several threads */
static int loadings;

static unsigned index_of(const char* name) {
  for (unsigned i = 0; i < loader->count; ++i)
    if (strcmp(loader->names[i], name) == 0) return i;
  abort();
}

static int face_send(const void* buf, int count, int type, int dest, int tag, int comm) {
  int (*host)(const void*, int, int, int, int, int) =
      (int (*)(const void*, int, int, int, int, int))loader->host[index_of("MPI_Send")];
  atomic_fetch_add(&sends, 1);
  return 1000000 + host(buf, count, type, dest, tag, comm);
}
static void before_dlopen(void) { ++loadings; }
static int face_finalize(void) {
  if (getenv("FAKE_FACE_LISTENS") != NULL) printf("face: %d loadings\n", loadings);
  printf("face: %d sends\n", atomic_load(&sends));
  fflush(stdout);
  return ((int (*)(void))loader->host[index_of("MPI_Finalize")])();
}
static int never(void) {
  puts("face: an entry that the host does not have was called");
  return 0;
}

__attribute__((visibility("default"))) int od_face_bind(const struct od_loader_info* info,
                                                        void** entries) {
  const char* refuse = getenv("FAKE_FACE_RESULT");
  loader = info;
  if (info->version != OD_FACE_ABI_VERSION || info->size_bytes != sizeof(*info))
    return OD_BIND_VERSION;
  if (getenv("FAKE_FACE_LISTENS") != NULL) info->set_dlopen_listener(before_dlopen);
  entries[index_of("MPI_Send")] = (void*)face_send;
  entries[index_of("MPI_Finalize")] = (void*)face_finalize;
  entries[index_of("MPI_Send_c")] = (void*)never;
  /* A call from inside the face must reach the host, not wait for the resolution it is part of. */
  int (*rank)(int, int*) = (int (*)(int, int*))info->host[index_of("MPI_Comm_rank")];
  int value = 0;
  rank(0, &value);
  printf("face: bound abi %u soname %s host symbol %d rank %d\n", info->abi, info->host_soname,
         info->host_symbol("MPIR_Err_create_code") != NULL, value);
  fflush(stdout);
  return refuse != NULL ? atoi(refuse) : OD_BIND_OK;
}
