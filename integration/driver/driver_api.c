/* The workload's half of libcuda: the calls of the driver API that our workloads make. Kernels are known by name. */
#include "gpu.h"
#include "result.h"

#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef unsigned long long device_pointer;

/* As workloads/kernels.ptx computes it. */
static uint64_t mix(uint64_t x) {
    x *= 0x9E3779B97F4A7C15ULL;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ULL;
    return x ^ (x >> 32);
}

static void increment(void **arguments) { ++*(uint32_t *)*(device_pointer *)arguments[0]; }

static void fill(void **arguments) {
    uint64_t *data = (uint64_t *)*(device_pointer *)arguments[0];
    uint64_t words = *(uint64_t *)arguments[1], seed = *(uint64_t *)arguments[2];
    for (uint64_t i = 0; i < words; i++)
        data[i] = mix(i + seed);
}

static void verify(void **arguments) {
    const uint64_t *data = (const uint64_t *)*(device_pointer *)arguments[0];
    uint64_t words = *(uint64_t *)arguments[1], seed = *(uint64_t *)arguments[2];
    uint64_t *bad = (uint64_t *)*(device_pointer *)arguments[3];
    for (uint64_t i = 0; i < words; i++)
        *bad += data[i] != mix(i + seed);
}

static const struct kernel {
    const char *name;
    void (*run)(void **arguments);
} KERNELS[] = {{"increment", increment}, {"fill", fill}, {"verify", verify}};

EXPORT int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

EXPORT int cuInit(unsigned flags) {
    (void)flags;
    return gpu_start();
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? 0 : 101;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    static char primary;
    *context = &primary;
    return device == 0 ? 0 : 101;
}

EXPORT int cuCtxSetCurrent(void *context) {
    (void)context;
    return 0;
}

EXPORT int cuModuleLoadData(void **module, const void *image) {
    *module = (void *)image;
    return 0;
}

EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    for (size_t i = 0; i < sizeof KERNELS / sizeof *KERNELS; i++)
        if (!strcmp(KERNELS[i].name, name)) {
            *function = (void *)&KERNELS[i];
            return 0;
        }
    return NOT_FOUND;
}

EXPORT int cuMemAlloc_v2(device_pointer *pointer, size_t bytes) {
    int result = gpu_enter();
    if (result)
        return result;
    *pointer = (device_pointer)gpu_allocate(bytes);
    gpu_leave();
    return *pointer ? 0 : OUT_OF_MEMORY;
}

EXPORT int cuMemAllocManaged(device_pointer *pointer, size_t bytes, unsigned flags) {
    (void)flags;
    gpu_hold_managed_memory();
    return cuMemAlloc_v2(pointer, bytes);
}

EXPORT int cuMemFree_v2(device_pointer pointer) {
    int result = gpu_enter();
    if (result)
        return result;
    result = gpu_release((void *)pointer);
    gpu_leave();
    return result;
}

static int copy(void *to, const void *from, size_t bytes) {
    int result = gpu_enter();
    if (result)
        return result;
    memcpy(to, from, bytes);
    gpu_leave();
    return 0;
}

EXPORT int cuMemcpyHtoD_v2(device_pointer to, const void *from, size_t bytes) { return copy((void *)to, from, bytes); }

EXPORT int cuMemcpyDtoH_v2(void *to, device_pointer from, size_t bytes) { return copy(to, (const void *)from, bytes); }

EXPORT int cuLaunchKernel(const struct kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared_bytes, void *stream, void **arguments, void **extra) {
    (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)shared_bytes, (void)stream, (void)extra;
    int result = gpu_enter();
    if (result)
        return result;
    kernel->run(arguments);
    gpu_leave();
    return 0;
}

EXPORT int cuCtxSynchronize(void) {
    int result = gpu_enter();
    if (result == 0)
        gpu_leave();
    return result;
}
