/* Mappings that lie about themselves, are too many, or never stay as they are. */
#define _GNU_SOURCE
#include "hostile.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096UL
#define TIB (1L << 40)
/* Below everything else, so it comes first in every list. */
#define LOWEST ((void *)0x10000)

void false_vdso(void) {
    int file = new_file("/tmp/[vdso]", TIB);
    int flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE;
    if (mmap(LOWEST, 1UL << 30, PROT_READ | PROT_EXEC, flags, file, 0) != LOWEST)
        give_up("a false vDSO");
    played = 1;
}

static unsigned char *find_mapping(const char *name, size_t *length) {
    char line[512];
    unsigned long start, end;
    unsigned char *found = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !found && fgets(line, sizeof line, maps))
        if (strstr(line, name) && sscanf(line, "%lx-%lx", &start, &end) == 2) {
            found = (unsigned char *)start;
            *length = end - start;
        }
    if (maps)
        fclose(maps);
    return found;
}

static unsigned char *gate;

static void *rewrite_for_ever(void *unused) {
    for (;; played++) {
        gate[0] = 0x90;
        gate[1] = 0x90;
        gate[1] = 0x05;
        gate[0] = 0x0f;
    }
    return unused;
}

void rewritten_vdso(void) {
    size_t length = 0;
    unsigned char *vdso = find_mapping("[vdso]", &length);
    if (!vdso || mprotect(vdso, length, PROT_READ | PROT_WRITE | PROT_EXEC))
        give_up("the vDSO");
    for (size_t i = 0; !gate && i + 1 < length; i++)
        if (vdso[i] == 0x0f && vdso[i + 1] == 0x05)
            gate = vdso + i;
    in_thread(rewrite_for_ever);
}

/* Makes mappings with alternating rights, so none is joined with its neighbour. */
static void take_mappings(size_t left) {
    size_t pages = 70000;
    char *area = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t at = 1;
    while (at < pages && !mprotect(area + at * PAGE, PAGE, PROT_READ))
        at += 2;
    for (size_t freed = 0; freed < left; freed += 2) {
        at -= 2;
        mprotect(area + at * PAGE, PAGE, PROT_NONE);
    }
    played = 1;
}

void many_mappings(void) {
    take_mappings(600);
}

void all_mappings(void) {
    take_mappings(0);
}

static unsigned next_random(unsigned *state) {
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static void change_for_ever(unsigned seed) {
    char *held[16] = {0};
    for (;; played++) {
        char **one = &held[next_random(&seed) % 16];
        size_t length = (1 + next_random(&seed) % 16) * PAGE;
        int rights = (int)(next_random(&seed) % 4);
        if (!*one) {
            char *made = mmap(NULL, 16 * PAGE, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            *one = made == MAP_FAILED ? NULL : made;
            continue;
        }
        switch (next_random(&seed) % 4) {
        case 0:
            munmap(*one, 16 * PAGE);
            *one = NULL;
            break;
        case 1:
            mprotect(*one, length, rights);
            break;
        case 2:
            madvise(*one, length, MADV_DONTNEED);
            break;
        default: {
            char *moved = mremap(*one, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
            *one = moved == MAP_FAILED ? *one : moved;
        }
        }
    }
}

static void *change_in_thread(void *seed) {
    change_for_ever(1);
    return seed;
}

static void *nothing(void *unused) {
    return unused;
}

static void *threads_for_ever(void *unused) {
    for (pthread_t thread;; played++)
        if (!pthread_create(&thread, NULL, nothing, NULL))
            pthread_join(thread, NULL);
    return unused;
}

void busy_mappings(void) {
    in_thread(change_in_thread);
    in_thread(threads_for_ever);
}

static int change_in_process(void *unused) {
    (void)unused;
    change_for_ever(2);
    return 0;
}

void busy_mappings_elsewhere(void) {
    in_shared_memory(change_in_process);
}

static int wait_in_process(void *unused) {
    (void)unused;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    played = 1;
    while (pause())
        continue;
    return 0;
}

void same_memory(void) {
    in_shared_memory(wait_in_process);
}

static void map_file(int file, size_t length) {
    if (mmap(NULL, length, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED)
        give_up("a file");
    played = 1;
}

/* A second library of the driver's name, larger than any. */
void false_library(void) {
    map_file(new_file("/tmp/libcuda.so.1", TIB), PAGE);
}

/* Maps such a file with the beginning of a library, and nothing that this describes. */
void spoiled_library(void) {
    int file = new_file("/tmp/libcuda.so.999", 1 << 20);
    char beginning[1 << 14];
    int whole = open("/proc/self/exe", O_RDONLY);
    ssize_t got = read(whole, beginning, sizeof beginning);
    close(whole);
    if (got <= 0 || write(file, beginning, (size_t)got) != got)
        give_up("a spoiled library");
    map_file(file, PAGE);
}

/* A file of a file system that will not answer any more. */
void mapped_elsewhere(void) {
    map_file(open("/elsewhere/libcuda.so.2", O_RDONLY), PAGE);
}

/* Maps files that are named as contents of ours, larger than any GPU. */
void false_contents(void) {
    int file = memfd_create("stasis-gpu-contents", MFD_CLOEXEC);
    /* The kernel shows a file of memfd_create(2) with a prefix, and a removed file of a tmpfs without. */
    const char *path = "/dev/shm/stasis-gpu-contents";
    int named = new_file(path, TIB);
    unlink(path);
    if (file < 0 || ftruncate(file, TIB))
        give_up("false contents");
    int rights = PROT_READ | PROT_WRITE;
    if (mmap(NULL, 1UL << 36, rights, MAP_SHARED | MAP_NORESERVE, named, 0) == MAP_FAILED ||
        mmap(NULL, 1UL << 36, rights, MAP_SHARED | MAP_NORESERVE, file, 0) == MAP_FAILED)
        give_up("a mapping of false contents");
    played = 1;
}
