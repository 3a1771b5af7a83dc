/* sequence FILE: in a restartable sequence (rseq(2), registered by the C library) reads
 * FILE's second number twice, with some time between. The kernel begins the sequence again whenever
 * the thread was interrupted in it, so both are the same if the number changes only while the
 * thread is stopped. Counts sequences in the first number, and those with two values in the third.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/rseq.h>

#ifndef __x86_64__
#error "written for x86-64"
#endif

int main(int argc, char **argv) {
    if (argc != 2 || __rseq_size == 0)
        return 2;
    int file = open(argv[1], O_RDWR);
    uint64_t *counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (counts == MAP_FAILED)
        return 1;
    struct rseq *area = (void *)((char *)__builtin_thread_pointer() + __rseq_offset);
    for (;;) {
        __asm__ volatile(
            ".pushsection __rseq_cs, \"aw\"\n"
            ".balign 32\n"
            "1: .long 0, 0\n"
            ".quad 2f, 4f - 2f, 5f\n"
            ".popsection\n"
            "6: leaq 1b(%%rip), %%rax\n"
            "movq %%rax, 8(%[area])\n"
            "2: movq 8(%[counts]), %%rax\n"
            "movl $200000, %%ecx\n"
            "3: decl %%ecx\n"
            "jnz 3b\n"
            "cmpq %%rax, 8(%[counts])\n"
            "je 4f\n"
            "incq 16(%[counts])\n"
            "4: jmp 7f\n"
            ".byte 0x0f, 0xb9, 0x3d\n"
            ".long 0x53053053\n"
            "5: jmp 6b\n"
            "7: incq (%[counts])\n"
            :
            : [area] "r"(area), [counts] "r"(counts)
            : "rax", "rcx", "memory", "cc");
    }
}
