/* A file in a volume, which no process has open. */
#include "../serve.h"
#include "kept.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void volume_begin(void) {
    int file = open("/data/note", O_WRONLY | O_CREAT, 0600);
    MUST(file >= 0 && write(file, "kept", 4) == 4 && !close(file));
}

const char *volume_wrong(void) {
    char text[5] = "";
    int file = open("/data/note", O_RDONLY);
    int there = file >= 0 && read(file, text, 4) == 4 && !strcmp(text, "kept");
    close(file);
    return there ? NULL : "volume";
}
