/*
 * Device memory: shared memory at addresses that stay the same, or, while checkpointed, one copy of
 * all in private memory. Memory of cuMemAlloc is here, the rest in sharing/vmm.h.
 */
#ifndef STASIS_MEMORY_H
#define STASIS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* With peer access and an allocation of this size driver 580 fails to restore; up to 256 MiB it restores. */
#define LOST_WITH_PEER_ACCESS (512ULL << 20)

/* The origin of memory: cuMemAlloc, cuMemAllocManaged, or another process, through cuIpcOpenMemHandle. */
enum kind { ALLOCATED, MANAGED, OPENED };

struct allocation {
    char *address; /* NULL: none */
    size_t bytes;
    unsigned device;
    enum kind kind;
    int file; /* of the memory, if others may have it; else -1 */
};

/* Allocates memory of a device, in whole pages, which `bytes` says afterwards; 0 if there is no room. */
void *memory_allocate(size_t *bytes, unsigned device);
/* Gives memory of the process's own up. Returns its size and its device; 0 for an address that is no allocation. */
size_t memory_release(void *address, unsigned *device);
/* Returns the allocation that an address is in; NULL if it is in none. */
struct allocation *memory_find(const void *address);
/* Returns the bytes of the largest allocation. */
size_t memory_largest(void);

/* Moves an allocation into a file, unless it is in one; a CUresult. */
int memory_share(struct allocation *allocation);
/* Maps such a file of another process as memory of a device; a CUresult. */
int memory_open(int file, size_t bytes, unsigned device, void **address);
/* Gives up opened memory; a CUresult. */
int memory_close(void *address);
int memory_has_opened(void);
/* For a forked child, which has no CUDA. */
void memory_close_files(void);

/* Device memory to host memory and back; each a CUresult, and all or nothing. By order they wait behind each 2 MiB. */
extern unsigned memory_wait_ms;
/* They wait when half is copied, as long as this is set. */
extern const uint32_t *memory_is_held_halfway;
int memory_to_host(void);
int memory_to_devices(void);

/* The treatment of pages once their contents are taken, and the state of pages before they get contents. */
enum afterwards { KEEP, GIVE_BACK, REMOVE };
enum before { EMPTY, FULL };
/* Moves the next bytes of the contents, in the same order both ways. */
void contents_take(char *from, size_t bytes, enum afterwards afterwards);
void contents_give(char *to, size_t bytes, enum before before);

/* The steps of a checkpoint and a restore that are for allocations: how much, and all of them. Mapping is all or nothing. */
size_t memory_bytes(void);
void memory_take_contents(void);
int memory_map(void);
void memory_unmap(void);
void memory_give_contents(void);

#endif
