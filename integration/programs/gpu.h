/* What the workloads do on the GPU, and how they talk: a UDP port of 127.0.0.1, one answer for each packet. */
#ifndef STASIS_WORKLOAD_GPU_H
#define STASIS_WORKLOAD_GPU_H

#include "cuda_driver.h"

#include <stdint.h>

/* Ends the program with the call's text and result if it failed. */
#define CUDA(call) check((call), #call)
void check(CUresult result, const char *call);

/* Takes the first GPU and loads the kernels. */
void gpu_open(void);
CUdeviceptr gpu_allocate(size_t bytes);
/* The counter that the kernel `increment` counts on. */
CUdeviceptr counter_new(uint32_t start);
uint32_t counter_increment(CUdeviceptr counter);
/* A pattern of 64-bit words made of each word's index and a seed. */
void pattern_fill(CUdeviceptr data, uint64_t words, uint64_t seed);
uint64_t pattern_mismatches(CUdeviceptr data, uint64_t words, uint64_t seed, CUdeviceptr mismatches);
uint64_t pattern_word(uint64_t index, uint64_t seed);

/* Answers packets for ever; `answer` writes at most `room` bytes. SIGTERM ends the program. */
void serve(int port, void (*answer)(char *text, size_t room));
/* The number in argv[index], or `otherwise`. */
long argument(int argc, char **argv, int index, long otherwise);

#endif
