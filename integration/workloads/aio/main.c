/*
 * aio [PORT [MIB]]: MIB of memory, which each packet has verified and answered with "ok COUNT" or "bad WORDS", and a context of asynchronous
 * I/O (io_setup).
 */
#include "../serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t *memory, words;
static unsigned packets;

static void answer(char *text, size_t room) {
    uint64_t bad = 0;
    for (uint64_t i = 0; i < words; i++)
        bad += memory[i] != pattern_word(i, 1);
    snprintf(text, room, bad ? "bad %llu\n" : "ok %llu\n", (unsigned long long)(bad ? bad : ++packets));
}

int main(int argc, char **argv) {
    unsigned long context = 0; /* aio_context_t */
    if (syscall(SYS_io_setup, 8, &context)) {
        perror("io_setup");
        return 77;
    }
    words = ((uint64_t)argument(argc, argv, 2, 24) << 20) / sizeof *memory;
    memory = malloc(words * sizeof *memory);
    for (uint64_t i = 0; i < words; i++)
        memory[i] = pattern_word(i, 1);
    serve((int)argument(argc, argv, 1, 10000), answer);
}
