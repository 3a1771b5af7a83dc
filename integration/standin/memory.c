/*
 * Device memory, and what driver 580 does with it in a checkpoint: one mmap(2) of libc for the contents of all devices, populated, and then for
 * each 2 MiB a transfer into a buffer, and memcpy(3) from there into that mapping. A restore is the same the other way round, and munmap(2). All
 * three are called by way of the library's PLT.
 */
#define _GNU_SOURCE
#include "machine.h"
#include "memory.h"
#include "result.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define DEVICE_MEMORY 0x600000000000ULL
#define ALLOCATIONS 256
#define PAGE 4096ULL
#define PIECE (2ULL << 20)
/* From here on an allocation is in huge pages: a GPU's memory costs the host no page faults, which would outweigh all copying. Smaller ones
   are shared memory in small pages, which no estimate takes for memory of the process. */
#define LARGE (1ULL << 30)
/* What the driver adds of its own: 9 MiB with driver 580, here less, so that processes with next to nothing on a GPU stay small. */
#define OWN_CONTENTS (18 * PAGE)

struct allocation {
    void *address;
    size_t bytes;
    unsigned device;
};

static struct allocation allocations[ALLOCATIONS];
static unsigned long long next_address = DEVICE_MEMORY;

/* What all devices held, one allocation after the other, while checkpointed. */
static char *contents;
static size_t contents_bytes;

static int is_large(const struct allocation *allocation) { return allocation->bytes >= LARGE; }

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

/* Memory that only this process can read, as it is of the driver's buffer; plain memory where the kernel or seccomp(2) has none. */
static void *make_buffer(void) {
    void *buffer = MAP_FAILED;
    int secret = (int)syscall(SYS_memfd_secret, O_CLOEXEC);
    if (secret >= 0) {
        if (ftruncate(secret, PIECE) == 0)
            buffer = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, secret, 0);
        close(secret);
    }
    if (buffer == MAP_FAILED)
        buffer = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return NULL;
    madvise(buffer, PIECE, MADV_DONTFORK);
    return buffer;
}

/* A device's own transfer is no call of libc: compiled so that it does not become one. It is as fast as one, since a device's costs no CPU. */
static void transfer(void *to, const void *from, size_t bytes) {
#ifdef __x86_64__
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
#else
    uint64_t *words = to;
    const uint64_t *source = from;
    for (size_t i = 0; i < bytes / sizeof *words; i++)
        words[i] = source[i];
#endif
}

/* By order, a driver that copies in another way than driver 580. */
static int copies_itself;

unsigned memory_wait_ms;
const uint32_t *memory_is_held_halfway;
/* How many bytes are copied, and how many are half of all. */
static size_t copied, half;

static void nap(unsigned ms) { nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL); }

static void copy(void *to, const void *from, size_t bytes) {
    if (copies_itself)
        transfer(to, from, bytes);
    else
        memcpy(to, from, bytes);
    nap(memory_wait_ms);
    copied += bytes;
    while (copied >= half && __atomic_load_n(memory_is_held_halfway, __ATOMIC_ACQUIRE))
        nap(1);
}

static int is_zero(const char *page) { return page[0] == 0 && !memcmp(page, page + 1, PAGE - 1); }

/* Device memory that holds nothing takes no room on the host. */
static void transfer_to_new(char *to, const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE)
        if (!is_zero(from + at))
            transfer(to + at, from + at, PAGE);
}

static size_t piece_at(const struct allocation *allocation, size_t at) {
    return allocation->bytes - at < PIECE ? allocation->bytes - at : PIECE;
}

/* Reading makes pages of what was never written: they are given back piece by piece. */
static void move_to_host(const struct allocation *allocation, char *to, void *buffer) {
    for (size_t at = 0; at < allocation->bytes; at += PIECE) {
        size_t bytes = piece_at(allocation, at);
        transfer(buffer, (char *)allocation->address + at, bytes);
        copy(to + at, buffer, bytes);
        if (stays(allocation))
            continue;
        madvise((char *)allocation->address + at, bytes, is_large(allocation) ? MADV_DONTNEED : MADV_REMOVE);
    }
    if (!stays(allocation))
        munmap(allocation->address, allocation->bytes);
}

static void move_to_device(const struct allocation *allocation, const char *from, void *buffer) {
    for (size_t at = 0; at < allocation->bytes; at += PIECE) {
        size_t bytes = piece_at(allocation, at);
        copy(buffer, from + at, bytes);
        char *to = (char *)allocation->address + at;
        if (stays(allocation))
            transfer(to, buffer, bytes);
        else
            transfer_to_new(to, buffer, bytes);
    }
}

static size_t bytes_of_all(void) {
    size_t bytes = OWN_CONTENTS;
    for (const struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        bytes += each->address ? each->bytes : 0;
    return bytes;
}

static void begin(void) {
    copies_itself = machine_read().copies_itself;
    copied = 0;
    half = bytes_of_all() / 2;
}

int memory_to_host(void) {
    begin();
    void *buffer = make_buffer();
    if (!buffer)
        return OUT_OF_MEMORY;
    size_t bytes = bytes_of_all();
    char *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (to == MAP_FAILED) {
        munmap(buffer, PIECE);
        return OUT_OF_MEMORY;
    }
    contents = to;
    contents_bytes = bytes;
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        if (each->address) {
            move_to_host(each, to, buffer);
            to += each->bytes;
        }
    munmap(buffer, PIECE);
    return 0;
}

static void unmap_before(const struct allocation *end) {
    for (struct allocation *each = allocations; each < end; each++)
        if (each->address)
            munmap(each->address, each->bytes);
}

static int map_all(void) {
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        if (each->address && !stays(each) && map(each)) {
            unmap_before(each);
            return OUT_OF_MEMORY;
        }
    return 0;
}

int memory_to_devices(void) {
    begin();
    void *buffer = make_buffer();
    if (!buffer || map_all()) {
        if (buffer)
            munmap(buffer, PIECE);
        return OUT_OF_MEMORY;
    }
    const char *from = contents;
    for (struct allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        if (each->address) {
            move_to_device(each, from, buffer);
            from += each->bytes;
        }
    munmap(contents, contents_bytes);
    contents = NULL;
    munmap(buffer, PIECE);
    return 0;
}

void *memory_allocate(size_t *bytes, unsigned device) {
    *bytes = (*bytes + PAGE - 1) & ~(PAGE - 1);
    for (struct allocation *each = allocations; *bytes && each < allocations + ALLOCATIONS; each++) {
        if (each->address)
            continue;
        if (*bytes >= LARGE)
            next_address = (next_address + PIECE - 1) & ~(PIECE - 1);
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
