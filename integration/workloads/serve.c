#define _GNU_SOURCE
#include "serve.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t pattern_word(uint64_t index, uint64_t seed) {
    uint64_t x = (index + seed) * 0x9E3779B97F4A7C15ULL;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93ULL;
    return x ^ (x >> 32);
}

/* The first process of a container ignores signals that it has no handler for. */
static void end(int signal) {
    (void)signal;
    _exit(0);
}

/* Serves without sockets, and with no file open in between: the answer is in a file, whole at any time. */
static void serve_file(void (*answer)(char *text, size_t room)) {
    for (;;) {
        char text[256] = "";
        answer(text, sizeof text);
        FILE *file = fopen("answer.new", "w");
        if (!file || fputs(text, file) < 0 || fclose(file) || rename("answer.new", "answer")) {
            perror("cannot answer");
            exit(1);
        }
        usleep(20000);
    }
}

void serve(int port, void (*answer)(char *text, size_t room)) {
    signal(SIGTERM, end);
    signal(SIGINT, end);
    if (port == 0)
        serve_file(answer);
    int server = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (server < 0 || bind(server, (struct sockaddr *)&address, sizeof address)) {
        perror("cannot listen");
        exit(1);
    }
    for (;;) {
        char question[64], text[256] = "";
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        if (recvfrom(server, question, sizeof question, 0, (struct sockaddr *)&peer, &length) < 0)
            continue;
        answer(text, sizeof text);
        sendto(server, text, strlen(text), 0, (struct sockaddr *)&peer, length);
    }
}

long argument(int argc, char **argv, int index, long otherwise) {
    return index < argc ? strtol(argv[index], NULL, 10) : otherwise;
}
