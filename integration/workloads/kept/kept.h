/* Objects that a job may hold, and finds again after a restore: each reports what is wrong with it now, or NULL. */
#ifndef STASIS_WORKLOAD_KEPT_H
#define STASIS_WORKLOAD_KEPT_H

#include <stdio.h>
#include <stdlib.h>

/* Ends the program, with the reason, if something is not as it has to be. */
#define MUST(it) ((it) ? (void)0 : (perror(#it), exit(1)))

void shared_begin(void);
const char *shared_wrong(void);
/* A semaphore that keeps its name. */
void semaphore_begin(void);
const char *semaphore_wrong(void);
void volume_begin(void);
const char *volume_wrong(void);
void locks_begin(void);
const char *locks_wrong(void);
void loopback_begin(void);
const char *loopback_wrong(void);
void queue_begin(void);
const char *queue_wrong(void);
const char *nothing_wrong(void);
void connection_begin(void);
void outside_begin(void);
void deleted_begin(void);
void unmapped_begin(void);
void nested_begin(void);
void faults_begin(void);
void watch_begin(void);
void secret_begin(void);
void bpf_begin(void);
void alarm_begin(void);
const char *alarm_wrong(void);
void segment_begin(void);
const char *segment_wrong(void);
void timer_begin(void);
const char *timer_wrong(void);
void threads_begin(void);
const char *threads_wrong(void);

#endif
