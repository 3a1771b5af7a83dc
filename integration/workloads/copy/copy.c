/*
 * copy MIB [straight]: what a checkpoint and a restore of the stand-in do with so much device memory, as a plain C program does it: memcpy(3) of each
 * 2 MiB into a buffer, and from there. With `straight` there is no buffer. Writes how many seconds of a CPU each took, a line for the first, and, once it has read one, a line for the second.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PIECE (2ULL << 20)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *map(size_t bytes, int more) {
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | more, -1, 0);
    if (mapped == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return mapped;
}

/* As the stand-in's device memory is: in huge pages, at one of their addresses. It stays, as that of a device. */
static char *map_device(size_t bytes) {
    char *mapped = map(bytes + PIECE, 0);
    char *device = (char *)(((uintptr_t)mapped + PIECE - 1) & ~(uintptr_t)(PIECE - 1));
    madvise(device, bytes, MADV_HUGEPAGE);
    return device;
}

static char *buffer;

static void copy(char *to, const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        if (buffer)
            memcpy(buffer, from + at, PIECE);
        memcpy(to + at, buffer ? buffer : from + at, PIECE);
    }
}

static uint64_t word(uint64_t index) { return (index + 1) * 0x9E3779B97F4A7C15ULL; }

int main(int argc, char **argv) {
    size_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 2) / 2 * PIECE, words = bytes / sizeof(uint64_t);
    if (argc < 3)
        buffer = map(PIECE, MAP_POPULATE);
    char *device = map_device(bytes);
    for (size_t i = 0; i < words; i++)
        ((uint64_t *)device)[i] = word(i);

    double start = now();
    char *host = map(bytes, MAP_POPULATE);
    copy(host, device, bytes);
    printf("%.6f\n", now() - start);
    fflush(stdout);
    getchar();

    memset(device, 0, bytes);
    start = now();
    copy(device, host, bytes);
    munmap(host, bytes);
    double in = now() - start;

    for (size_t i = 0; i < words; i++)
        if (((uint64_t *)device)[i] != word(i)) {
            fprintf(stderr, "word %zu is wrong\n", i);
            return 1;
        }
    printf("%.6f\n", in);
    return 0;
}
