/*
 * grab: takes what is not its own. Once there is a file /grab it keeps whatever others have open that is named as a pack, as a place and for reading. Once
 * there is a file /write it opens for writing what it finds and what it has kept, and writes. /grabbed says how many it has kept, how often it has tried to
 * write, and how often it has written: "KEPT TRIED WRITTEN".
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 16
/* Where contents are. */
#define PLACE ((2 << 20) + 8192)

static int kept[MOST];
static unsigned count, tried, written;

static void say(void) {
    static char last[64];
    char text[64];
    snprintf(text, sizeof text, "%u %u %u\n", count, tried, written);
    if (!strcmp(text, last))
        return;
    int file = open("/grabbed.new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || write(file, text, strlen(text)) < 0 || close(file) || rename("/grabbed.new", "/grabbed"))
        exit(70);
    strcpy(last, text);
}

static void write_to(const char *path) {
    tried++;
    int file = open(path, O_RDWR);
    if (file < 0)
        return;
    written += pwrite(file, "grabbed", 7, PLACE) == 7;
    close(file);
}

static void keep(const char *path, int may_write) {
    static const int HOW[] = {O_PATH, O_RDONLY};
    for (unsigned i = 0; i < 2 && count < MOST; i++) {
        int file = open(path, HOW[i]);
        if (file >= 0)
            kept[count++] = file;
    }
    if (may_write)
        write_to(path);
}

static void look_into(const char *process, int may_write) {
    char path[300], target[300];
    snprintf(path, sizeof path, "/proc/%s/fd", process);
    DIR *files = opendir(path);
    for (struct dirent *entry; files && (entry = readdir(files));) {
        ssize_t length = readlinkat(dirfd(files), entry->d_name, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        snprintf(path, sizeof path, "/proc/%s/fd/%s", process, entry->d_name);
        if (strstr(target, "/stasis-memory-"))
            keep(path, may_write);
    }
    if (files)
        closedir(files);
}

static void look(int may_write) {
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));)
        if (atoi(entry->d_name) > 0 && atoi(entry->d_name) != getpid())
            look_into(entry->d_name, may_write);
    if (processes)
        closedir(processes);
    for (unsigned i = 0; may_write && i < count; i++) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", kept[i]);
        write_to(path);
    }
    say();
}

int main(void) {
    for (;;)
        if (access("/grab", F_OK))
            usleep(1000);
        else
            look(!access("/write", F_OK));
}
