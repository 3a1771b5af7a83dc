/*
 * The machine as the engine sees it: one GPU, or what these lines of the file of faults say. GPUs are counted from 0.
 *
 *   gpus N                 there are N (at most 4)
 *   memory MIB [GPU]       what that one has, or all
 *   name GPU TEXT          its product name
 *   mig GPU                it is cut into MIG slices
 *   persistence-off GPU    no process keeps it initialised
 *   old GPU                it knows nothing of MIG, MPS and persistence
 *   lost GPU               it has fallen off the bus
 *   nvml-hangs             no call of NVML's comes back, as long as this is here
 *   no-figures             NVML does not know how much memory processes have (vGPU)
 *   no-processes           NVML lists no processes (in a container of its own)
 *   mps TAG                processes with this tag use their GPUs through MPS
 *   copies-itself          the driver calls no memcpy for GPU contents
 *   driver VERSION
 */
#ifndef STASIS_MACHINE_H
#define STASIS_MACHINE_H

#include "mailbox.h"

#include <stdio.h>
#include <string.h>
#include <sys/file.h>

struct gpu {
    char name[96];
    uint64_t total_bytes;
    int is_mig, is_old, is_lost, persistence_is_off;
};

struct machine {
    unsigned gpus;
    int nvml_hangs;
    char driver_version[80];
    char mps_tag[32];
    int lacks_figures, lacks_processes, copies_itself;
    struct gpu gpu[GPUS];
};

static void machine_read_line(struct machine *machine, const char *line) {
    unsigned long long mib;
    unsigned gpu = GPUS;
    char name[96];
    if (sscanf(line, "gpus %u", &gpu) == 1)
        machine->gpus = gpu < GPUS ? gpu : GPUS;
    else if (sscanf(line, "memory %llu %u", &mib, &gpu) >= 1) {
        for (unsigned i = 0; i < GPUS; i++)
            if (gpu == GPUS || gpu == i)
                machine->gpu[i].total_bytes = mib << 20;
    } else if (sscanf(line, "name %u %95[^\n]", &gpu, name) == 2 && gpu < GPUS)
        memcpy(machine->gpu[gpu].name, name, sizeof name);
    else if (sscanf(line, "mig %u", &gpu) == 1 && gpu < GPUS)
        machine->gpu[gpu].is_mig = 1;
    else if (sscanf(line, "persistence-off %u", &gpu) == 1 && gpu < GPUS)
        machine->gpu[gpu].persistence_is_off = 1;
    else if (sscanf(line, "old %u", &gpu) == 1 && gpu < GPUS)
        machine->gpu[gpu].is_old = 1;
    else if (sscanf(line, "lost %u", &gpu) == 1 && gpu < GPUS)
        machine->gpu[gpu].is_lost = 1;
    else if (!strncmp(line, "nvml-hangs", strlen("nvml-hangs")))
        machine->nvml_hangs = 1;
    else if (!strcmp(line, "no-figures\n"))
        machine->lacks_figures = 1;
    else if (!strcmp(line, "no-processes\n"))
        machine->lacks_processes = 1;
    else if (!strcmp(line, "copies-itself\n"))
        machine->copies_itself = 1;
    else if (sscanf(line, "mps %31s", machine->mps_tag) != 1)
        sscanf(line, "driver %79s", machine->driver_version);
}

static struct machine machine_read(void) {
    struct machine machine = {.gpus = 1, .driver_version = "580.0.0-standin"};
    for (unsigned i = 0; i < GPUS; i++)
        machine.gpu[i] = (struct gpu){.name = "stasis stand-in GPU", .total_bytes = 143771ULL << 20};
    FILE *file = fopen(FAULTS, "re");
    char line[128];
    /* A process that carries out an order rewrites the file: half of it would be a machine with other memory. */
    if (file)
        flock(fileno(file), LOCK_SH);
    while (file && fgets(line, sizeof line, file))
        machine_read_line(&machine, line);
    if (file)
        fclose(file);
    return machine;
}

#endif
