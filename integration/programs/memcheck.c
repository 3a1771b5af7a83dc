/*
 * memcheck MIB [PORT] [managed]: fills MIB of GPU memory and 16 MiB of host memory with a pattern. Each packet has every word of
 * both verified and filled with the next generation's; the answer is "ok GENERATION" or "bad WORDS". With a third argument
 * it also holds managed memory, which no driver can checkpoint so far.
 */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>

#define HOST_WORDS ((16ULL << 20) / sizeof(uint64_t))
#define SEED_OF(generation) ((generation)*0x10000000000ULL)

static CUdeviceptr data, mismatches;
static uint64_t words, generation, *host;

static void fill(void) {
    pattern_fill(data, words, SEED_OF(generation));
    for (uint64_t i = 0; i < HOST_WORDS; i++)
        host[i] = pattern_word(i, ~SEED_OF(generation));
}

static uint64_t bad_words(void) {
    uint64_t bad = pattern_mismatches(data, words, SEED_OF(generation), mismatches);
    for (uint64_t i = 0; i < HOST_WORDS; i++)
        bad += host[i] != pattern_word(i, ~SEED_OF(generation));
    return bad;
}

static void answer(char *text, size_t room) {
    uint64_t bad = bad_words();
    if (bad) {
        snprintf(text, room, "bad %llu\n", (unsigned long long)bad);
        return;
    }
    snprintf(text, room, "ok %llu\n", (unsigned long long)generation++);
    fill();
}

int main(int argc, char **argv) {
    gpu_open();
    uint64_t bytes = (uint64_t)argument(argc, argv, 1, 64) << 20;
    words = bytes / sizeof(uint64_t);
    data = gpu_allocate(bytes);
    mismatches = gpu_allocate(sizeof(uint64_t));
    host = (uint64_t *)malloc(HOST_WORDS * sizeof(uint64_t));
    if (argc > 3) {
        CUdeviceptr managed;
        CUDA(cuMemAllocManaged(&managed, 1 << 20, 1));
    }
    fill();
    serve((int)argument(argc, argv, 2, 10000), answer);
}
