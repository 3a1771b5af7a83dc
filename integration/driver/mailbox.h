/*
 * How the two halves of the stand-in meet.
 *
 * A workload that has called cuInit holds its GPU state behind a *mailbox*: one private page at a fixed address. The
 * engine's half, in another process, reads and writes it through /proc/PID/mem. A thread of the workload, the restore
 * thread, looks into it every 300 us and does the work, so a stopped or frozen workload keeps the caller waiting for
 * ever, and a caller that is killed does not stop the work: both as with the real driver. Private memory and a sleeping
 * thread are all there is to it, so it survives CRIU.
 */
#ifndef STASIS_MAILBOX_H
#define STASIS_MAILBOX_H

#include <stdint.h>

#define MAILBOX_ADDRESS 0x574150000000ULL
#define MAILBOX_MAGIC 0x31786f626c69614dULL /* "Mailbox1" */

enum state { RUNNING, LOCKED, CHECKPOINTED, FAILED };

enum request { LOCK = 1, CHECKPOINT, RESTORE, UNLOCK, TELL_STATE };

/* What the caller found in the list of faults for this request. */
enum fault { NO_FAULT, FAULT_ERROR, FAULT_CRASH, FAULT_BUSY };

struct mailbox {
    uint64_t magic;
    uint32_t state;
    int32_t restore_thread;
    uint64_t device_bytes; /* all that the process holds on the GPU, its context included */
    char tag[32];
    /* Written by the caller; `asked` last. */
    uint32_t request;
    uint32_t timeout_ms;
    uint32_t fault;
    int32_t fault_argument;
    uint32_t delay_ms;
    uint32_t asked;
    /* Written by the restore thread; `answered` last. */
    int32_t result;
    uint32_t answered;
};

/* One GPU, and what its context costs each process. */
#define GPU_UUID "\x57\x41\x53\x49\x53\x00\x40\x00\x80\x00\x00\x00\x00\x00\x00\x01"
#define GPU_UUID_TEXT "GPU-57415349-5300-4000-8000-000000000001"
#define GPU_NAME "stasis stand-in GPU"
#define GPU_MIB 143771ULL
#define CONTEXT_BYTES (64ULL << 20)

#define FAULTS "/run/stasis-standin/faults"

#endif
