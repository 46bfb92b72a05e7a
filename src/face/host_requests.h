// Requests of the host MPI, behind the engine's HostTable (host/host_table.h says what each does).
#ifndef OVERDRIVE_FACE_HOST_REQUESTS_H_
#define OVERDRIVE_FACE_HOST_REQUESTS_H_

#include "host/host_table.h"

namespace od::face {

int host_test(host::Handle* request, bool* flag, host::Status* status);
void host_test_some(int count, host::Handle* requests, int* done, int* which,
                    host::Status* statuses);
int host_cancel(host::Handle* request);
int host_request_free(host::Handle* request);

}  // namespace od::face

#endif  // OVERDRIVE_FACE_HOST_REQUESTS_H_
