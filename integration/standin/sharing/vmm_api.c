/* The calls of virtual memory management. */
#include "../gpu.h"
#include "../result.h"
#include "../stream.h"
#include "vmm.h"

#include <pthread.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t tables = PTHREAD_MUTEX_INITIALIZER;

/* Threads that are inside at the same time change the same tables. */
static int enter(void) {
    int result = gpu_enter();
    if (result == 0)
        pthread_mutex_lock(&tables);
    return result;
}

static int leave(int result) {
    pthread_mutex_unlock(&tables);
    gpu_leave();
    return result;
}

EXPORT int cuMemAddressReserve(char **address, size_t bytes, size_t alignment, char *wanted, unsigned long long flags) {
    int result = enter();
    return result ? result : leave(flags ? INVALID_VALUE : vmm_reserve(address, bytes, alignment, wanted));
}

EXPORT int cuMemAddressFree(char *address, size_t bytes) {
    int result = enter();
    return result ? result : leave(vmm_end_reservation(address, bytes));
}

EXPORT int cuMemCreate(vmm_handle *handle, size_t bytes, const struct properties *properties, unsigned long long flags) {
    int result = enter();
    return result ? result : leave(flags ? INVALID_VALUE : vmm_create(handle, bytes, properties));
}

EXPORT int cuMemRelease(vmm_handle handle) {
    int result = enter();
    return result ? result : leave(vmm_release(handle));
}

EXPORT int cuMemMap(char *address, size_t bytes, size_t offset, vmm_handle handle, unsigned long long flags) {
    int result = enter();
    return result ? result : leave(offset || flags ? INVALID_VALUE : vmm_map(address, bytes, handle));
}

EXPORT int cuMemUnmap(char *address, size_t bytes) {
    int result = enter();
    if (result)
        return result;
    stream_drain();
    return leave(vmm_unmap(address, bytes));
}

EXPORT int cuMemSetAccess(char *address, size_t bytes, const struct access *accesses, size_t count) {
    int result = enter();
    if (result)
        return result;
    stream_drain();
    return leave(vmm_set_access(address, bytes, accesses, count));
}

EXPORT int cuMemGetAccess(unsigned long long *flags, const struct location *location, const char *address) {
    int result = enter();
    return result ? result : leave(vmm_access(location, address, flags));
}

EXPORT int cuMemRetainAllocationHandle(vmm_handle *handle, const char *address) {
    int result = enter();
    return result ? result : leave(vmm_retain(handle, address));
}

EXPORT int cuMemGetAllocationPropertiesFromHandle(struct properties *properties, vmm_handle handle) {
    int result = enter();
    if (result)
        return result;
    const struct vmm_allocation *found = vmm_find(handle);
    if (found)
        *properties = found->properties;
    return leave(found ? 0 : INVALID_VALUE);
}

EXPORT int cuMemExportToShareableHandle(int *file, vmm_handle handle, int type, unsigned long long flags) {
    int result = enter();
    return result ? result : leave(type != POSIX_FILE || flags ? INVALID_VALUE : vmm_export(handle, file));
}

EXPORT int cuMemImportFromShareableHandle(vmm_handle *handle, intptr_t file, int type) {
    int result = enter();
    return result ? result : leave(type != POSIX_FILE ? INVALID_VALUE : vmm_import(handle, (int)file));
}
