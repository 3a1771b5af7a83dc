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

/* The order that the caller found in the list of faults for this request. */
enum fault { NO_FAULT, FAULT_ERROR, FAULT_CRASH, FAULT_BUSY, FAULT_SLOWNESS };

/* The most GPUs of a machine. */
#define GPUS 4

struct mailbox {
    uint64_t magic;
    uint32_t state;
    int32_t restore_thread;
    /* The GPUs that the driver has recorded for the process: how many, and which of the machine's each one is now. */
    uint32_t gpus;
    uint8_t gpu[GPUS];
    uint64_t bytes[GPUS]; /* all that the process holds there, its context included */
    char tag[32];
    /* Written by the caller; `asked` last. */
    uint32_t request;
    uint32_t timeout_ms;
    uint32_t fault;
    int32_t fault_argument;
    uint32_t delay_ms;
    uint8_t target[GPUS]; /* what each GPU becomes in a restore */
    uint32_t asked;
    /* Written by the restore thread; `answered` last. */
    int32_t result;
    uint32_t answered;
    /* Written by the caller while the request is under way: the copying waits in the middle as long
       as it is set. It is the last: the others are where processes of earlier images have them. */
    uint32_t is_held_halfway;
};

/* The UUID of GPU 0, and the place of the byte in which those of others differ; what a context costs on each GPU. */
#define GPU_UUID "\x57\x41\x53\x49\x53\x00\x40\x00\x80\x00\x00\x00\x00\x00\x00\x01"
#define GPU_UUID_TEXT "GPU-57415349-5300-4000-8000-00000000000%u"
#define UUID_BYTES 16
#define CONTEXT_BYTES (64ULL << 20)

#define STANDIN "/run/stasis-standin"
#define FAULTS STANDIN "/faults"

#endif
