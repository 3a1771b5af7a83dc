/* The workload's half: its devices, and the gate that its calls go through. */
#ifndef STASIS_GPU_H
#define STASIS_GPU_H

#include <stddef.h>

/* Makes the mailbox, the restore thread and the references to the devices; a CUresult. */
int gpu_start(void);
/* Every CUDA call goes in and out here; going in waits while the process is locked, but on the restore thread. */
int gpu_enter(void);
void gpu_leave(void);
/* How many devices the process sees; 0 before cuInit. */
unsigned gpu_devices(void);
/* The GPU of the machine that a device was when the process began. */
unsigned gpu_first(unsigned device);
/* The GPU of the machine that a device is now, and the device that one is; -1 if the process does not see it. */
unsigned gpu_now(unsigned device);
int gpu_device_on(unsigned gpu);
/* Counts bytes that the process holds on a device from now on, or no longer holds. */
void gpu_count(unsigned device, long long bytes);
/* Counts that peer access of a context to another one was enabled (1) or disabled (-1). */
void gpu_count_peer_access(int change);
/* Notes that the process holds managed memory from now on, which the driver cannot save. */
void gpu_hold_managed_memory(size_t bytes);

#endif
