/* A crowd of gatekeepers by libzmq: COUNT accounting messages to ENDPOINT, at most RATE a second (0: as fast as it goes), of
 * IDENTIFIERS clients in turn. An XPUB is a PUB that knows when somebody has subscribed. Nothing is dropped here: what does not
 * arrive was lost elsewhere. The declarations are those of zmq.h, so that the library alone is needed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern void *zmq_ctx_new(void);
extern int zmq_ctx_term(void *);
extern void *zmq_socket(void *, int);
extern int zmq_setsockopt(void *, int, const void *, size_t);
extern int zmq_connect(void *, const char *);
extern int zmq_send(void *, const void *, size_t, int);
extern int zmq_recv(void *, void *, size_t, int);
extern int zmq_close(void *);
enum { ZMQ_XPUB = 9, ZMQ_LINGER = 17, ZMQ_SNDHWM = 23, ZMQ_SNDMORE = 2 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    long count = atol(argv[2]), rate = atol(argv[3]), identifiers = atol(argv[4]);
    void *context = zmq_ctx_new(), *socket = zmq_socket(context, ZMQ_XPUB);
    int all = 0, for_ever = -1;
    zmq_setsockopt(socket, ZMQ_SNDHWM, &all, sizeof all);
    zmq_setsockopt(socket, ZMQ_LINGER, &for_ever, sizeof for_ever);
    if (zmq_connect(socket, argv[1])) return 1;
    char subscription[8], identifier[32], received[32];
    if (zmq_recv(socket, subscription, sizeof subscription, 0) < 1) return 1;
    double started = now();
    size_t digits = 0;
    for (long sent = 0; sent < count; sent++) {
        if (sent % 100 == 0) {
            double due = rate ? started + (double)sent / rate : 0;
            while (now() < due) nanosleep(&(struct timespec){0, 200000}, NULL);
            struct timespec time;
            clock_gettime(CLOCK_REALTIME, &time);
            digits = snprintf(received, sizeof received, "%ld", time.tv_sec * 1000 + time.tv_nsec / 1000000);
        }
        size_t size = snprintf(identifier, sizeof identifier, "10.%ld", sent % identifiers);
        zmq_send(socket, "web", 4, ZMQ_SNDMORE);
        zmq_send(socket, "ACCEPTED", 8, ZMQ_SNDMORE);
        zmq_send(socket, identifier, size, ZMQ_SNDMORE);
        zmq_send(socket, received, digits, ZMQ_SNDMORE);
        zmq_send(socket, "", 0, ZMQ_SNDMORE);
        if (zmq_send(socket, "", 0, 0) < 0) return 1;
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    printf("%f\n", now() - started);
    return 0;
}
