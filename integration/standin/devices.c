#define _GNU_SOURCE
#include "devices.h"
#include "result.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ULL
#define HUGE_PAGE (2ULL << 20)
/* The one mapping of /dev/nvidia-uvm that every process with driver 580 has; mappings of managed memory are above 64 GiB. */
#define LOW_WINDOW 0x204a00000ULL

#define NODES (2 + GPUS)

static int nodes[NODES] = {-1, -1, -1, -1, -1, -1};
/* Once mapped, their addresses are kept. */
static struct mapping {
    void *address;
    size_t bytes;
} mappings[1 + GPUS];

static int open_gpu(unsigned gpu) {
    char path[32];
    snprintf(path, sizeof path, "/dev/nvidia%u", gpu);
    return open(path, O_RDWR | O_CLOEXEC);
}

unsigned devices_find(uint8_t gpus[GPUS]) {
    unsigned count = 0;
    for (unsigned gpu = 0; gpu < GPUS; gpu++) {
        int node = open_gpu(gpu);
        if (node < 0)
            continue;
        close(node);
        gpus[count++] = (uint8_t)gpu;
    }
    return count;
}

unsigned devices_visible(unsigned gpus, uint8_t places[GPUS]) {
    unsigned count = 0;
    const char *named = getenv("CUDA_VISIBLE_DEVICES");
    for (; !named && count < gpus; count++)
        places[count] = (uint8_t)count;
    while (named && count < GPUS) {
        char *end;
        unsigned long place = strtoul(named, &end, 10);
        if (end == named || place >= gpus)
            break; /* what follows one that is not there does not count */
        places[count++] = (uint8_t)place;
        named = *end ? end + 1 : end;
    }
    return count;
}

void devices_give_up(void) {
    for (struct mapping *each = mappings; each <= mappings + GPUS; each++)
        if (each->address)
            mmap(each->address, each->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    for (int i = 0; i < NODES; i++) {
        if (nodes[i] >= 0)
            close(nodes[i]);
        nodes[i] = -1;
    }
}

static int map(int node, void *near, size_t bytes, struct mapping *mapping) {
    int in_place = mapping->address ? MAP_FIXED : 0;
    void *mapped = mmap(in_place ? mapping->address : near, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | in_place, node, 0);
    if (mapped == MAP_FAILED)
        return -1;
    *mapping = (struct mapping){.address = mapped, .bytes = bytes};
    return 0;
}

int devices_take(const uint8_t *gpus, unsigned count) {
    if ((nodes[0] = open("/dev/nvidiactl", O_RDWR | O_CLOEXEC)) < 0 ||
        (nodes[1] = open("/dev/nvidia-uvm", O_RDWR | O_CLOEXEC)) < 0 ||
        map(nodes[1], (void *)LOW_WINDOW, HUGE_PAGE, &mappings[0]))
        goto failed;
    for (unsigned i = 0; i < count; i++)
        if ((nodes[2 + i] = open_gpu(gpus[i])) < 0 || map(nodes[2 + i], NULL, PAGE, &mappings[1 + i]))
            goto failed;
    return 0;
failed:
    devices_give_up();
    return NO_DEVICE;
}

void devices_map_managed(size_t bytes) {
    bytes = (bytes + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return;
    /* The driver wants the offset to be the address. */
    mmap(room, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, nodes[1], (off_t)room);
}
