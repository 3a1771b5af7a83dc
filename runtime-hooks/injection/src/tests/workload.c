/* workload PIECES [VARIANT]: has PIECES * 2 MiB of "GPU" memory, and does what it reads from its
 * input, one word at a time; answers each with a number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int gpu_begin(size_t), gpu_out(void), gpu_in(void);
size_t gpu_wrong(void);
void *gpu_contents(void);

int main(int argc, char **argv) {
    char word[32];
    const char *variant = argc > 2 ? argv[2] : "";
    if (argc < 2 || gpu_begin(strtoul(argv[1], NULL, 10)))
        return 1;
    if (!strcmp(variant, "twice") && !dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_LAZY))
        return 1;
    puts("0");
    fflush(stdout);
    while (scanf("%31s", word) == 1) {
        unsigned long answer = 0;
        if (!strcmp(word, "out"))
            answer = (unsigned long)gpu_out();
        else if (!strcmp(word, "in"))
            answer = (unsigned long)gpu_in();
        else if (!strcmp(word, "wrong"))
            answer = gpu_wrong();
        else if (!strcmp(word, "contents"))
            answer = (unsigned long)gpu_contents();
        else
            return 2;
        printf("%lu\n", answer);
        fflush(stdout);
    }
    return 0;
}
