/*
 * The device nodes that a workload holds, as driver 580 does: descriptors of the driver's own and of each GPU that the process sees, and
 * mappings of them.
 */
#ifndef STASIS_DEVICES_H
#define STASIS_DEVICES_H

#include "mailbox.h"

#include <stddef.h>

/* Finds the GPUs whose node the process can open, in the order of their numbers. Returns how many. */
unsigned devices_find(uint8_t gpus[GPUS]);
/* Finds the places in that list of the GPUs that the process sees: all, or those that CUDA_VISIBLE_DEVICES names by them. Returns how many. */
unsigned devices_visible(unsigned gpus, uint8_t places[GPUS]);
/* Opens the nodes, all or none; a CUresult. */
int devices_take(const uint8_t *gpus, unsigned count);
void devices_give_up(void);
/* Maps /dev/nvidia-uvm as managed memory shows; for good. */
void devices_map_managed(size_t bytes);

#endif
