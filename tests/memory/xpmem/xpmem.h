/* The functions of libxpmem as Overdrive calls them, for tests on machines without XPMEM.

   Not the header of XPMEM: that one comes with the kernel module, and whoever builds Overdrive for
   use takes that. The names, types and values are those of the library's interface. */
#ifndef OVERDRIVE_STAND_IN_XPMEM_H_
#define OVERDRIVE_STAND_IN_XPMEM_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 64 bits, as the kernel's __s64. */
typedef long long xpmem_segid_t;
typedef long long xpmem_apid_t;

struct xpmem_addr {
  xpmem_apid_t apid;
  off_t offset;
};

#define XPMEM_MAXADDR_SIZE ((size_t)-1)
#define XPMEM_RDONLY 1
#define XPMEM_RDWR 2
#define XPMEM_PERMIT_MODE 1

int xpmem_version(void);
xpmem_segid_t xpmem_make(void* start, size_t bytes, int permit_type, void* permit_value);
int xpmem_remove(xpmem_segid_t segment);
xpmem_apid_t xpmem_get(xpmem_segid_t segment, int flags, int permit_type, void* permit_value);
int xpmem_release(xpmem_apid_t access);
void* xpmem_attach(struct xpmem_addr from, size_t bytes, void* at);
int xpmem_detach(void* start);

#ifdef __cplusplus
}
#endif

#endif
