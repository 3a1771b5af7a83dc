/* The workload's half: the GPU's memory, and the gate that its calls go through. */
#ifndef STASIS_GPU_H
#define STASIS_GPU_H

#include <stddef.h>

/* Makes the mailbox, the restore thread and the references to the devices; a CUresult. */
int gpu_start(void);
/* Every CUDA call goes in and out here; going in waits while the process is locked. */
int gpu_enter(void);
void gpu_leave(void);
/* Device memory, at addresses that stay the same through checkpoint and restore; 0 if there is no room. */
void *gpu_allocate(size_t bytes);
int gpu_release(void *address);
/* From now on the process holds what the driver cannot save. */
void gpu_hold_managed_memory(void);

#endif
