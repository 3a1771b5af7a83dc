/*
 * One queue in order for the whole process. Launches return at once, as the real driver's do, so a
 * rank that does not wait for its results is ahead of the others by as much as fits.
 */
#define _GNU_SOURCE
#include "stream.h"
#include "thread.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define DEPTH 64

struct launch {
    const struct kernel *kernel;
    uint64_t arguments[MOST_ARGUMENTS];
};

static struct launch queue[DEPTH];
static uint64_t submitted, done;
static int has_worker;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void *work(void *unused) {
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (done == submitted)
            pthread_cond_wait(&changed, &mutex);
        struct launch *launch = &queue[done % DEPTH];
        pthread_mutex_unlock(&mutex);
        void *arguments[MOST_ARGUMENTS];
        for (int i = 0; i < MOST_ARGUMENTS; i++)
            arguments[i] = &launch->arguments[i];
        launch->kernel->run(arguments);
        pthread_mutex_lock(&mutex);
        done++;
        pthread_cond_broadcast(&changed);
    }
    return unused;
}

static int start_worker(void) {
    int result = start_thread(work);
    has_worker = result == 0;
    return result;
}

int stream_submit(const struct kernel *kernel, void **arguments) {
    pthread_mutex_lock(&mutex);
    int result = has_worker ? 0 : start_worker();
    if (result == 0) {
        while (submitted - done == DEPTH)
            pthread_cond_wait(&changed, &mutex);
        struct launch *launch = &queue[submitted % DEPTH];
        launch->kernel = kernel;
        for (int i = 0; i < MOST_ARGUMENTS && kernel->sizes[i]; i++)
            memcpy(&launch->arguments[i], arguments[i], kernel->sizes[i]);
        submitted++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

void stream_drain(void) {
    pthread_mutex_lock(&mutex);
    while (done < submitted)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

int stream_is_done(void) {
    pthread_mutex_lock(&mutex);
    int is_done = done == submitted;
    pthread_mutex_unlock(&mutex);
    return is_done;
}
