/* The workload's half of libcuda: the calls of the driver API that our workloads make. Kernels are known by name. */
#include "gpu.h"
#include "mailbox.h"
#include "memory.h"
#include "result.h"
#include "stream.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

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

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL); }

/* As workloads/ranks/meet.h has it. */
static void meet(void **arguments) {
    uint64_t(*slots)[4] = *(void **)arguments[0], *state = *(void **)arguments[3];
    uint32_t rank = *(uint32_t *)arguments[1], ranks = *(uint32_t *)arguments[2];
    uint64_t meeting = ++state[0], number = ++state[1];
    slots[rank][1 + meeting % 2] = number;
    __atomic_store_n(&slots[rank][0], meeting, __ATOMIC_RELEASE);
    for (uint32_t each = 0; each < ranks; each++) {
        while (__atomic_load_n(&slots[each][0], __ATOMIC_ACQUIRE) < meeting)
            nap();
        state[2] += slots[each][1 + meeting % 2];
    }
}

static const struct kernel KERNELS[] = {
    {"increment", increment, {8}}, {"fill", fill, {8, 8, 8}}, {"verify", verify, {8, 8, 8, 8}}, {"meet", meet, {8, 4, 4, 8}}};

EXPORT int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}

EXPORT int cuInit(unsigned flags) {
    (void)flags;
    return gpu_start();
}

EXPORT int cuDeviceGetCount(int *count) {
    *count = (int)gpu_devices();
    return *count ? 0 : NOT_INITIALIZED;
}

static int check_device(int device) {
    if (gpu_devices() == 0)
        return NOT_INITIALIZED;
    return device >= 0 && (unsigned)device < gpu_devices() ? 0 : INVALID_DEVICE;
}

EXPORT int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return check_device(ordinal);
}

EXPORT int cuDeviceGetUuid_v2(void *uuid, int device) {
    int result = check_device(device);
    if (result)
        return result;
    memcpy(uuid, GPU_UUID, UUID_BYTES);
    ((unsigned char *)uuid)[UUID_BYTES - 1] = (unsigned char)(gpu_first((unsigned)device) + 1);
    return 0;
}

EXPORT int cuDeviceGetUuid(void *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

/* One context of each device. A thread has a stack of them, of which the last is the current one. */
static struct context {
    unsigned retained;
    int has_peer_access[GPUS];
} contexts[GPUS];
#define DEPTH 32
static _Thread_local struct context *current, *below[DEPTH];
static _Thread_local unsigned depth;

EXPORT int cuDevicePrimaryCtxRetain(struct context **context, int device) {
    int result = check_device(device);
    if (result == 0)
        result = gpu_enter();
    if (result)
        return result;
    *context = &contexts[device];
    if ((*context)->retained++ == 0)
        gpu_count((unsigned)device, CONTEXT_BYTES);
    gpu_leave();
    return 0;
}

/* A context's allocations stay: no workload here uses them afterwards. */
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    int result = check_device(device);
    if (result == 0)
        result = gpu_enter();
    if (result)
        return result;
    struct context *context = &contexts[device];
    result = context->retained ? 0 : INVALID_CONTEXT;
    if (result == 0 && --context->retained == 0)
        gpu_count((unsigned)device, -(long long)CONTEXT_BYTES);
    gpu_leave();
    return result;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
    int result = check_device(device);
    if (result)
        return result;
    *flags = 0;
    *is_active = contexts[device].retained != 0;
    return 0;
}

EXPORT int cuCtxSetCurrent(struct context *context) {
    current = context;
    return gpu_devices() ? 0 : NOT_INITIALIZED;
}

EXPORT int cuCtxPushCurrent_v2(struct context *context) {
    if (!gpu_devices())
        return NOT_INITIALIZED;
    if (!context || depth == DEPTH)
        return INVALID_CONTEXT;
    below[depth++] = current;
    current = context;
    return 0;
}

EXPORT int cuCtxPopCurrent_v2(struct context **context) {
    if (!gpu_devices())
        return NOT_INITIALIZED;
    if (!current)
        return INVALID_CONTEXT;
    if (context)
        *context = current;
    current = depth ? below[--depth] : NULL;
    return 0;
}

/* Lets the current context use the other one's memory from now on, or no more. */
static int change_peer_access(const struct context *peer, int wanted) {
    int result = gpu_enter();
    if (result)
        return result;
    result = current && peer && current != peer ? 0 : INVALID_CONTEXT;
    int *has = result ? NULL : &current->has_peer_access[peer - contexts];
    if (has && *has == wanted)
        result = wanted ? PEER_ACCESS_ALREADY_ENABLED : PEER_ACCESS_NOT_ENABLED;
    if (result == 0) {
        gpu_count_peer_access(wanted - *has);
        *has = wanted;
    }
    gpu_leave();
    return result;
}

EXPORT int cuCtxEnablePeerAccess(struct context *peer, unsigned flags) {
    return flags ? INVALID_VALUE : change_peer_access(peer, 1);
}

EXPORT int cuCtxDisablePeerAccess(struct context *peer) { return change_peer_access(peer, 0); }

/* CUstreamCaptureMode of the thread. Nothing is captured here. */
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
    static _Thread_local int own;
    if (*mode < 0 || *mode > 2)
        return INVALID_VALUE;
    int before = own;
    own = *mode;
    *mode = before;
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
    unsigned device = (unsigned)(current - contexts);
    *pointer = current ? (device_pointer)memory_allocate(&bytes, device) : 0;
    if (*pointer)
        gpu_count(device, (long long)bytes);
    gpu_leave();
    if (!current)
        return INVALID_CONTEXT;
    return *pointer ? 0 : OUT_OF_MEMORY;
}

EXPORT int cuMemAllocManaged(device_pointer *pointer, size_t bytes, unsigned flags) {
    (void)flags;
    int result = cuMemAlloc_v2(pointer, bytes);
    if (result == 0) {
        gpu_hold_managed_memory(bytes);
        memory_find((void *)*pointer)->kind = MANAGED;
    }
    return result;
}

EXPORT int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
    (void)memory, (void)bytes, (void)flags;
    return gpu_devices() ? 0 : NOT_INITIALIZED;
}

EXPORT int cuMemHostGetDevicePointer_v2(device_pointer *pointer, void *memory, unsigned flags) {
    (void)flags;
    *pointer = (device_pointer)memory;
    return gpu_devices() ? 0 : NOT_INITIALIZED;
}

EXPORT int cuMemFree_v2(device_pointer pointer) {
    int result = gpu_enter();
    if (result)
        return result;
    stream_drain();
    unsigned device;
    size_t bytes = memory_release((void *)pointer, &device);
    if (bytes)
        gpu_count(device, -(long long)bytes);
    gpu_leave();
    return bytes ? 0 : INVALID_VALUE;
}

static int copy(void *to, const void *from, size_t bytes) {
    int result = gpu_enter();
    if (result)
        return result;
    stream_drain();
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
    result = stream_submit(kernel, arguments);
    gpu_leave();
    return result;
}

EXPORT int cuCtxSynchronize(void) {
    int result = gpu_enter();
    if (result)
        return result;
    stream_drain();
    gpu_leave();
    return 0;
}
