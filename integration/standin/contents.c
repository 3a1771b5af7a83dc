/*
 * The contents of device memory, and what driver 580 does with them in a checkpoint: one mmap(2) of libc for those of all devices, populated, and
 * then for each 2 MiB a transfer into a buffer, and memcpy(3) from there into that mapping. A restore is the same the other way round, and
 * munmap(2). All three are called by way of the library's PLT.
 */
#define _GNU_SOURCE
#include "machine.h"
#include "memory.h"
#include "result.h"
#include "sharing/vmm.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096ULL
#define PIECE (2ULL << 20)
/* The size of the driver's own contents: 9 MiB with driver 580, here less, so that processes with next to nothing on a GPU stay small. */
#define OWN_CONTENTS (18 * PAGE)

/* The contents of all devices, one allocation after the other, while checkpointed; and how far they are moved. */
static char *contents;
static size_t contents_bytes, moved;
/* The buffer that each piece goes through. */
static void *buffer;

/* Memory that only this process can read, as it is of the driver's buffer; plain memory where the kernel or seccomp(2) has none. */
static void *make_buffer(void) {
    void *made = MAP_FAILED;
    int secret = (int)syscall(SYS_memfd_secret, O_CLOEXEC);
    if (secret >= 0) {
        if (ftruncate(secret, PIECE) == 0)
            made = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, secret, 0);
        close(secret);
    }
    if (made == MAP_FAILED)
        made = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    madvise(made, PIECE, MADV_DONTFORK);
    return made;
}

/* A device's own transfer does not call libc: compiled so that it makes no call. It runs as fast as memcpy, since a device's costs no CPU. */
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

/* Device memory that is all zeros takes no room on the host. */
static void transfer_to_new(char *to, const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PAGE)
        if (!is_zero(from + at))
            transfer(to + at, from + at, PAGE);
}

static size_t piece_at(size_t bytes, size_t at) { return bytes - at < PIECE ? bytes - at : PIECE; }

/* Reading makes pages where nothing was written: they are given back piece by piece. */
void contents_take(char *from, size_t bytes, enum afterwards afterwards) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t piece = piece_at(bytes, at);
        transfer(buffer, from + at, piece);
        copy(contents + moved, buffer, piece);
        moved += piece;
        if (afterwards != KEEP)
            madvise(from + at, piece, afterwards == GIVE_BACK ? MADV_DONTNEED : MADV_REMOVE);
    }
}

void contents_give(char *to, size_t bytes, enum before before) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t piece = piece_at(bytes, at);
        copy(buffer, contents + moved, piece);
        moved += piece;
        if (before == EMPTY)
            transfer_to_new(to + at, buffer, piece);
        else
            transfer(to + at, buffer, piece);
    }
}

static size_t bytes_of_all(void) { return OWN_CONTENTS + memory_bytes() + vmm_bytes(); }

static int begin(void) {
    copies_itself = machine_read().copies_itself;
    copied = moved = 0;
    half = bytes_of_all() / 2;
    buffer = make_buffer();
    return buffer ? 0 : OUT_OF_MEMORY;
}

static int end(int result) {
    munmap(buffer, PIECE);
    return result;
}

int memory_to_host(void) {
    if (begin())
        return OUT_OF_MEMORY;
    size_t bytes = bytes_of_all();
    char *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (to == MAP_FAILED)
        return end(OUT_OF_MEMORY);
    contents = to;
    contents_bytes = bytes;
    memory_take_contents();
    vmm_take_contents();
    return end(0);
}

int memory_to_devices(void) {
    if (begin())
        return OUT_OF_MEMORY;
    if (memory_map())
        return end(OUT_OF_MEMORY);
    if (vmm_map_anew()) {
        memory_unmap();
        return end(OUT_OF_MEMORY);
    }
    memory_give_contents();
    vmm_give_contents();
    munmap(contents, contents_bytes);
    contents = NULL;
    return end(0);
}
