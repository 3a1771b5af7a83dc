/* Submitted work: kernels run one after the other, beside the thread that launched them. */
#ifndef STASIS_STREAM_H
#define STASIS_STREAM_H

#define MOST_ARGUMENTS 4

/* A kernel, and the bytes of each of its arguments; 0 after the last. */
struct kernel {
    const char *name;
    void (*run)(void **arguments);
    unsigned char sizes[MOST_ARGUMENTS];
};

/* Launches a kernel; waits only while as much is submitted as the queue takes. A CUresult. */
int stream_submit(const struct kernel *kernel, void **arguments);
/* Waits until all that was submitted is done. */
void stream_drain(void);
/* Whether all that was submitted is done. */
int stream_is_done(void);

#endif
