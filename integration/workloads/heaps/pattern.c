/* What memory is filled with: each word depends on its address, so that pages that change places are found. */
#define _GNU_SOURCE
#include "heaps.h"

#include "../serve.h"

#include <string.h>

#define NUMBERS 65536

static uint16_t numbers[NUMBERS];

/* bf16 is the upper half of a float. The sum of twelve even numbers is as good as normal. */
static void make_numbers(void) {
    for (uint64_t i = 0; i < NUMBERS; i++) {
        double sum = -6;
        for (uint64_t j = 0; j < 12; j++)
            sum += (double)(pattern_word(12 * i + j, 0) >> 11) / (double)(1ULL << 53);
        float number = (float)(0.02 * sum);
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        numbers[i] = (uint16_t)(bits >> 16);
    }
}

static uint64_t word_at(const uint64_t *at, enum contents contents, uint64_t seed) {
    uint64_t word = pattern_word((uintptr_t)at / sizeof *at, seed);
    if (contents != WEIGHTS)
        return word;
    uint64_t four = 0;
    for (int i = 0; i < 64; i += 16)
        four |= (uint64_t)numbers[word >> i & 0xffff] << i;
    return four;
}

static enum contents page_at(const void *at, enum contents contents, uint64_t seed) {
    uint64_t page = (uintptr_t)at / PAGE;
    switch (contents) {
    case HALF_ZERO:
        return pattern_word(page / 8, seed) >> 63 ? RANDOM : ZERO;
    case SPARSE:
        return pattern_word(page / 16, seed) >> 61 ? UNTOUCHED : RANDOM;
    default:
        return contents;
    }
}

void fill_piece(uint64_t *from, uint64_t *end, enum contents contents, uint64_t seed) {
    if (contents == WEIGHTS && !numbers[0])
        make_numbers();
    switch (page_at(from, contents, seed)) {
    case ZERO:
        /* The compiler must not think that zeros need no writing. */
        *(volatile uint64_t *)from = 0;
        break;
    case UNTOUCHED:
        break;
    default:
        for (uint64_t *at = from; at < end; at++)
            *at = word_at(at, contents, seed);
    }
}

const uint64_t *wrong_in_piece(const uint64_t *from, const uint64_t *end, enum contents contents, uint64_t seed, uint64_t *checksum) {
    enum contents here = page_at(from, contents, seed);
    int zero = here == ZERO || here == UNTOUCHED;
    uint64_t sum = *checksum;
    for (const uint64_t *at = from; at < end; at++) {
        uint64_t word = *(const volatile uint64_t *)at;
        if (word != (zero ? 0 : word_at(at, contents, seed)))
            return at;
        sum = (sum ^ word) * 0x9E3779B97F4A7C15ULL + 1;
    }
    *checksum = sum;
    return NULL;
}

static unsigned char *end_of_page(unsigned char *at, unsigned char *end) {
    unsigned char *next = at + (PAGE - (uintptr_t)at % PAGE);
    return next < end ? next : end;
}

void fill(const struct area *area) {
    unsigned char *end = area->start + area->bytes, *next;
    for (unsigned char *at = area->start; at < end; at = next) {
        next = end_of_page(at, end);
        if (!area->hole || at != area->start + area->hole)
            fill_piece((uint64_t *)at, (uint64_t *)next, area->contents, area->seed);
    }
}

const uint64_t *first_wrong(const struct area *area, uint64_t *checksum) {
    unsigned char *end = area->start + area->bytes, *next;
    const uint64_t *wrong = NULL;
    for (unsigned char *at = area->start; at < end && !wrong; at = next) {
        next = end_of_page(at, end);
        if (!area->hole || at != area->start + area->hole)
            wrong = wrong_in_piece((uint64_t *)at, (uint64_t *)next, area->contents, area->seed, checksum);
    }
    return wrong;
}
