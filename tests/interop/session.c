/* What a C client (libnats) does: session <url> <scenario>. Prints the outcome in one line, exits with 1 on an error. */

#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT 30000 /* milliseconds that nothing should take */

static void check(natsStatus status, const char *what) {
    if (status != NATS_OK) {
        fprintf(stderr, "%s: %s\n", what, natsStatus_GetText(status));
        nats_PrintLastErrorStack(stderr);
        exit(1);
    }
}

#define CHECK(call) check((call), #call)

/* Numbers received by a callback, and by how many, in order or not. */
typedef struct {
    natsMutexless *unused;
    int count, in_order, last;
} counter;

static void count_message(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *closure) {
    (void) nc;
    (void) sub;
    counter *seen = closure;
    int number = atoi(natsMsg_GetData(msg));
    seen->in_order += number == seen->last + 1;
    seen->last = number;
    seen->count++;
    natsMsg_Destroy(msg);
}
