/*
 * memcheck MIB [PORT] [managed|zero=PERCENT|grow=MIB|keep|gpus=2|locked|waits|takes]: fills MIB of GPU memory and 16 MiB of host memory with a pattern. Each packet has every word of
 * both verified and filled with the next generation's; the answer is "ok GENERATION" or "bad WORDS". With `managed` it also
 * holds managed memory, which no driver can checkpoint so far. With `zero` that part of the GPU memory is zeros, of which one block in
 * sixteen is verified. With `grow` it takes so much more GPU memory with each packet. With `keep` a mapping of the first pack that
 * stasis maps in the process is kept there and in a child. With `gpus=2` it has MIB on each of two GPUs. With `locked` all its memory is, now and in future. With `waits` it waits for
 * children, of which it has none, and one that it is told of makes all answers "foreign". With `takes` it takes whatever __WALL gives.
 */
#define _GNU_SOURCE
#include "gpu/gpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOST_WORDS ((16ULL << 20) / sizeof(uint64_t))
#define SEED_OF(generation) ((generation)*0x10000000000ULL)

#define BLOCK (16ULL << 20)

#define MOST_GPUS 2

static int gpus = 1;
static CUdeviceptr data[MOST_GPUS], mismatches[MOST_GPUS], zeros;
static uint64_t words, generation, grow, *host, *block, zero_blocks;

static void fill(void) {
    for (int i = 0; i < gpus; i++) {
        gpu_use(i);
        pattern_fill(data[i], words, SEED_OF(generation) + (uint64_t)i);
    }
    for (uint64_t i = 0; i < HOST_WORDS; i++)
        host[i] = pattern_word(i, ~SEED_OF(generation));
}

static void hold_zeros(uint64_t bytes) {
    zero_blocks = bytes / BLOCK;
    zeros = gpu_allocate(zero_blocks * BLOCK);
    block = (uint64_t *)calloc(1, BLOCK);
    for (uint64_t i = 0; i < zero_blocks; i++)
        CUDA(cuMemcpyHtoD_v2(zeros + i * BLOCK, block, BLOCK));
}

static uint64_t bad_zeros(void) {
    uint64_t bad = 0;
    for (uint64_t i = 0; i < zero_blocks; i += 16) {
        CUDA(cuMemcpyDtoH_v2(block, zeros + i * BLOCK, BLOCK));
        for (uint64_t word = 0; word < BLOCK / sizeof *block; word++)
            bad += block[word] != 0;
    }
    return bad;
}

static uint64_t bad_words(void) {
    uint64_t bad = bad_zeros();
    for (int i = 0; i < gpus; i++) {
        gpu_use(i);
        bad += pattern_mismatches(data[i], words, SEED_OF(generation) + (uint64_t)i, mismatches[i]);
    }
    for (uint64_t i = 0; i < HOST_WORDS; i++)
        bad += host[i] != pattern_word(i, ~SEED_OF(generation));
    return bad;
}

static volatile int foreign;

static void *wait_for_children(void *unused) {
    for (;;) {
        if (waitpid(-1, NULL, 0) > 0)
            foreign = 1;
        usleep(100);
    }
    return unused;
}

static void *take_all(void *unused) {
    for (;;)
        if (waitpid(-1, NULL, __WALL) < 0)
            usleep(100);
    return unused;
}

static void answer(char *text, size_t room) {
    if (foreign) {
        snprintf(text, room, "foreign\n");
        return;
    }
    if (grow)
        gpu_allocate(grow);
    uint64_t bad = bad_words();
    if (bad) {
        snprintf(text, room, "bad %llu\n", (unsigned long long)bad);
        return;
    }
    snprintf(text, room, "ok %llu\n", (unsigned long long)generation++);
    fill();
}

static int keep_at(void *start) {
    void *own = mremap(start, 0, 4096, MREMAP_MAYMOVE);
    if (own == MAP_FAILED || madvise(own, 4096, MADV_DOFORK))
        return 0;
    pid_t child = fork();
    if (child)
        return child > 0;
    for (;;)
        pause();
}

static int kept_one(void) {
    char line[4096];
    unsigned long start;
    int kept = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !kept && fgets(line, sizeof line, maps))
        if (strstr(line, "rw-s") && strstr(line, ".pack") && sscanf(line, "%lx", &start) == 1)
            kept = keep_at((void *)start);
    if (maps)
        fclose(maps);
    return kept;
}

static void *keep(void *unused) {
    while (!kept_one())
        usleep(1000);
    return unused;
}

static void hold_data(uint64_t bytes) {
    for (int i = 0; i < gpus; i++) {
        gpu_use(i);
        data[i] = gpu_allocate(bytes);
        mismatches[i] = gpu_allocate(sizeof(uint64_t));
    }
}

int main(int argc, char **argv) {
    gpus = argc > 3 && !strcmp(argv[3], "gpus=2") ? 2 : 1;
    for (int i = 0; i < gpus; i++)
        gpu_open_device(i);
    uint64_t bytes = (uint64_t)argument(argc, argv, 1, 64) << 20;
    unsigned percent = 0;
    if (argc > 3 && sscanf(argv[3], "zero=%u", &percent) == 1 && percent > 0 && percent < 100) {
        hold_zeros(bytes / 100 * percent);
        bytes -= zero_blocks * BLOCK;
    }
    words = bytes / sizeof(uint64_t);
    hold_data(bytes);
    host = (uint64_t *)malloc(HOST_WORDS * sizeof(uint64_t));
    unsigned mib = 0;
    if (argc > 3 && sscanf(argv[3], "grow=%u", &mib) == 1)
        grow = (uint64_t)mib << 20;
    const char *mode = argc > 3 ? argv[3] : "";
    pthread_t thread;
    if (!strcmp(mode, "keep") && pthread_create(&thread, NULL, keep, NULL))
        return 1;
    if (!strcmp(mode, "waits") && pthread_create(&thread, NULL, wait_for_children, NULL))
        return 1;
    if (!strcmp(mode, "takes") && pthread_create(&thread, NULL, take_all, NULL))
        return 1;
    if (!strcmp(mode, "locked") && mlockall(MCL_CURRENT | MCL_FUTURE))
        return 1;
    if (!strcmp(mode, "managed")) {
        CUdeviceptr managed;
        CUDA(cuMemAllocManaged(&managed, 1 << 20, 1));
    }
    fill();
    serve((int)argument(argc, argv, 2, 10000), answer);
}
