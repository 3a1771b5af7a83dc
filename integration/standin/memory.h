/* Device memory: shared memory at addresses that stay the same, or, while checkpointed, one copy of all in private memory. */
#ifndef STASIS_MEMORY_H
#define STASIS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Memory of a device, in whole pages, which `bytes` says afterwards; 0 if there is no room. */
void *memory_allocate(size_t *bytes, unsigned device);
/* Gives memory up: how much it was, and of which device; 0 for what is no allocation. */
size_t memory_release(void *address, unsigned *device);
/* The bytes of the largest allocation. */
size_t memory_largest(void);
/* Device memory to host memory and back; each a CUresult, and all or nothing. By order they wait behind each 2 MiB. */
extern unsigned memory_wait_ms;
/* They wait when half is copied, as long as this is set. */
extern const uint32_t *memory_is_held_halfway;
int memory_to_host(void);
int memory_to_devices(void);

#endif
