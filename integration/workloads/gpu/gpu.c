#define _GNU_SOURCE
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * PTX, so that the driver compiles the kernels for whatever GPU there is and no CUDA compiler is needed to build. `fill` and `verify`
 * stride over the words with all threads; word i is mix(i + seed).
 */
#define INDEX_AND_STRIDE                                                                                               \
    "mov.u32 %r1, %ctaid.x;\n mov.u32 %r2, %ntid.x;\n mov.u32 %r3, %tid.x;\n mov.u32 %r4, %nctaid.x;\n"                \
    "mul.wide.u32 %i, %r1, %r2;\n cvt.u64.u32 %t, %r3;\n add.u64 %i, %i, %t;\n mul.wide.u32 %stride, %r4, %r2;\n"
#define MIX                                                                                                            \
    "add.u64 %x, %i, %seed;\n"                                                                                         \
    "mul.lo.u64 %x, %x, 0x9E3779B97F4A7C15;\n shr.u64 %t, %x, 32;\n xor.b64 %x, %x, %t;\n"                             \
    "mul.lo.u64 %x, %x, 0xD6E8FEB86659FD93;\n shr.u64 %t, %x, 32;\n xor.b64 %x, %x, %t;\n"                             \
    "shl.b64 %t, %i, 3;\n add.u64 %t, %data, %t;\n"
#define REGISTERS ".reg .pred %p;\n .reg .u32 %r<5>;\n .reg .u64 %data, %words, %seed, %bad, %i, %stride, %x, %t, %y;\n"
#define PARAMETERS ".param .u64 p_data, .param .u64 p_words, .param .u64 p_seed"
#define LOAD                                                                                                           \
    "ld.param.u64 %data, [p_data];\n ld.param.u64 %words, [p_words];\n ld.param.u64 %seed, [p_seed];\n"                \
    "cvta.to.global.u64 %data, %data;\n"

static const char KERNELS[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry increment(.param .u64 p_counter)\n{\n"
    ".reg .u32 %r<2>;\n .reg .u64 %c;\n"
    "ld.param.u64 %c, [p_counter];\n cvta.to.global.u64 %c, %c;\n"
    "ld.global.u32 %r1, [%c];\n add.u32 %r1, %r1, 1;\n st.global.u32 [%c], %r1;\n ret;\n}\n"
    ".visible .entry fill(" PARAMETERS ")\n{\n" REGISTERS LOAD INDEX_AND_STRIDE
    "next:\n setp.ge.u64 %p, %i, %words;\n @%p bra done;\n" MIX
    "st.global.u64 [%t], %x;\n add.u64 %i, %i, %stride;\n bra next;\n"
    "done:\n ret;\n}\n"
    ".visible .entry verify(" PARAMETERS ", .param .u64 p_bad)\n{\n" REGISTERS LOAD
    "ld.param.u64 %bad, [p_bad];\n cvta.to.global.u64 %bad, %bad;\n" INDEX_AND_STRIDE
    "next:\n setp.ge.u64 %p, %i, %words;\n @%p bra done;\n" MIX
    "ld.global.u64 %y, [%t];\n add.u64 %i, %i, %stride;\n"
    "setp.eq.u64 %p, %x, %y;\n @%p bra next;\n mov.u64 %x, 1;\n red.global.add.u64 [%bad], %x;\n bra next;\n"
    "done:\n ret;\n}\n";

#define MOST_DEVICES 16

/* A context and its kernels; of the devices that were opened. */
static struct device {
    CUcontext context;
    CUfunction increment, fill, verify;
} devices[MOST_DEVICES], *current;

void check(CUresult result, const char *call) {
    if (result == 0)
        return;
    fprintf(stderr, "%s: CUDA error %d\n", call, result);
    exit(2);
}

int gpu_count(void) {
    int count = 0;
    CUDA(cuInit(0));
    CUDA(cuDeviceGetCount(&count));
    return count;
}

void gpu_open_device(int number) {
    struct device *opened = &devices[number % MOST_DEVICES];
    CUdevice device;
    CUmodule module;
    CUDA(cuInit(0));
    CUDA(cuDeviceGet(&device, number));
    CUDA(cuDevicePrimaryCtxRetain(&opened->context, device));
    gpu_use(number);
    CUDA(cuModuleLoadData(&module, KERNELS));
    CUDA(cuModuleGetFunction(&opened->increment, module, "increment"));
    CUDA(cuModuleGetFunction(&opened->fill, module, "fill"));
    CUDA(cuModuleGetFunction(&opened->verify, module, "verify"));
}

void gpu_open(void) { gpu_open_device(0); }

void gpu_use(int number) {
    current = &devices[number % MOST_DEVICES];
    CUDA(cuCtxSetCurrent(current->context));
}

void gpu_enable_peer_access(int peer) { CUDA(cuCtxEnablePeerAccess(devices[peer % MOST_DEVICES].context, 0)); }

void gpu_disable_peer_access(int peer) { CUDA(cuCtxDisablePeerAccess(devices[peer % MOST_DEVICES].context)); }

CUdeviceptr gpu_allocate(size_t bytes) {
    CUdeviceptr pointer;
    CUDA(cuMemAlloc_v2(&pointer, bytes));
    return pointer;
}

void gpu_launch(CUfunction kernel, unsigned blocks, unsigned threads, void **arguments) {
    CUDA(cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, NULL, arguments, NULL));
    CUDA(cuCtxSynchronize());
}

CUdeviceptr counter_new(uint32_t start) {
    CUdeviceptr counter = gpu_allocate(sizeof start);
    CUDA(cuMemcpyHtoD_v2(counter, &start, sizeof start));
    return counter;
}

uint32_t counter_increment(CUdeviceptr counter) {
    uint32_t value;
    void *arguments[] = {&counter};
    gpu_launch(current->increment, 1, 1, arguments);
    CUDA(cuMemcpyDtoH_v2(&value, counter, sizeof value));
    return value;
}

void pattern_fill(CUdeviceptr data, uint64_t words, uint64_t seed) {
    void *arguments[] = {&data, &words, &seed};
    gpu_launch(current->fill, 1024, 256, arguments);
}

uint64_t pattern_mismatches(CUdeviceptr data, uint64_t words, uint64_t seed, CUdeviceptr mismatches) {
    uint64_t count = 0;
    void *arguments[] = {&data, &words, &seed, &mismatches};
    CUDA(cuMemcpyHtoD_v2(mismatches, &count, sizeof count));
    gpu_launch(current->verify, 1024, 256, arguments);
    CUDA(cuMemcpyDtoH_v2(&count, mismatches, sizeof count));
    return count;
}
