/* The stand-in for NVML: the few calls that nvml-wrapper makes for a driver version, GPUs, what they are, memory and processes. */
#include "peer.h"

#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_SPACE = 7, GPU_IS_LOST = 15 };

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct pci {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

/* NVML_VALUE_NOT_AVAILABLE */
#define NOT_AVAILABLE (~0ULL)

/* The processes that are wanted. */
enum way { ALONE, THROUGH_MPS };

struct list {
    const char *mps_tag;
    enum way way;
    int lacks_figures;
    struct process *room;
    unsigned capacity, count;
};

/* A GPU's handle is the address of its place here. */
static char handles[GPUS];

static unsigned index_of(const void *device) { return (unsigned)((const char *)device - handles); }

static struct gpu gpu_of(const void *device) { return machine_read().gpu[index_of(device)]; }

static int copy_text(const char *text, char *buffer, unsigned length) {
    return snprintf(buffer, length, "%s", text) < (int)length ? SUCCESS : NO_SPACE;
}

EXPORT int nvmlInit_v2(void) {
    while (machine_read().nvml_hangs)
        usleep(10000);
    return SUCCESS;
}

EXPORT int nvmlShutdown(void) { return SUCCESS; }

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    return copy_text(machine_read().driver_version, version, length);
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = machine_read().gpus;
    return SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (index >= machine_read().gpus)
        return INVALID_ARGUMENT;
    /* nvidia-smi gets this error, too: "Unable to determine the device handle for GPU: GPU is lost". */
    if (machine_read().gpu[index].is_lost)
        return GPU_IS_LOST;
    *device = &handles[index];
    return SUCCESS;
}

EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    char text[64];
    snprintf(text, sizeof text, GPU_UUID_TEXT, index_of(device) + 1);
    return copy_text(text, uuid, length);
}

EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    return copy_text(gpu_of(device).name, name, length);
}

EXPORT int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    *minor = index_of(device);
    return SUCCESS;
}

/* A domain that no machine has: a test may make such a device in a sysfs of its own. */
EXPORT int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    pci->domain = 0xbeef;
    pci->bus = index_of(device) + 1;
    snprintf(pci->legacy_bus_id, sizeof pci->legacy_bus_id, "%04X:%02X:00.0", pci->domain, pci->bus);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:00.0", pci->domain, pci->bus);
    return SUCCESS;
}

EXPORT int nvmlDeviceGetPersistenceMode(void *device, unsigned *mode) {
    struct gpu gpu = gpu_of(device);
    *mode = !gpu.persistence_is_off;
    return gpu.is_old ? NOT_SUPPORTED : SUCCESS;
}

EXPORT int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    struct gpu gpu = gpu_of(device);
    *current = *pending = (unsigned)gpu.is_mig;
    return gpu.is_old ? NOT_SUPPORTED : SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    struct machine machine = machine_read();
    memory->total = machine.gpu[index_of(device)].total_bytes;
    memory->free = free_bytes(&machine, index_of(device));
    memory->reserved = 0;
    memory->used = memory->total - memory->free;
    return SUCCESS;
}

static void add_process(int pid, const struct mailbox *box, uint64_t bytes, void *context) {
    struct list *list = context;
    enum way way = list->mps_tag[0] && !strcmp(box->tag, list->mps_tag) ? THROUGH_MPS : ALONE;
    if (way != list->way)
        return;
    if (list->lacks_figures)
        bytes = NOT_AVAILABLE;
    if (list->count < list->capacity)
        list->room[list->count] = (struct process){.pid = (unsigned)pid, .used_bytes = bytes};
    list->count++;
}

static int list_processes(void *device, enum way way, unsigned *count, struct process *processes) {
    struct machine machine = machine_read();
    struct list list = {
        .mps_tag = machine.mps_tag, .way = way, .lacks_figures = machine.lacks_figures, .room = processes, .capacity = processes ? *count : 0};
    if (!machine.lacks_processes)
        each_on_gpu(index_of(device), add_process, &list);
    *count = list.count;
    return list.count <= list.capacity ? SUCCESS : NO_SPACE;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    return list_processes(device, ALONE, count, processes);
}

EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count, struct process *processes) {
    if (gpu_of(device).is_old)
        return NOT_SUPPORTED;
    return list_processes(device, THROUGH_MPS, count, processes);
}
