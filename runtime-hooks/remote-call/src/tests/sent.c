/*
 * Counts in its last argument, a file: number 0 the waits of a thread that keeps values in all of its registers meanwhile, 1 those
 * after which one was wrong, 2 the times that a thread was sent to `errand`. 3 to 7 are the thread, the code, its board, the top
 * of a stack, the place of a frame.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile uint64_t *numbers;
/* How often the errand was done, and the stack pointer by which to go back. */
static uint64_t board[2];

void errand(void);
__asm__("errand:\n"
        "lock incq (%rdi)\n"
        "pxor %xmm0, %xmm0\n pxor %xmm7, %xmm7\n pxor %xmm15, %xmm15\n"
        "xor %ebx, %ebx\n xor %ebp, %ebp\n xor %r12, %r12\n xor %r15, %r15\n"
        "push %rbx\n pop %rbx\n"
        "mov 8(%rdi), %rsp\n"
        "mov $15, %eax\n syscall\n ud2\n");

/* poll(NULL, 0, 5), with values in registers that the kernel keeps: whether they are there afterwards. */
static int waits_well(void) {
    uint64_t seen[6] = {0};
    long result;
    __asm__ volatile("mov $0x1111, %%r12\n mov $0x2222, %%r15\n mov $0x3333, %%rbx\n"
                     "movq %%r12, %%xmm0\n movq %%r15, %%xmm7\n movq %%rbx, %%xmm15\n"
                     "mov $7, %%eax\n xor %%edi, %%edi\n xor %%esi, %%esi\n mov $5, %%edx\n syscall\n"
                     "mov %%rax, %0\n"
                     "mov %%r12, 0(%1)\n mov %%r15, 8(%1)\n mov %%rbx, 16(%1)\n"
                     "movq %%xmm0, 24(%1)\n movq %%xmm7, 32(%1)\n movq %%xmm15, 40(%1)\n"
                     : "=&r"(result)
                     : "r"(seen)
                     : "rax", "rbx", "rcx", "rdx", "rdi", "rsi", "r11", "r12", "r15", "xmm0", "xmm7", "xmm15", "memory");
    static const uint64_t wanted[6] = {0x1111, 0x2222, 0x3333, 0x1111, 0x2222, 0x3333};
    return result == 0 && memcmp(seen, wanted, sizeof seen) == 0;
}

static void *wait_on(void *unused) {
    numbers[3] = (uint64_t)syscall(SYS_gettid);
    for (;;) {
        if (!waits_well())
            numbers[1]++;
        numbers[2] = board[0];
        numbers[0]++;
    }
    return unused;
}

int main(int argc, char **argv) {
    int file = open(argv[argc - 1], O_RDWR);
    numbers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    char *area = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    numbers[4] = (uint64_t)errand;
    numbers[5] = (uint64_t)board;
    numbers[6] = (uint64_t)(area + (1 << 17));
    numbers[7] = (uint64_t)(area + (1 << 17));
    pthread_t thread;
    pthread_create(&thread, NULL, wait_on, NULL);
    pthread_join(thread, NULL);
}
