#define _GNU_SOURCE
#include "memory.h"
#include "result.h"

#include <string.h>
#include <sys/mman.h>

#define DEVICE_MEMORY 0x600000000000ULL
#define ALLOCATIONS 256
#define PAGE 4096ULL

struct allocation {
    void *address;
    size_t bytes;
    unsigned device;
    void *in_host; /* where its contents are while checkpointed */
};

static struct allocation allocations[ALLOCATIONS];
static unsigned long long next_address = DEVICE_MEMORY;

/* A forked child has no CUDA, and so no device memory. */
static int map(struct allocation *allocation) {
    void *mapped = mmap(allocation->address, allocation->bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (mapped != allocation->address)
        return OUT_OF_MEMORY;
    madvise(mapped, allocation->bytes, MADV_DONTFORK);
    return 0;
}

static void forget_copies(void) {
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++) {
        if (each->in_host)
            munmap(each->in_host, each->bytes);
        each->in_host = NULL;
    }
}

int memory_to_host(void) {
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++) {
        if (!each->address)
            continue;
        void *copy = mmap(NULL, each->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (copy == MAP_FAILED) {
            forget_copies();
            return OUT_OF_MEMORY;
        }
        each->in_host = memcpy(copy, each->address, each->bytes);
    }
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        if (each->address)
            munmap(each->address, each->bytes);
    return 0;
}

static void unmap_before(const struct allocation *end) {
    for (struct allocation *each = allocations; each < end; each++)
        if (each->address)
            munmap(each->address, each->bytes);
}

int memory_to_devices(void) {
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++) {
        if (!each->address)
            continue;
        if (map(each)) {
            unmap_before(each);
            return OUT_OF_MEMORY;
        }
        memcpy(each->address, each->in_host, each->bytes);
    }
    forget_copies();
    return 0;
}

void *memory_allocate(size_t *bytes, unsigned device) {
    *bytes = (*bytes + PAGE - 1) & ~(PAGE - 1);
    for (struct allocation *each = allocations; *bytes && each < allocations + ALLOCATIONS; each++) {
        if (each->address)
            continue;
        *each = (struct allocation){.address = (void *)next_address, .bytes = *bytes, .device = device};
        if (map(each)) {
            each->address = NULL;
            return NULL;
        }
        next_address += *bytes + PAGE;
        return each->address;
    }
    return NULL;
}

size_t memory_release(void *address, unsigned *device) {
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++) {
        if (!address || each->address != address)
            continue;
        munmap(each->address, each->bytes);
        *device = each->device;
        each->address = NULL;
        return each->bytes;
    }
    return 0;
}
