/*
 * plain [PORT [MIB]]: a program without CUDA. Each packet has every word of its memory verified and filled with the next generation's; the
 * answer is "ok GENERATION" or "bad WORDS".
 */
#include "../serve.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t words, generation, *memory;

static void fill(void) {
    for (uint64_t i = 0; i < words; i++)
        memory[i] = pattern_word(i, generation);
}

static void answer(char *text, size_t room) {
    uint64_t bad = 0;
    for (uint64_t i = 0; i < words; i++)
        bad += memory[i] != pattern_word(i, generation);
    if (bad) {
        snprintf(text, room, "bad %llu\n", (unsigned long long)bad);
        return;
    }
    snprintf(text, room, "ok %llu\n", (unsigned long long)generation++);
    fill();
}

int main(int argc, char **argv) {
    uint64_t bytes = (uint64_t)argument(argc, argv, 2, 16) << 20;
    words = bytes / sizeof *memory;
    memory = (uint64_t *)malloc(bytes);
    if (!memory)
        return 1;
    fill();
    serve((int)argument(argc, argv, 1, 10000), answer);
}
