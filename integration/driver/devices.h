/* The device nodes that a workload holds: of the driver itself, and of each GPU that it sees. */
#ifndef STASIS_DEVICES_H
#define STASIS_DEVICES_H

#include "mailbox.h"

/*
 * Which GPUs the process sees: those whose node it can open, in the order of their numbers, or those of them that
 * CUDA_VISIBLE_DEVICES names by their places in that order. How many.
 */
unsigned devices_find(uint8_t gpus[GPUS]);
/* Opens the nodes, all or none; a CUresult. */
int devices_take(const uint8_t *gpus, unsigned count);
void devices_give_up(void);
/* As UVM does for managed memory: another mapping of its node, at an address of the kernel's choice. */
void devices_map_managed(void);

#endif
