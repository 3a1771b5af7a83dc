/* A stand-in for libcuda that copies "GPU" memory as the real one does in a checkpoint: one mapping
 * for all of it, then 2 MiB at a time by memcpy from a buffer that only this process has. Compiled
 * without builtins: no loop of it becomes a call. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE (2ul << 20)
#define WORDS (PIECE / sizeof(uint64_t))

static uint64_t *gpu, *buffer;
static char *contents;
static size_t bytes;

int gpu_begin(size_t pieces) {
    bytes = pieces * PIECE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    gpu = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    buffer = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (gpu == MAP_FAILED || buffer == MAP_FAILED)
        return 1;
    for (size_t i = 0; i < bytes / sizeof *gpu; i++)
        gpu[i] = i * 0x9e3779b97f4a7c15ul + 1;
    return 0;
}

static void pieces_out(size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += PIECE) {
        uint64_t *piece = gpu + at / sizeof *gpu;
        for (size_t i = 0; i < WORDS; i++) {
            buffer[i] = piece[i];
            piece[i] = 0;
        }
        memcpy(contents + at, buffer, PIECE);
        /* As soon as memcpy returns the buffer is used again. */
        for (size_t i = 0; i < WORDS; i++)
            buffer[i] = 0xdeadbeefdeadbeeful;
    }
}

/* The driver's checkpoint, in two halves. */
int gpu_half_out(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    contents = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (contents == MAP_FAILED)
        return 1;
    pieces_out(0, bytes / 2 / PIECE * PIECE);
    return 0;
}

int gpu_rest_out(void) {
    pieces_out(bytes / 2 / PIECE * PIECE, bytes);
    return 0;
}

int gpu_out(void) { return gpu_half_out() || gpu_rest_out(); }

/* The driver's restore. */
int gpu_in(void) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        uint64_t *piece = gpu + at / sizeof *gpu;
        memcpy(buffer, contents + at, PIECE);
        for (size_t i = 0; i < WORDS; i++)
            piece[i] = buffer[i];
    }
    return munmap(contents, bytes);
}

/* How many words are not what they were at the beginning. */
size_t gpu_wrong(void) {
    size_t wrong = 0;
    for (size_t i = 0; i < bytes / sizeof *gpu; i++)
        wrong += gpu[i] != i * 0x9e3779b97f4a7c15ul + 1;
    return wrong;
}

void *gpu_contents(void) { return contents; }

size_t gpu_bytes(void) { return bytes; }
