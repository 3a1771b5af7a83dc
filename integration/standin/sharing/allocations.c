/* Memory that was created or imported. */
#define _GNU_SOURCE
#include "../gpu.h"
#include "../result.h"
#include "vmm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define ALLOCATIONS 512
/* driver 580 exports no allocation of this size or more that was restored. */
#define LOST_FOR_EXPORT (512ULL << 20)
/* A handle is the address of as many bytes, from calloc, which are freed with the last reference (driver 580). */
#define HANDLE_BYTES 784

static struct vmm_allocation allocations[ALLOCATIONS];

static vmm_handle new_handle(void) { return (vmm_handle)calloc(1, HANDLE_BYTES); }

static void free_handle(struct vmm_allocation *of) {
    free((void *)of->handle);
    of->handle = 0;
}

struct vmm_allocation *vmm_next_allocation(const struct vmm_allocation *before) {
    struct vmm_allocation *next = allocations;
    if (before)
        next += before - allocations + 1;
    for (; next < allocations + ALLOCATIONS; next++)
        if (next->handle)
            return next;
    return NULL;
}

struct vmm_allocation *vmm_find(vmm_handle handle) {
    for (struct vmm_allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        if (handle && each->handle == handle && each->given_out)
            return each;
    return NULL;
}

/* Makes an entry that is given out; NULL if there are too many. */
static struct vmm_allocation *new_entry(struct vmm_allocation values) {
    for (struct vmm_allocation *each = allocations; each < allocations + ALLOCATIONS; each++)
        if (!each->handle) {
            *each = values;
            each->handle = new_handle();
            each->given_out = 1;
            return each->handle ? each : NULL;
        }
    return NULL;
}

static int is_place(const struct location *location) {
    if (location->type == ON_DEVICE)
        return location->id >= 0 && (unsigned)location->id < gpu_devices();
    return location->type == ON_HOST_NODE && location->id >= 0;
}

static int make_file(const struct vmm_allocation *allocation) {
    const struct location *location = &allocation->properties.location;
    unsigned place = location->type == ON_DEVICE ? gpu_now((unsigned)location->id) : (unsigned)location->id;
    return file_new(&(struct shared){.bytes = allocation->bytes, .type = location->type, .place = place});
}

/* Memory of the host counts on no device. */
static void count(const struct vmm_allocation *allocation, int change) {
    if (!allocation->is_import && allocation->properties.location.type == ON_DEVICE)
        gpu_count((unsigned)allocation->properties.location.id, change * (long long)allocation->bytes);
}

int vmm_create(vmm_handle *handle, size_t bytes, const struct properties *properties) {
    if (!bytes || bytes % GRANULE || properties->type != 1 || !is_place(&properties->location))
        return INVALID_VALUE;
    if (properties->handle_types & ~POSIX_FILE)
        return NOT_SUPPORTED;
    struct vmm_allocation *new = new_entry((struct vmm_allocation){.properties = *properties, .bytes = bytes});
    if (!new)
        return OUT_OF_MEMORY;
    new->file = make_file(new);
    if (new->file < 0) {
        free_handle(new);
        return OUT_OF_MEMORY;
    }
    count(new, 1);
    *handle = new->handle;
    return 0;
}

int vmm_import(vmm_handle *handle, int file) {
    struct shared what;
    if (file_read(file, &what))
        return INVALID_VALUE;
    int id = what.type == ON_DEVICE ? gpu_device_on(what.place) : (int)what.place;
    int own = id < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return INVALID_DEVICE;
    struct properties properties = {.type = 1, .location = {what.type, id}};
    struct vmm_allocation *new =
        new_entry((struct vmm_allocation){.properties = properties, .bytes = what.bytes, .file = own, .is_import = 1});
    if (!new) {
        close(own);
        return OUT_OF_MEMORY;
    }
    *handle = new->handle;
    return 0;
}

/* The caller closes the descriptor. */
int vmm_export(vmm_handle handle, int *file) {
    struct vmm_allocation *found = vmm_find(handle);
    if (!found || found->is_import || !(found->properties.handle_types & POSIX_FILE))
        return INVALID_VALUE;
    if (found->was_restored && found->bytes >= LOST_FOR_EXPORT)
        return INVALID_VALUE;
    *file = fcntl(found->file, F_DUPFD_CLOEXEC, 0);
    found->is_exported |= *file >= 0;
    return *file < 0 ? OPERATING_SYSTEM : 0;
}

int vmm_retain(vmm_handle *handle, const char *address) {
    const struct vmm_mapping *mapping = vmm_mapping_at(address);
    if (!mapping)
        return INVALID_VALUE;
    mapping->of->given_out++;
    *handle = mapping->of->handle;
    return 0;
}

void vmm_drop_unused(struct vmm_allocation *allocation) {
    if (allocation->given_out || allocation->mapped)
        return;
    if (allocation->file >= 0)
        close(allocation->file);
    count(allocation, -1);
    free_handle(allocation);
}

int vmm_release(vmm_handle handle) {
    struct vmm_allocation *found = vmm_find(handle);
    if (!found)
        return INVALID_VALUE;
    found->given_out--;
    vmm_drop_unused(found);
    return 0;
}

int vmm_has_imports(void) {
    for (const struct vmm_allocation *each = NULL; (each = vmm_next_allocation(each));)
        if (each->is_import)
            return 1;
    return 0;
}

void vmm_close_files(void) {
    for (struct vmm_allocation *each = NULL; (each = vmm_next_allocation(each));) {
        if (each->file >= 0)
            close(each->file);
        each->file = -1;
    }
}

/* Makes new files, since no other process has the old ones. */
int vmm_make_files(void) {
    for (struct vmm_allocation *each = NULL; (each = vmm_next_allocation(each));)
        if (!each->is_import && (each->file = make_file(each)) < 0) {
            vmm_close_files();
            return OUT_OF_MEMORY;
        }
    return 0;
}
