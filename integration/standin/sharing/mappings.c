/* Mappings at reserved addresses, who has access to them, and their part in a checkpoint and a restore. */
#define _GNU_SOURCE
#include "../gpu.h"
#include "../memory.h"
#include "../result.h"
#include "vmm.h"

#include <stdlib.h>
#include <sys/mman.h>

#define MAPPINGS 1024
#define HOST GPUS

#define FOR_EACH for (struct vmm_mapping *each = mappings; each < mappings + MAPPINGS; each++)

static struct vmm_mapping mappings[MAPPINGS];

static int overlaps(const struct vmm_mapping *mapping, const char *address, size_t bytes) {
    return mapping->address && mapping->address < address + bytes && address < mapping->address + mapping->bytes;
}

const struct vmm_mapping *vmm_mapping_at(const char *address) {
    FOR_EACH
        if (overlaps(each, address, 1))
            return each;
    return NULL;
}

int vmm_is_used(const char *address, size_t bytes) {
    FOR_EACH
        if (overlaps(each, address, bytes))
            return 1;
    return 0;
}

/* Whether whole mappings make up all of a range. */
static int is_mapped(const char *address, size_t bytes) {
    size_t found = 0;
    FOR_EACH {
        if (!overlaps(each, address, bytes))
            continue;
        if (each->address < address || each->address + each->bytes > address + bytes)
            return 0;
        found += each->bytes;
    }
    return bytes && found == bytes;
}

/* Kernels and copies run on the CPU: memory that any device may use is accessible to all. */
static int protection(const struct vmm_mapping *mapping) {
    for (int i = 0; i <= HOST; i++)
        if (mapping->access[i] == READ_WRITE)
            return PROT_READ | PROT_WRITE;
    return PROT_NONE;
}

static int show(const struct vmm_mapping *mapping) {
    return file_map(mapping->of->file, mapping->address, mapping->bytes, protection(mapping)) ? 0 : OUT_OF_MEMORY;
}

static struct vmm_mapping *new_entry(void) {
    FOR_EACH
        if (!each->address)
            return each;
    return NULL;
}

int vmm_map(char *address, size_t bytes, vmm_handle handle) {
    struct vmm_allocation *of = vmm_find(handle);
    if (!of || of->file < 0 || !bytes || bytes % GRANULE || bytes > of->bytes || (size_t)address % GRANULE ||
        !vmm_is_reserved(address, bytes) || vmm_is_used(address, bytes))
        return INVALID_VALUE;
    struct vmm_mapping *new = new_entry();
    if (!new)
        return OUT_OF_MEMORY;
    struct vmm_mapping mapping = {.address = address, .bytes = bytes, .of = of};
    int result = show(&mapping);
    if (result)
        return result;
    *new = mapping;
    of->mapped++;
    return 0;
}

int vmm_unmap(char *address, size_t bytes) {
    if (!is_mapped(address, bytes))
        return INVALID_VALUE;
    int result = vmm_hide(address, bytes);
    if (result)
        return result;
    FOR_EACH
        if (overlaps(each, address, bytes)) {
            each->address = NULL;
            each->of->mapped--;
            vmm_drop_unused(each->of);
        }
    return 0;
}

/* The place of a location among those that have access; -1 if there is none. */
static int place_of(const struct location *location) {
    if (location->type == ON_DEVICE)
        return location->id >= 0 && (unsigned)location->id < gpu_devices() ? location->id : -1;
    return location->type == ON_HOST_NODE ? HOST : -1;
}

int vmm_set_access(char *address, size_t bytes, const struct access *accesses, size_t count) {
    if (!is_mapped(address, bytes))
        return INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (place_of(&accesses[i].location) < 0 || (accesses[i].flags && accesses[i].flags != READ_WRITE))
            return INVALID_VALUE;
    FOR_EACH {
        if (!overlaps(each, address, bytes))
            continue;
        for (size_t i = 0; i < count; i++)
            each->access[place_of(&accesses[i].location)] = (unsigned char)accesses[i].flags;
        if (mprotect(each->address, each->bytes, protection(each)))
            return OUT_OF_MEMORY;
    }
    return 0;
}

int vmm_access(const struct location *location, const char *address, unsigned long long *flags) {
    const struct vmm_mapping *mapping = vmm_mapping_at(address);
    int place = place_of(location);
    if (!mapping || place < 0)
        return INVALID_VALUE;
    *flags = mapping->access[place];
    return 0;
}

static int has_peers(const struct vmm_mapping *mapping) {
    const struct location *own = &mapping->of->properties.location;
    if (mapping->of->is_import || own->type != ON_DEVICE)
        return 0;
    for (int i = 0; i < GPUS; i++)
        if (i != own->id && mapping->access[i])
            return 1;
    return 0;
}

size_t vmm_largest_of_peers(void) {
    size_t largest = 0;
    FOR_EACH
        if (each->address && has_peers(each) && each->of->bytes > largest)
            largest = each->of->bytes;
    return largest;
}

size_t vmm_bytes(void) {
    size_t bytes = 0;
    for (const struct vmm_allocation *each = NULL; (each = vmm_next_allocation(each));)
        bytes += each->is_import ? 0 : each->bytes;
    return bytes;
}

/* Memory may be mapped in several places, or in none: it is moved by way of a mapping of its own. */
static void take(const struct vmm_allocation *allocation) {
    char *all = file_map(allocation->file, NULL, allocation->bytes, PROT_READ | PROT_WRITE);
    if (!all)
        abort(); /* of addresses there are enough */
    contents_take(all, allocation->bytes, allocation->is_exported ? KEEP : REMOVE);
    munmap(all, allocation->bytes);
}

static void hide_all(void) {
    FOR_EACH
        if (each->address)
            vmm_hide(each->address, each->bytes);
    vmm_close_files();
}

void vmm_take_contents(void) {
    for (struct vmm_allocation *each = NULL; (each = vmm_next_allocation(each));)
        if (!each->is_import)
            take(each);
    hide_all();
}

/* There are no imports here: they have been refused before. */
int vmm_map_anew(void) {
    int result = vmm_make_files();
    FOR_EACH
        if (result == 0 && each->address)
            result = show(each);
    if (result)
        hide_all();
    return result;
}

void vmm_give_contents(void) {
    for (struct vmm_allocation *each = NULL; (each = vmm_next_allocation(each));) {
        char *all = file_map(each->file, NULL, each->bytes, PROT_READ | PROT_WRITE);
        if (!all)
            abort();
        contents_give(all, each->bytes, EMPTY);
        munmap(all, each->bytes);
        each->was_restored = 1;
        each->is_exported = 0;
    }
}
