/* Reserved addresses, which hold nothing until memory is mapped there. */
#define _GNU_SOURCE
#include "../result.h"
#include "vmm.h"

#include <sys/mman.h>

#define RESERVATIONS 512
/* Away from the addresses of cuMemAlloc. */
#define FIRST_ADDRESS 0x620000000000ULL
/* Addresses that were asked for by name may be taken. */
#define TRIES 1000

#define NOTHING (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

static struct range {
    char *address;
    size_t bytes;
} reservations[RESERVATIONS];
static unsigned long long next_address = FIRST_ADDRESS;

static struct range *find(const char *address, size_t bytes) {
    for (struct range *each = reservations; each < reservations + RESERVATIONS; each++)
        if (each->address == address && each->bytes == bytes)
            return each;
    return NULL;
}

static int take(char *address, size_t bytes) {
    char *taken = mmap(address, bytes, PROT_NONE, NOTHING | MAP_FIXED_NOREPLACE, -1, 0);
    if (taken == MAP_FAILED)
        return -1;
    if (taken != address) {
        munmap(taken, bytes); /* a kernel that does not know the flag */
        return -1;
    }
    madvise(taken, bytes, MADV_DONTFORK);
    return 0;
}

static char *take_next(size_t bytes, size_t alignment) {
    for (int i = 0; i < TRIES; i++) {
        char *address = (char *)((next_address + alignment - 1) & ~(unsigned long long)(alignment - 1));
        next_address = (unsigned long long)address + bytes;
        if (!take(address, bytes))
            return address;
    }
    return NULL;
}

/* The wanted address is a hint. */
int vmm_reserve(char **address, size_t bytes, size_t alignment, char *wanted) {
    struct range *entry = find(NULL, 0);
    if (!bytes || bytes % GRANULE || alignment & (alignment - 1))
        return INVALID_VALUE;
    if (alignment < GRANULE)
        alignment = GRANULE;
    if (!entry)
        return OUT_OF_MEMORY;
    int is_as_wanted = wanted && (unsigned long long)wanted % alignment == 0 && !take(wanted, bytes);
    char *taken = is_as_wanted ? wanted : take_next(bytes, alignment);
    if (!taken)
        return OUT_OF_MEMORY;
    *entry = (struct range){taken, bytes};
    *address = taken;
    return 0;
}

/* Nothing may be mapped there any more. */
int vmm_end_reservation(char *address, size_t bytes) {
    struct range *entry = address ? find(address, bytes) : NULL;
    if (!entry || vmm_is_used(address, bytes))
        return INVALID_VALUE;
    munmap(address, bytes);
    *entry = (struct range){0};
    return 0;
}

int vmm_is_reserved(const char *address, size_t bytes) {
    for (const struct range *each = reservations; each < reservations + RESERVATIONS; each++)
        if (each->address && address >= each->address && address + bytes <= each->address + each->bytes)
            return 1;
    return 0;
}

int vmm_hide(char *address, size_t bytes) {
    if (mmap(address, bytes, PROT_NONE, NOTHING | MAP_FIXED, -1, 0) == MAP_FAILED)
        return OUT_OF_MEMORY;
    madvise(address, bytes, MADV_DONTFORK);
    return 0;
}
