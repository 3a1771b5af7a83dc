/* Attributes that the kernel keeps of a thread and CRIU does not: all are set of a second thread and of a child, none of the first thread. */
#define _GNU_SOURCE
#include "kept.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THIS_THREAD = 1, CLASS_SHIFT = 13, BEST_EFFORT = 2, IDLE = 3 };
enum { OK, CPUS, IO_PRIORITY, TIMER_SLACK, SCORE };
static const char *const names[] = {"ok", "CPUs", "I/O priority", "timer slack", "oom_score_adj"};

struct facts {
    cpu_set_t cpus;
    long io_priority, timer_slack;
    int score;
};

static struct facts found(void) {
    struct facts now = {.io_priority = syscall(SYS_ioprio_get, THIS_THREAD, 0), .timer_slack = prctl(PR_GET_TIMERSLACK)};
    MUST(!sched_getaffinity(0, sizeof now.cpus, &now.cpus));
    FILE *score = fopen("/proc/self/oom_score_adj", "r");
    MUST(score && fscanf(score, "%d", &now.score) == 1);
    fclose(score);
    return now;
}

static char wrong(const struct facts *before) {
    struct facts now = found();
    if (!CPU_EQUAL(&now.cpus, &before->cpus))
        return CPUS;
    if (now.io_priority != before->io_priority)
        return IO_PRIORITY;
    if (now.timer_slack != before->timer_slack)
        return TIMER_SLACK;
    return now.score == before->score ? OK : SCORE;
}

static struct facts of_first;
static struct other {
    const char *name;
    long io_priority, timer_slack;
    int score, questions[2], answers[2];
} others[] = {
    {.name = "thread", .io_priority = BEST_EFFORT << CLASS_SHIFT | 6, .timer_slack = 123456},
    {.name = "child", .io_priority = IDLE << CLASS_SHIFT, .timer_slack = 7654321, .score = 700},
};

/* Takes the last CPU of those allowed. */
static void take_one_cpu(void) {
    cpu_set_t one = of_first.cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) > 1; cpu++)
        CPU_CLR(cpu, &one);
    MUST(!sched_setaffinity(0, sizeof one, &one));
}

static void *answer_as(void *who) {
    struct other *self = who;
    take_one_cpu();
    MUST(!syscall(SYS_ioprio_set, THIS_THREAD, 0, self->io_priority));
    MUST(!prctl(PR_SET_TIMERSLACK, self->timer_slack));
    if (self->score) {
        FILE *score = fopen("/proc/self/oom_score_adj", "w");
        MUST(score && fprintf(score, "%d", self->score) > 0 && !fclose(score));
    }
    struct facts before = found();
    char question = 0;
    do {
        char answer = wrong(&before);
        MUST(write(self->answers[1], &answer, 1) == 1);
    } while (read(self->questions[0], &question, 1) == 1);
    return NULL;
}

static char answer_of(struct other *other) {
    char answer;
    MUST(read(other->answers[0], &answer, 1) == 1);
    return answer;
}

void threads_begin(void) {
    of_first = found();
    for (struct other *other = others; other < others + 2; other++)
        MUST(!pipe(other->questions) && !pipe(other->answers));
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        answer_as(&others[1]);
        _exit(0);
    }
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, answer_as, &others[0]));
    for (struct other *other = others; other < others + 2; other++)
        MUST(answer_of(other) == OK);
}

const char *threads_wrong(void) {
    static char text[64];
    int kind = wrong(&of_first);
    const char *who = "first thread";
    for (struct other *other = others; !kind && other < others + 2; other++) {
        MUST(write(other->questions[1], "?", 1) == 1);
        kind = answer_of(other);
        who = other->name;
    }
    snprintf(text, sizeof text, "%s of the %s", names[kind], who);
    return kind ? text : NULL;
}
