#define _GNU_SOURCE
#include "memory.h"
#include "result.h"

#include <string.h>
#include <sys/mman.h>

#define DEVICE_MEMORY 0x600000000000ULL
#define ALLOCATIONS 256
#define PAGE 4096ULL
#define PIECE (2ULL << 20)

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

/* Only pages with anything in them, so that memory that was never written costs none anywhere. */
static void copy_written(char *to, const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE)
        if (from[at] || memcmp(from + at, from + at + 1, PAGE - 1))
            memcpy(to + at, from + at, PAGE);
}

/* Reading makes pages of what was never written: they are given back piece by piece. */
static void move_to_host(const struct allocation *allocation) {
    for (size_t at = 0; at < allocation->bytes; at += PIECE) {
        size_t bytes = allocation->bytes - at < PIECE ? allocation->bytes - at : PIECE;
        copy_written((char *)allocation->in_host + at, (char *)allocation->address + at, bytes);
        madvise((char *)allocation->address + at, bytes, MADV_REMOVE);
    }
    munmap(allocation->address, allocation->bytes);
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
        each->in_host = copy;
    }
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        if (each->address)
            move_to_host(each);
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
        copy_written(each->address, each->in_host, each->bytes);
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

size_t memory_largest(void) {
    size_t largest = 0;
    for (const struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        if (each->address && each->bytes > largest)
            largest = each->bytes;
    return largest;
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
