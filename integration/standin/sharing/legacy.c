/*
 * Memory of cuMemAlloc that another process opens by a handle of 64 bytes. The handle names the descriptor of a file that its owner has open, so
 * it is good for as long as the memory is on the device.
 */
#define _GNU_SOURCE
#include "../gpu.h"
#include "../memory.h"
#include "../result.h"
#include "../stream.h"
#include "file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* CUipcMemHandle. */
struct handle {
    int process;
    int file;
    char reserved[56];
};

EXPORT int cuIpcGetMemHandle(struct handle *handle, void *address) {
    int result = gpu_enter();
    if (result)
        return result;
    stream_drain();
    struct allocation *found = memory_find(address);
    result = found ? memory_share(found) : INVALID_VALUE;
    if (result == 0)
        *handle = (struct handle){.process = getpid(), .file = found->file};
    gpu_leave();
    return result;
}

static int open_shared(const struct handle *handle, void **address) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->process, handle->file);
    int file = handle->process == getpid() ? -1 : open(path, O_RDWR | O_CLOEXEC);
    struct shared what;
    if (file < 0 || file_read(file, &what)) {
        close(file);
        return INVALID_VALUE;
    }
    int device = gpu_device_on(what.place);
    int result = device < 0 ? INVALID_DEVICE : memory_open(file, what.bytes, (unsigned)device, address);
    close(file);
    return result;
}

EXPORT int cuIpcOpenMemHandle_v2(void **address, struct handle handle, unsigned flags) {
    int result = flags > 1 ? INVALID_VALUE : gpu_enter();
    if (result)
        return result;
    result = open_shared(&handle, address);
    gpu_leave();
    return result;
}

EXPORT int cuIpcCloseMemHandle(void *address) {
    int result = gpu_enter();
    if (result)
        return result;
    stream_drain();
    result = memory_close(address);
    gpu_leave();
    return result;
}
