/* Allocations of cuMemAlloc. */
#define _GNU_SOURCE
#include "memory.h"
#include "gpu.h"
#include "result.h"
#include "sharing/file.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE_MEMORY 0x600000000000ULL
#define ALLOCATIONS 256
#define PAGE 4096ULL
#define PIECE (2ULL << 20)
/* From here on an allocation is in huge pages: a GPU's memory costs the host no page faults, which would outweigh all copying. Smaller ones
   are shared memory in small pages, which no estimate takes for memory of the process. */
#define LARGE (1ULL << 30)

#define FOR_EACH for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++)

static struct allocation allocations[ALLOCATIONS];
static unsigned long long next_address = DEVICE_MEMORY;

static int is_large(const struct allocation *allocation) { return allocation->bytes >= LARGE; }

static int is_own(const struct allocation *allocation) { return allocation->address && allocation->kind != OPENED; }

/* With STASIS_STANDIN_OWN_MEMORY large allocations keep their pages while their contents are on the host, as a device does: the kernel would clear
   new ones in a restore, which took longer than all copying. Who measures asks for it; a process that CRIU dumps must have none of them. */
static int stays(const struct allocation *allocation) { return is_large(allocation) && getenv("STASIS_STANDIN_OWN_MEMORY"); }

/* A forked child has no CUDA, and so no device memory. */
static int map(struct allocation *allocation) {
    int kind = is_large(allocation) ? MAP_PRIVATE : MAP_SHARED;
    void *mapped = mmap(allocation->address, allocation->bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped != allocation->address)
        return OUT_OF_MEMORY;
    if (is_large(allocation))
        madvise(mapped, allocation->bytes, MADV_HUGEPAGE);
    madvise(mapped, allocation->bytes, MADV_DONTFORK);
    return 0;
}

static void close_file(struct allocation *allocation) {
    if (allocation->address && allocation->file >= 0)
        close(allocation->file);
    allocation->file = -1;
}

void memory_close_files(void) {
    FOR_EACH
        close_file(each);
}

size_t memory_bytes(void) {
    size_t bytes = 0;
    FOR_EACH
        bytes += is_own(each) ? each->bytes : 0;
    return bytes;
}

static enum afterwards afterwards(const struct allocation *allocation) {
    if (stays(allocation) || allocation->file >= 0)
        return KEEP; /* others may still have the file */
    return is_large(allocation) ? GIVE_BACK : REMOVE;
}

/* Opened memory is gone, and the restore will report that. */
void memory_take_contents(void) {
    FOR_EACH {
        if (is_own(each))
            contents_take(each->address, each->bytes, afterwards(each));
        if (each->address && !stays(each))
            munmap(each->address, each->bytes);
        close_file(each);
    }
}

static void unmap_before(const struct allocation *end) {
    for (struct allocation *each = allocations; each < end; each++)
        if (is_own(each) && !stays(each))
            munmap(each->address, each->bytes);
}

void memory_unmap(void) { unmap_before(allocations + ALLOCATIONS); }

int memory_map(void) {
    FOR_EACH
        if (is_own(each) && !stays(each) && map(each)) {
            unmap_before(each);
            return OUT_OF_MEMORY;
        }
    return 0;
}

void memory_give_contents(void) {
    FOR_EACH
        if (is_own(each))
            contents_give(each->address, each->bytes, stays(each) ? FULL : EMPTY);
}

/* An entry for memory at the next address; NULL if there is no room. */
static struct allocation *new_entry(size_t bytes, unsigned device, enum kind kind) {
    FOR_EACH {
        if (each->address)
            continue;
        if (bytes >= LARGE)
            next_address = (next_address + PIECE - 1) & ~(PIECE - 1);
        *each = (struct allocation){.address = (char *)next_address, .bytes = bytes, .device = device, .kind = kind, .file = -1};
        return each;
    }
    return NULL;
}

void *memory_allocate(size_t *bytes, unsigned device) {
    *bytes = (*bytes + PAGE - 1) & ~(PAGE - 1);
    struct allocation *new = *bytes ? new_entry(*bytes, device, ALLOCATED) : NULL;
    if (!new)
        return NULL;
    if (map(new)) {
        new->address = NULL;
        return NULL;
    }
    next_address += *bytes + PAGE;
    return new->address;
}

struct allocation *memory_find(const void *address) {
    const char *wanted = address;
    FOR_EACH
        if (each->address && wanted >= each->address && wanted < each->address + each->bytes)
            return each;
    return NULL;
}

size_t memory_largest(void) {
    size_t largest = 0;
    FOR_EACH
        if (is_own(each) && each->bytes > largest)
            largest = each->bytes;
    return largest;
}

static void give_up(struct allocation *allocation) {
    munmap(allocation->address, allocation->bytes);
    close_file(allocation);
    allocation->address = NULL;
}

size_t memory_release(void *address, unsigned *device) {
    struct allocation *found = memory_find(address);
    if (!found || found->address != address || found->kind == OPENED)
        return 0;
    *device = found->device;
    give_up(found);
    return found->bytes;
}

/* Its address stays; it takes a file only now, so that most programs have none open. */
int memory_share(struct allocation *allocation) {
    if (allocation->kind != ALLOCATED || is_large(allocation))
        return INVALID_VALUE;
    if (allocation->file >= 0)
        return 0;
    int file = file_new(&(struct shared){.bytes = allocation->bytes, .type = ON_DEVICE, .place = gpu_now(allocation->device)});
    char *copy = file < 0 ? NULL : file_map(file, NULL, allocation->bytes, PROT_READ | PROT_WRITE);
    if (!copy) {
        close(file);
        return OUT_OF_MEMORY;
    }
    memcpy(copy, allocation->address, allocation->bytes);
    munmap(copy, allocation->bytes);
    if (!file_map(file, allocation->address, allocation->bytes, PROT_READ | PROT_WRITE)) {
        close(file);
        return OUT_OF_MEMORY;
    }
    allocation->file = file;
    return 0;
}

int memory_open(int file, size_t bytes, unsigned device, void **address) {
    struct allocation *new = new_entry(bytes, device, OPENED);
    if (!new)
        return OUT_OF_MEMORY;
    if (!file_map(file, new->address, bytes, PROT_READ | PROT_WRITE)) {
        new->address = NULL;
        return OUT_OF_MEMORY;
    }
    next_address += bytes + PAGE;
    *address = new->address;
    return 0;
}

int memory_close(void *address) {
    struct allocation *found = memory_find(address);
    if (!found || found->address != address || found->kind != OPENED)
        return INVALID_VALUE;
    give_up(found);
    return 0;
}

int memory_has_opened(void) {
    FOR_EACH
        if (each->address && each->kind == OPENED)
            return 1;
    return 0;
}
