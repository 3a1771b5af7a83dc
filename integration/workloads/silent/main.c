/*
 * silent DIRECTORY LIBRARY: a file system at DIRECTORY (FUSE) with one file, libcuda.so.2, that has
 * the contents of LIBRARY. While this program is stopped, the file system does not answer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NAME "libcuda.so.2"
#define ROOT 1
#define FILE_NODE 2
#define FOR_EVER 1000000
#define MOST (1 << 20)

static int device, library;
static off_t length;

static void reply(const struct fuse_in_header *to, int error, const void *data, size_t bytes) {
    struct fuse_out_header header = {
        .len = (uint32_t)(sizeof header + bytes), .error = -error, .unique = to->unique};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)data, bytes}};
    /* The caller may have been interrupted. */
    if (writev(device, parts, 2) < 0 && errno != ENOENT)
        exit(1);
}

static struct fuse_attr attributes(uint64_t node) {
    int is_root = node == ROOT;
    return (struct fuse_attr){.ino = node,
                              .mode = is_root ? S_IFDIR | 0755 : S_IFREG | 0644,
                              .size = is_root ? 0 : (uint64_t)length,
                              .nlink = 1,
                              .blksize = 4096};
}

static void look_up(const struct fuse_in_header *in, const char *name) {
    struct fuse_entry_out entry = {.nodeid = FILE_NODE,
                                   .entry_valid = FOR_EVER,
                                   .attr_valid = FOR_EVER,
                                   .attr = attributes(FILE_NODE)};
    if (strcmp(name, NAME))
        reply(in, ENOENT, NULL, 0);
    else
        reply(in, 0, &entry, sizeof entry);
}

static void read_file(const struct fuse_in_header *in, const struct fuse_read_in *wanted) {
    static char bytes[MOST];
    size_t size = wanted->size < MOST ? wanted->size : MOST;
    ssize_t got = pread(library, bytes, size, (off_t)wanted->offset);
    if (got < 0)
        reply(in, EIO, NULL, 0);
    else
        reply(in, 0, bytes, (size_t)got);
}

static void answer(const struct fuse_in_header *in, const void *argument) {
    struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
                                 .minor = 31,
                                 .max_readahead = 128 << 10,
                                 .max_write = 64 << 10};
    struct fuse_attr_out attr = {.attr_valid = FOR_EVER, .attr = attributes(in->nodeid)};
    struct fuse_open_out opened = {.fh = in->nodeid};
    struct fuse_statfs_out statfs = {.st = {.bsize = 4096, .namelen = 255}};
    switch (in->opcode) {
    case FUSE_INIT:
        return reply(in, 0, &init, FUSE_COMPAT_22_INIT_OUT_SIZE + 40);
    case FUSE_LOOKUP:
        return look_up(in, argument);
    case FUSE_GETATTR:
        return reply(in, 0, &attr, sizeof attr);
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        return reply(in, 0, &opened, sizeof opened);
    case FUSE_READ:
        return read_file(in, argument);
    case FUSE_STATFS:
        return reply(in, 0, &statfs, sizeof statfs);
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
    case FUSE_READDIR:
        return reply(in, 0, NULL, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    default:
        reply(in, ENOSYS, NULL, 0);
    }
}

int main(int argc, char **argv) {
    static char request[MOST + 4096];
    char options[128];
    struct stat found;
    if (argc != 3)
        return 64;
    device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    library = open(argv[2], O_RDONLY | O_CLOEXEC);
    if (device < 0 || library < 0 || fstat(library, &found)) {
        perror("/dev/fuse or the library");
        return 77;
    }
    length = found.st_size;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (mount("silent", argv[1], "fuse", MS_NOSUID | MS_NODEV, options)) {
        perror("mounting it");
        return 77;
    }
    for (;;) {
        ssize_t got = read(device, request, sizeof request);
        if (got >= (ssize_t)sizeof(struct fuse_in_header))
            answer((struct fuse_in_header *)request, request + sizeof(struct fuse_in_header));
        else if (got < 0 && errno == ENODEV)
            return 0;
    }
}
