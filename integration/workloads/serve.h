/*
 * The workloads' answers: a UDP port of 127.0.0.1, one answer for each packet; with port 0, an
 * answer after the other into the file "answer". And the pattern with which they fill memory.
 */
#ifndef STASIS_WORKLOAD_SERVE_H
#define STASIS_WORKLOAD_SERVE_H

#include <stddef.h>
#include <stdint.h>

/* Returns a word that its index and a seed decide on. */
uint64_t pattern_word(uint64_t index, uint64_t seed);

/* Answers packets for ever; `answer` writes at most `room` bytes. SIGTERM ends the program. */
void serve(int port, void (*answer)(char *text, size_t room));
/* Returns the number in argv[index], or `otherwise`. */
long argument(int argc, char **argv, int index, long otherwise);

#endif
