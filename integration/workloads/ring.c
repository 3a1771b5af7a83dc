/*
 * ring PROGRAM [ARGUMENT...]: sets up an io_uring ring and becomes PROGRAM, with the ring still open. Ends with 77 where the
 * kernel has none.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    unsigned char parameters[120]; /* struct io_uring_params */
    memset(parameters, 0, sizeof parameters);
    int ring = (int)syscall(SYS_io_uring_setup, 4, parameters);
    if (ring < 0) {
        perror("io_uring_setup");
        return 77;
    }
    if (argc < 2 || fcntl(ring, F_SETFD, 0))
        return 1;
    execv(argv[1], argv + 1);
    perror(argv[1]);
    return 1;
}
