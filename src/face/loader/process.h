// What the loader knows about the process it is in: the host library, the real dlsym and dlopen,
// the names.
//
// One object for the process, zero-initialised, without constructor. Everything that changes after
// the first MPI call has been resolved is guarded by a lock that is taken over rather than waited
// for without end: a forked child can inherit it taken.
#ifndef OVERDRIVE_SRC_FACE_LOADER_PROCESS_H_
#define OVERDRIVE_SRC_FACE_LOADER_PROCESS_H_

#include "face/face_abi.h"
#include "host_library.h"
#include "stubs.h"

namespace od::loader {

using DlsymFn = void* (*)(void* handle, const char* name);
using DlopenFn = void* (*)(const char* file, int flags);

// The next dlsym and dlopen after ours: libc's, or another interposer's.
DlsymFn RealDlsym();
DlopenFn RealDlopen();

// "MPI_X" for each function number; the P form is the same with a P before it.
const char* Name(unsigned index);
// The number of "MPI_X" or "PMPI_X", or -1.
int IndexOf(const char* name);

// Looks for a host library if something was loaded since the last look, and makes this loader's own
// symbol table offer exactly the names that host defines: a weak reference to a function which the
// host lacks must stay null, because programs take that as "not available". While there is no host
// every name is offered, since the object that brings the host is bound in the same breath. Returns
// a copy of what was found.
HostLibrary FindHostAndAdjustNames();
// From here on the host that was found is the host for good: the caller holds a handle of it, so it
// stays loaded, and what is loaded or unloaded besides changes nothing. Hosts open and close dozens
// of plug-ins inside MPI_Init, and each would mean another search.
void KeepHost(const HostLibrary& host);

// Whether `address` lies in this loader.
bool IsOurs(const void* address);

// OVERDRIVE_VERBOSE and OVERDRIVE_DISABLE from the environment, read without the settings table.
int Verbosity();
bool Disabled();

// Whether it is one of our functions in own_pages.cc.
bool IsOwnMapping(const void* function);

// What the face wants to hear before each dlopen that may load something
// (od_loader_info::set_dlopen_listener).
void SetDlopenListener(void (*listener)());
void TellDlopenListener();

// The od::memory::ReachService of this process, for the face.
const void* HeapService();

// What programs get that use the SMPI interface; a face sets it.
const void** SmpiEngine();

// Binds this process where the setting `pin` says, if it is a rank; once, before the program starts
// its work.
void PinOnce(const char* const* environment);

// What a face needs for the board of the host's PMIx.
od_pmix* Pmix();

// One line on standard error, "overdrive: " and the parts (null ends the list), without allocation.
void Say(const char* const* parts);

}  // namespace od::loader

#endif  // OVERDRIVE_SRC_FACE_LOADER_PROCESS_H_
