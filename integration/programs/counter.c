/* counter [PORT]: a number in GPU memory, 100 at the start; each packet increments it and is answered with it. */
#include "gpu.h"

#include <stdio.h>

static CUdeviceptr counter;

static void answer(char *text, size_t room) { snprintf(text, room, "%u\n", counter_increment(counter)); }

int main(int argc, char **argv) {
    gpu_open();
    counter = counter_new(100);
    serve((int)argument(argc, argv, 1, 10000), answer);
}
