/* The attributes of an address of device memory, of whatever kind. */
#include "../gpu.h"
#include "../memory.h"
#include "../result.h"
#include "vmm.h"

#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* CUpointer_attribute, and CUmemorytype. */
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, DEVICE_ORDINAL = 9, IS_LEGACY_IPC_CAPABLE = 10, POOL = 17 };
enum { HOST = 1, DEVICE = 2 };

struct facts {
    char *base;
    size_t bytes;
    int type, is_managed, device, is_legacy_ipc_capable;
};

static int find(const char *address, struct facts *facts) {
    const struct allocation *allocated = memory_find(address);
    if (allocated) {
        *facts = (struct facts){.base = allocated->address, .bytes = allocated->bytes, .type = DEVICE, .device = (int)allocated->device,
                                .is_managed = allocated->kind == MANAGED, .is_legacy_ipc_capable = allocated->kind == ALLOCATED};
        return 0;
    }
    const struct vmm_mapping *mapping = vmm_mapping_at(address);
    if (!mapping)
        return INVALID_VALUE;
    const struct location *location = &mapping->of->properties.location;
    int is_on_device = location->type == ON_DEVICE;
    *facts = (struct facts){.base = mapping->address, .bytes = mapping->bytes, .type = is_on_device ? DEVICE : HOST,
                            .device = is_on_device ? location->id : 0};
    return 0;
}

EXPORT int cuMemGetAddressRange_v2(char **base, size_t *bytes, const char *address) {
    int result = gpu_enter();
    if (result)
        return result;
    struct facts facts;
    result = find(address, &facts);
    if (result == 0 && base)
        *base = facts.base;
    if (result == 0 && bytes)
        *bytes = facts.bytes;
    gpu_leave();
    return result;
}

static int tell(void *data, int attribute, const struct facts *facts) {
    int value;
    switch (attribute) {
    case MEMORY_TYPE:
        value = facts->type;
        break;
    case IS_MANAGED:
        value = facts->is_managed;
        break;
    case DEVICE_ORDINAL:
        value = facts->device;
        break;
    case IS_LEGACY_IPC_CAPABLE:
        value = facts->is_legacy_ipc_capable;
        break;
    case POOL:
        memset(data, 0, sizeof(void *)); /* there are no pools here */
        return 0;
    default:
        return INVALID_VALUE;
    }
    memcpy(data, &value, sizeof value);
    return 0;
}

EXPORT int cuPointerGetAttribute(void *data, int attribute, const char *address) {
    int result = gpu_enter();
    if (result)
        return result;
    struct facts facts;
    result = find(address, &facts);
    if (result == 0)
        result = tell(data, attribute, &facts);
    gpu_leave();
    return result;
}

EXPORT int cuMemPoolGetAccess(int *flags, void *pool, struct location *location) {
    (void)flags, (void)pool, (void)location;
    return INVALID_VALUE;
}
