// Which addresses are host memory by nature, whatever libraries the process has: the reachable
// heap, converted static data, the C library's main heap, the calling thread's stack.
//
// "No" is no answer: other memory may be the host's, too. The question is asked with each buffer of
// a program that has loaded a library since MPI_Init, so it must not cost: where the main thread's
// stack and the main heap lie is read once, in MPI_Init, because the C library reads the process's
// whole list of mappings for the same answer, which takes milliseconds with many ranks.
//
// Thread safety: host_by_nature() may be called on any thread.
#ifndef OVERDRIVE_MEMORY_DEVICE_HOST_MEMORY_H_
#define OVERDRIVE_MEMORY_DEVICE_HOST_MEMORY_H_

namespace od::memory {

// At the beginning of MPI_Init, on any thread: the list is short before the MPI library has loaded
// its plug-ins and before this rank maps the memory of all others.
void find_host_memory();

bool host_by_nature(const void* address);

}  // namespace od::memory

#endif  // OVERDRIVE_MEMORY_DEVICE_HOST_MEMORY_H_
