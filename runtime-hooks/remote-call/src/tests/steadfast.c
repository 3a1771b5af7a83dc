/* steadfast FILE computes|waits|deep|handles: counts in FILE how often all was as it should be, and
 * how often it was not.
 *
 * computes: all registers keep their values, also those beside the stack pointer, and with them
 * signal mask, alternate stack and process. waits: no call is interrupted. deep: as computes, where
 * the stack is as good as full. handles: as computes, in a handler on an alternate stack. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef __x86_64__
#error "written for x86-64"
#endif

struct state {
    uint64_t general[16]; /* 2 is not used, 7 has flags. */
    uint8_t vectors[32][64];
    double numbers[2];
    uint64_t below[2]; /* the stack pointer */
};
static struct state wanted __attribute__((used, aligned(64)));
static struct state found __attribute__((used, aligned(64)));
static volatile uint64_t *counts;
static char alternate[64 << 10];
static pid_t own;
static uint64_t stack_in_use;

#define GENERAL(DO)                                                                                \
    DO("rax", "0")                                                                                 \
    DO("rbx", "1") DO("rdx", "3") DO("rsi", "4") DO("rdi", "5") DO("rbp", "6") DO("r8", "8")       \
    DO("r9", "9") DO("r10", "10") DO("r11", "11") DO("r12", "12") DO("r13", "13") DO("r14", "14")  \
    DO("r15", "15")
#define LOAD(NAME, I) "movq wanted+8*" I "(%rip), %" NAME "\n"
#define STORE(NAME, I) "movq %" NAME ", found+8*" I "(%rip)\n"

#define LOW(DO, NAME)                                                                              \
    DO(NAME, "0") DO(NAME, "1") DO(NAME, "2") DO(NAME, "3") DO(NAME, "4") DO(NAME, "5")            \
    DO(NAME, "6") DO(NAME, "7") DO(NAME, "8") DO(NAME, "9") DO(NAME, "10") DO(NAME, "11")          \
    DO(NAME, "12") DO(NAME, "13") DO(NAME, "14") DO(NAME, "15")
#define HIGH(DO, NAME)                                                                             \
    DO(NAME, "16") DO(NAME, "17") DO(NAME, "18") DO(NAME, "19") DO(NAME, "20") DO(NAME, "21")      \
    DO(NAME, "22") DO(NAME, "23") DO(NAME, "24") DO(NAME, "25") DO(NAME, "26") DO(NAME, "27")      \
    DO(NAME, "28") DO(NAME, "29") DO(NAME, "30") DO(NAME, "31")
#define LOAD_SHORT(NAME, I) "vmovdqu wanted+128+64*" I "(%rip), %" NAME I "\n"
#define STORE_SHORT(NAME, I) "vmovdqu %" NAME I ", found+128+64*" I "(%rip)\n"
#define LOAD_LONG(NAME, I) "vmovdqu64 wanted+128+64*" I "(%rip), %" NAME I "\n"
#define STORE_LONG(NAME, I) "vmovdqu64 %" NAME I ", found+128+64*" I "(%rip)\n"

#define COMPUTE(NAME, LOAD_VECTORS, STORE_VECTORS)                                                 \
    void NAME(void);                                                                               \
    __asm__(#NAME ":\n"                                                                            \
            "pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"        \
            "fldl wanted+2176(%rip)\n fldl wanted+2184(%rip)\n"                                    \
            "movq wanted+2192(%rip), %rax\n movq %rax, -8(%rsp)\n"                                 \
            "movq wanted+2200(%rip), %rax\n movq %rax, -128(%rsp)\n"                               \
            LOAD_VECTORS GENERAL(LOAD)                                                             \
            "movl $100000, %ecx\n stc\n std\n"                                                     \
            "1: loop 1b\n"                                                                         \
            "leaq -128(%rsp), %rsp\n pushfq\n cld\n"                                               \
            GENERAL(STORE)                                                                         \
            "popq %rax\n andl $0x401, %eax\n movq %rax, found+56(%rip)\n"                          \
            "movq 120(%rsp), %rax\n movq %rax, found+2192(%rip)\n"                                 \
            "movq (%rsp), %rax\n movq %rax, found+2200(%rip)\n"                                    \
            "leaq 128(%rsp), %rsp\n"                                                               \
            STORE_VECTORS                                                                          \
            "vzeroupper\n fstpl found+2184(%rip)\n fstpl found+2176(%rip)\n"                       \
            "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n");

