/* Threads of the driver in a workload. */
#ifndef STASIS_THREAD_H
#define STASIS_THREAD_H

#include "result.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Starts a thread that takes no signals: the workload's are for its own threads. A CUresult. */
static inline int start_thread(void *(*run)(void *)) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? OPERATING_SYSTEM : 0;
}

#endif
