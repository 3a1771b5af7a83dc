/* Threads with much on their stacks; one of them under a seccomp filter. */
#define _GNU_SOURCE
#include "heaps.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 3

static struct stack {
    const char *kind;
    size_t bytes;
    sem_t ask, done;
    struct report report;
} stacks[THREADS] = {{.kind = "stack"}, {.kind = "second-stack"}, {.kind = "filtered-stack"}};

#define FORBID(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

void filter_calls(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        FORBID(SYS_madvise),
        FORBID(SYS_process_madvise),
        FORBID(SYS_userfaultfd),
        FORBID(SYS_mlock),
        FORBID(SYS_munlock),
        FORBID(SYS_mremap),
        FORBID(SYS_munmap),
        FORBID(SYS_process_vm_readv),
        FORBID(SYS_process_vm_writev),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof rules[0], rules};
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    must(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), "seccomp");
}

static void wait_for(sem_t *semaphore) {
    /* A checkpoint interrupts it. */
    while (sem_wait(semaphore))
        must(errno == EINTR, "sem_wait");
}

static void *run(void *argument) {
    struct stack *stack = argument;
    unsigned char room[stack->bytes + sizeof(uint64_t)];
    unsigned char *start = room + (sizeof(uint64_t) - (uintptr_t)room % sizeof(uint64_t)) % sizeof(uint64_t);
    struct area area = {stack->kind, start, stack->bytes, RANDOM, (uintptr_t)stack->kind[0] * 0x1010101010101ULL, PROT_READ | PROT_WRITE, 0, ""};
    fill(&area);
    flags_of(start, area.flags, sizeof area.flags);
    if (!strcmp(stack->kind, "filtered-stack"))
        filter_calls();
    for (;;) {
        sem_post(&stack->done);
        wait_for(&stack->ask);
        stack->report = (struct report){0};
        check_area(&area, &stack->report);
    }
    return NULL;
}

void threads_start(size_t bytes) {
    if (!wanted("stacks"))
        return;
    /* All threads have to have the same, and a filter wants it. */
    must(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
    pthread_attr_t attributes;
    must(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, bytes + (1 << 20)), "stack size");
    for (struct stack *stack = stacks; stack < stacks + THREADS; stack++) {
        pthread_t thread;
        stack->bytes = bytes;
        must(!sem_init(&stack->ask, 0, 0) && !sem_init(&stack->done, 0, 0), "semaphore");
        must(!pthread_create(&thread, &attributes, run, stack), "pthread_create");
        wait_for(&stack->done);
    }
}

void threads_check(struct report *report) {
    for (struct stack *stack = stacks; stack < stacks + THREADS && stack->bytes; stack++) {
        sem_post(&stack->ask);
        wait_for(&stack->done);
        report->kinds += stack->report.kinds;
        report->bytes += stack->report.bytes;
        report->checksum ^= stack->report.checksum;
        if (!report->bad[0])
            strcpy(report->bad, stack->report.bad);
    }
}