COMPUTE(compute_short, LOW(LOAD_SHORT, "ymm"), LOW(STORE_SHORT, "ymm"))
COMPUTE(compute_long, LOW(LOAD_LONG, "zmm") HIGH(LOAD_LONG, "zmm"),
        LOW(STORE_LONG, "zmm") HIGH(STORE_LONG, "zmm"))

static void count(int is_good) {
    counts[is_good ? 0 : 1]++;
}

static void prepare(void) {
    uint8_t *bytes = (uint8_t *)&wanted;
    for (size_t i = 0; i < sizeof wanted; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 64 + 1);
    wanted.general[2] = 0;
    wanted.general[7] = 0x401; /* direction and carry */
    wanted.numbers[0] = 1.0 / 3;
    wanted.numbers[1] = -7.25;
    if (!__builtin_cpu_supports("avx512f"))
        for (int i = 0; i < 32; i++)
            memset(wanted.vectors[i] + (i < 16 ? 32 : 0), 0, i < 16 ? 32 : 64);
}

static int is_steadfast(void) {
    sigset_t mask, expected;
    stack_t stack;
    memset(&found, 0, sizeof found);
    if (__builtin_cpu_supports("avx512f"))
        compute_long();
    else
        compute_short();
    sigprocmask(SIG_BLOCK, NULL, &mask);
    sigaltstack(NULL, &stack);
    sigemptyset(&expected);
    sigaddset(&expected, SIGUSR2);
    if (stack_in_use)
        sigaddset(&expected, SIGUSR1);
    return !memcmp(&wanted, &found, sizeof wanted) && !memcmp(&mask, &expected, 8) &&
           stack.ss_sp == alternate && stack.ss_size == sizeof alternate &&
           syscall(SYS_getpid) == own && syscall(SYS_gettid) == own;
}

static void compute(void) {
    for (;;)
        count(is_steadfast());
}

static void handled(int signal) {
    (void)signal;
    stack_in_use = 1;
    compute();
}

static void wait_for_all(void) {
    struct timespec time = {.tv_nsec = 20000000};
    sigset_t none;
    uint32_t word = 0;
    sigemptyset(&none);
    for (;;) {
        count(nanosleep(&time, NULL) == 0);
        count(poll(NULL, 0, 20) == 0);
        count(ppoll(NULL, 0, &time, &none) == 0);
        count(syscall(SYS_futex, &word, FUTEX_WAIT, 0, &time, NULL, 0) == -1 && errno == ETIMEDOUT);
    }
}

/* Goes on with the stack pointer right above the end of the mapping that it is in. */
static void go_deep(void) {
    char line[256];
    uintptr_t start = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "[stack]"))
            start = strtoul(line, NULL, 16);
    fclose(maps);
    /* The linker looks for functions only once, and needs more of a stack. */
    count(is_steadfast());
    /* More than what is called needs, less than a frame. */
    __asm__ volatile("movq %0, %%rsp\n xorl %%ebp, %%ebp\n call *%1\n"
                     :
                     : "r"((start + 1536) & ~15ul), "r"(compute)
                     : "memory");
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int file = open(argv[1], O_RDWR);
    counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counts == MAP_FAILED)
        return 1;
    own = getpid();
    prepare();
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    struct sigaction action = {.sa_handler = handled, .sa_flags = SA_ONSTACK};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    if (!strcmp(argv[2], "waits"))
        wait_for_all();
    if (!strcmp(argv[2], "deep"))
        go_deep();
    if (!strcmp(argv[2], "handles"))
        raise(SIGUSR1);
    compute();
}
