/* GPU operations of the workloads. */
#ifndef STASIS_WORKLOAD_GPU_H
#define STASIS_WORKLOAD_GPU_H

#include "cuda_driver.h"
#include "../serve.h"

#include <stdint.h>

/* Ends the program with the call's text and result if it failed. */
#define CUDA(call) check((call), #call)
void check(CUresult result, const char *call);

/* Returns how many GPUs the process sees. */
int gpu_count(void);
/* Takes the first GPU, or another one, and loads the kernels; it is the current one then. */
void gpu_open(void);
void gpu_open_device(int number);
/* Makes a GPU that was taken the current one of this thread. */
void gpu_use(int number);
/* Lets the current GPU use the memory of another that was taken, or ends that. */
void gpu_enable_peer_access(int peer);
void gpu_disable_peer_access(int peer);
/* Runs a kernel of the current GPU and waits for it. */
void gpu_launch(CUfunction kernel, unsigned blocks, unsigned threads, void **arguments);
CUdeviceptr gpu_allocate(size_t bytes);
/* The counter that the kernel `increment` counts on. */
CUdeviceptr counter_new(uint32_t start);
uint32_t counter_increment(CUdeviceptr counter);
/* A pattern of 64-bit words made of each word's index and a seed. */
void pattern_fill(CUdeviceptr data, uint64_t words, uint64_t seed);
uint64_t pattern_mismatches(CUdeviceptr data, uint64_t words, uint64_t seed, CUdeviceptr mismatches);

#endif
