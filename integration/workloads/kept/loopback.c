/* A server on 127.0.0.1 and its client, which connects anew each time. */
#include "kept.h"

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int server;
static struct sockaddr_in address = {.sin_family = AF_INET};

void loopback_begin(void) {
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(10099);
    server = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    MUST(server >= 0 && !setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
    MUST(!bind(server, (struct sockaddr *)&address, sizeof address) && !listen(server, 1));
}

const char *loopback_wrong(void) {
    int client = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(client, (struct sockaddr *)&address, sizeof address)) {
        close(client);
        return "cannot connect";
    }
    int peer = accept(server, NULL, NULL);
    char text[2] = "";
    int came = peer >= 0 && write(client, "x", 1) == 1 && read(peer, text, 1) == 1 && text[0] == 'x';
    struct linger at_once = {.l_onoff = 1};
    setsockopt(client, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(client);
    close(peer);
    return came ? NULL : "nothing came";
}
