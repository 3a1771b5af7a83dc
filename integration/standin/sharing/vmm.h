/*
 * Virtual memory management: addresses are reserved, memory is created or imported, and mapped there. All results are CUresults, all
 * sizes whole granules. An allocation lives as long as it was given out or is mapped.
 */
#ifndef STASIS_SHARING_VMM_H
#define STASIS_SHARING_VMM_H

#include "../mailbox.h"
#include "file.h"

#define GRANULE (2ULL << 20)
#define POSIX_FILE 1 /* CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR */
#define READ_WRITE 3 /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */

/* CUmemLocation, CUmemAllocationProp and CUmemAccessDesc. */
struct location {
    int type;
    int id;
};

struct properties {
    int type; /* 1: pinned */
    int handle_types;
    struct location location;
    void *win32;
    struct {
        unsigned char compression, gpu_direct;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct access {
    struct location location;
    int flags;
};

_Static_assert(sizeof(struct properties) == 32, "as in cuda.h");

typedef unsigned long long vmm_handle;

struct vmm_allocation {
    vmm_handle handle; /* 0: none */
    struct properties properties;
    size_t bytes;
    int file; /* -1: its contents are on the host, or it was imported and is lost */
    int is_import, is_exported, was_restored;
    unsigned given_out, mapped; /* references */
};

struct vmm_mapping {
    char *address; /* NULL: none */
    size_t bytes;
    struct vmm_allocation *of;
    unsigned char access[GPUS + 1]; /* of each device, and of the host */
};

int vmm_reserve(char **address, size_t bytes, size_t alignment, char *wanted);
int vmm_end_reservation(char *address, size_t bytes);
/* Whether a range is in one reservation; whether something is mapped in it. */
int vmm_is_reserved(const char *address, size_t bytes);
int vmm_is_used(const char *address, size_t bytes);

int vmm_create(vmm_handle *handle, size_t bytes, const struct properties *properties);
int vmm_import(vmm_handle *handle, int file);
int vmm_export(vmm_handle handle, int *file);
/* Counts one more that is given out, or one less. */
int vmm_retain(vmm_handle *handle, const char *address);
int vmm_release(vmm_handle handle);
/* Returns NULL for a handle that is not given out. */
struct vmm_allocation *vmm_find(vmm_handle handle);

int vmm_map(char *address, size_t bytes, vmm_handle handle);
/* Both take ranges of whole mappings. */
int vmm_unmap(char *address, size_t bytes);
int vmm_set_access(char *address, size_t bytes, const struct access *accesses, size_t count);
/* Writes into `flags` the access of a device or the host at an address. */
int vmm_access(const struct location *location, const char *address, unsigned long long *flags);
/* Returns the mapping that an address is in; NULL if it is in none. */
const struct vmm_mapping *vmm_mapping_at(const char *address);

/* Whether the process holds memory of others. */
int vmm_has_imports(void);
/* Returns the bytes of its largest allocation that another device than its own has access to. */
size_t vmm_largest_of_peers(void);
/* For a forked child, which has no CUDA. */
void vmm_close_files(void);

/* The steps of a checkpoint and a restore that are for its own memory; what it imported is lost. Mapping is all or nothing. */
size_t vmm_bytes(void);
void vmm_take_contents(void);
int vmm_map_anew(void);
void vmm_give_contents(void);

/* Iterates over the allocations for these steps; NULL is the end. */
struct vmm_allocation *vmm_next_allocation(const struct vmm_allocation *before);
/* Makes files for its own allocations, which have none: all or nothing. */
int vmm_make_files(void);
/* Ends an allocation that is neither given out nor mapped. */
void vmm_drop_unused(struct vmm_allocation *allocation);
/* Removes the mappings at addresses, as where they are merely reserved. */
int vmm_hide(char *address, size_t bytes);

#endif
