/*
 * counter [PORT [DEVICE...]]: a number in the memory of each GPU named (default: 0), 100, 200, ... at the start; each packet increments
 * them and is answered with them.
 */
#include "gpu/gpu.h"

#include <stdio.h>

#define MOST 8

static int devices[MOST], count;
static CUdeviceptr counters[MOST];

static void answer(char *text, size_t room) {
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        gpu_use(devices[i]);
        used += (size_t)snprintf(text + used, room - used, i ? " %u" : "%u", counter_increment(counters[i]));
    }
    snprintf(text + used, room - used, "\n");
}

int main(int argc, char **argv) {
    do {
        devices[count] = (int)argument(argc, argv, 2 + count, 0);
        gpu_open_device(devices[count]);
        counters[count] = counter_new(100 * (uint32_t)(count + 1));
        count++;
    } while (count < MOST && 2 + count < argc);
    serve((int)argument(argc, argv, 1, 10000), answer);
}
