/* The C side of the Fortran module smpi_f08: handles as Fortran knows them, results by address.
 *
 * Compile it with the same MPI library as the program, together with smpi_f08.f90.
 */
#define SMPI_WITHOUT_SITES
#include "overdrive/smpi.h"

int smpi_f_attach(MPI_Fint comm);
int smpi_f_detach(MPI_Fint comm);
int smpi_f_near(MPI_Fint comm, int rank, int* flag);
int smpi_f_start(const void* buf, int64_t count, MPI_Fint datatype, int dest, int tag,
                 MPI_Fint comm, int pass, MPI_Fint* request);
int smpi_f_recv(SMPI_View* view, int64_t count, MPI_Fint datatype, int source, int tag,
                MPI_Fint comm, MPI_Fint* request);
int smpi_f_probe(int source, int tag, MPI_Fint comm, int* flag, int* found_source, int* found_tag,
                 int64_t* bytes);
int smpi_f_get(SMPI_View view, const void** address, int* source, int* tag, int64_t* bytes);
int smpi_f_bcast(const void* buf, int64_t count, MPI_Fint datatype, int root, MPI_Fint comm,
                 SMPI_View* view, MPI_Fint* request);
int smpi_f_scatter(const void* buf, int64_t count, MPI_Fint datatype, int root, MPI_Fint comm,
                   SMPI_View* view, MPI_Fint* request);
int smpi_f_allgather(const void* buf, int64_t count, MPI_Fint datatype, MPI_Fint comm,
                     SMPI_View* views, MPI_Fint* request);

int smpi_f_attach(MPI_Fint comm) { return SMPI_Comm_attach(MPI_Comm_f2c(comm)); }
int smpi_f_detach(MPI_Fint comm) { return SMPI_Comm_detach(MPI_Comm_f2c(comm)); }
int smpi_f_near(MPI_Fint comm, int rank, int* flag) {
  return SMPI_Comm_near(MPI_Comm_f2c(comm), rank, flag);
}

/* Without `request`: blocking. */
int smpi_f_start(const void* buf, int64_t count, MPI_Fint datatype, int dest, int tag,
                 MPI_Fint comm, int pass, MPI_Fint* request) {
  MPI_Request started = MPI_REQUEST_NULL;
  const int code = smpi_start_(buf, (MPI_Count)count, MPI_Type_f2c(datatype), dest, tag,
                               MPI_Comm_f2c(comm), pass, request != 0 ? &started : 0);
  if (request != 0) *request = MPI_Request_c2f(started);
  return code;
}

int smpi_f_recv(SMPI_View* view, int64_t count, MPI_Fint datatype, int source, int tag,
                MPI_Fint comm, MPI_Fint* request) {
  MPI_Request started = MPI_REQUEST_NULL;
  int code;
  smpi_site_ = "a Fortran program";
  if (request == 0) {
    return SMPI_Recv(view, (MPI_Count)count, MPI_Type_f2c(datatype), source, tag,
                     MPI_Comm_f2c(comm), MPI_STATUS_IGNORE);
  }
  code = SMPI_Irecv(view, (MPI_Count)count, MPI_Type_f2c(datatype), source, tag, MPI_Comm_f2c(comm),
                    &started);
  *request = MPI_Request_c2f(started);
  return code;
}

static void smpi_f_status(const MPI_Status* status, int* source, int* tag, int64_t* bytes) {
  MPI_Count count = 0;
  MPI_Get_elements_x((MPI_Status*)status, MPI_BYTE, &count);
  *source = status->MPI_SOURCE;
  *tag = status->MPI_TAG;
  *bytes = (int64_t)count;
}

/* `flag` null: blocking. */
int smpi_f_probe(int source, int tag, MPI_Fint comm, int* flag, int* found_source, int* found_tag,
                 int64_t* bytes) {
  MPI_Status status;
  const int code = smpi_probe_(source, tag, MPI_Comm_f2c(comm), flag, &status);
  if (code == MPI_SUCCESS && (flag == 0 || *flag)) {
    smpi_f_status(&status, found_source, found_tag, bytes);
  }
  return code;
}

int smpi_f_get(SMPI_View view, const void** address, int* source, int* tag, int64_t* bytes) {
  MPI_Status status;
  const int code = SMPI_View_get(view, address, &status);
  if (code == MPI_SUCCESS) smpi_f_status(&status, source, tag, bytes);
  return code;
}

/* Those below: without `request`, blocking. */
int smpi_f_bcast(const void* buf, int64_t count, MPI_Fint datatype, int root, MPI_Fint comm,
                 SMPI_View* view, MPI_Fint* request) {
  MPI_Request started = MPI_REQUEST_NULL;
  const MPI_Datatype type = MPI_Type_f2c(datatype);
  const MPI_Comm where = MPI_Comm_f2c(comm);
  int code;
  if (request == 0) return SMPI_Bcast(buf, (MPI_Count)count, type, root, where, view);
  code = SMPI_Ibcast(buf, (MPI_Count)count, type, root, where, view, &started);
  *request = MPI_Request_c2f(started);
  return code;
}

int smpi_f_scatter(const void* buf, int64_t count, MPI_Fint datatype, int root, MPI_Fint comm,
                   SMPI_View* view, MPI_Fint* request) {
  MPI_Request started = MPI_REQUEST_NULL;
  const MPI_Datatype type = MPI_Type_f2c(datatype);
  const MPI_Comm where = MPI_Comm_f2c(comm);
  int code;
  if (request == 0) return SMPI_Scatter(buf, (MPI_Count)count, type, root, where, view);
  code = SMPI_Iscatter(buf, (MPI_Count)count, type, root, where, view, &started);
  *request = MPI_Request_c2f(started);
  return code;
}

int smpi_f_allgather(const void* buf, int64_t count, MPI_Fint datatype, MPI_Fint comm,
                     SMPI_View* views, MPI_Fint* request) {
  MPI_Request started = MPI_REQUEST_NULL;
  const MPI_Datatype type = MPI_Type_f2c(datatype);
  const MPI_Comm where = MPI_Comm_f2c(comm);
  int code;
  if (request == 0) return SMPI_Allgather(buf, (MPI_Count)count, type, where, views);
  code = SMPI_Iallgather(buf, (MPI_Count)count, type, where, views, &started);
  *request = MPI_Request_c2f(started);
  return code;
}
