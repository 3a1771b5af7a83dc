/*
 * pages [PORT]: 2 MiB of GPU memory in which each page is full of its own number plus a generation, so it is small when it is packed. Each packet
 * has every word of it verified and filled with the next generation's; the answer is "ok GENERATION" or "bad WORDS".
 */
#include "gpu.h"

#include <stdio.h>

#define PAGES 512U
#define WORDS (4096 / sizeof(uint64_t))

static CUdeviceptr data;
static uint64_t page[WORDS], generation;

static uint64_t expected(unsigned number) { return number + 1 + (generation << 32); }

static void fill(void) {
    for (unsigned number = 0; number < PAGES; number++) {
        for (unsigned word = 0; word < WORDS; word++)
            page[word] = expected(number);
        CUDA(cuMemcpyHtoD_v2(data + number * sizeof page, page, sizeof page));
    }
}

static unsigned bad_words(void) {
    unsigned bad = 0;
    for (unsigned number = 0; number < PAGES; number++) {
        CUDA(cuMemcpyDtoH_v2(page, data + number * sizeof page, sizeof page));
        for (unsigned word = 0; word < WORDS; word++)
            bad += page[word] != expected(number);
    }
    return bad;
}

static void answer(char *text, size_t room) {
    unsigned bad = bad_words();
    if (bad) {
        snprintf(text, room, "bad %u\n", bad);
        return;
    }
    snprintf(text, room, "ok %llu\n", (unsigned long long)generation++);
    fill();
}

int main(int argc, char **argv) {
    gpu_open();
    data = gpu_allocate(PAGES * sizeof page);
    fill();
    serve((int)argument(argc, argv, 1, 10000), answer);
}
