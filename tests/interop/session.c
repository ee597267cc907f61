/* Run a scenario with the C client (libnats): session <url> <scenario>. Print the outcome in one line; exit with 1 on an error. */

#include <nats/nats.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT 30000 /* milliseconds; longer than any step takes */
#define MANY 100000
#define SOME 1000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int closed, slow, handled, in_order, answered;

static void check(natsStatus status, const char *what) {
    if (status != NATS_OK) {
        fprintf(stderr, "%s: %s\n", what, natsStatus_GetText(status));
        nats_PrintLastErrorStack(stderr);
        exit(1);
    }
}

#define CHECK(call) check((call), #call)

/* Add one to a number that the main thread waits for. */
static void count(int *number) {
    pthread_mutex_lock(&lock);
    ++*number;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for(int *number, int at_least) {
    pthread_mutex_lock(&lock);
    while (*number < at_least)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static void on_closed(natsConnection *nc, void *closure) {
    (void) nc, (void) closure;
    count(&closed);
}

static void on_error(natsConnection *nc, natsSubscription *sub, natsStatus status, void *closure) {
    (void) nc, (void) sub, (void) closure;
    if (status == NATS_SLOW_CONSUMER)
        count(&slow);
}

static void on_message(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *closure) {
    (void) nc, (void) sub, (void) closure;
    in_order += atoi(natsMsg_GetData(msg)) == handled;
    count(&handled);
    natsMsg_Destroy(msg);
}

static void on_request(natsConnection *nc, natsSubscription *sub, natsMsg *msg, void *closure) {
    (void) sub, (void) closure;
    char text[64];
    snprintf(text, sizeof text, "re: %.*s", natsMsg_GetDataLength(msg), natsMsg_GetData(msg));
    CHECK(natsConnection_PublishString(nc, natsMsg_GetReply(msg), text));
    natsMsg_Destroy(msg);
    count(&answered);
}

static void publish_numbers(natsConnection *nc, const char *subject, int number) {
    char text[16];
    for (int i = 0; i < number; i++) {
        snprintf(text, sizeof text, "%d", i);
        CHECK(natsConnection_PublishString(nc, subject, text));
    }
    CHECK(natsConnection_FlushTimeout(nc, WAIT));
}

/* Read messages that hold 0, 1, 2, ...; return how many were in that order. */
static int read_numbers(natsSubscription *sub, int number) {
    int right = 0;
    for (int i = 0; i < number; i++) {
        natsMsg *msg;
        CHECK(natsSubscription_NextMsg(&msg, sub, WAIT));
        right += atoi(natsMsg_GetData(msg)) == i;
        natsMsg_Destroy(msg);
    }
    return right;
}

static void pubsub(natsConnection *a, natsConnection *b, const char *subject) {
    natsSubscription *sub;
    CHECK(natsConnection_SubscribeSync(&sub, a, subject));
    CHECK(natsSubscription_SetPendingLimits(sub, -1, -1));
    CHECK(natsConnection_FlushTimeout(a, WAIT));
    publish_numbers(b, subject, MANY);
    printf("%d\n", read_numbers(sub, MANY));
    natsSubscription_Destroy(sub);
}

static void request(natsConnection *a, natsConnection *b, const char *subject) {
    natsSubscription *sub;
    natsMsg *answer;
    int right = 0;
    CHECK(natsConnection_Subscribe(&sub, b, subject, on_request, NULL));
    CHECK(natsConnection_FlushTimeout(b, WAIT));
    for (int i = 0; i < SOME; i++) {
        char text[16], expected[32];
        snprintf(text, sizeof text, "%d", i);
        snprintf(expected, sizeof expected, "re: %d", i);
        CHECK(natsConnection_RequestString(&answer, a, subject, text, WAIT));
        right += strcmp(natsMsg_GetData(answer), expected) == 0;
        natsMsg_Destroy(answer);
    }
    natsSubscription_Destroy(sub);
    CHECK(natsConnection_FlushTimeout(b, WAIT));
    natsStatus status = natsConnection_RequestString(&answer, a, subject, "anyone?", WAIT);
    printf("%d %d %d\n", right, answered, status == NATS_NO_RESPONDERS);
}

static void queue(natsConnection *a, natsConnection *b, const char *subject) {
    natsSubscription *members[4];
    int total = 0, idle = 0;
    for (int i = 0; i < 4; i++)
        CHECK(natsConnection_QueueSubscribeSync(&members[i], i % 2 ? a : b, subject, "workers"));
    CHECK(natsConnection_FlushTimeout(a, WAIT));
    CHECK(natsConnection_FlushTimeout(b, WAIT));
    publish_numbers(a, subject, SOME);
    CHECK(natsConnection_FlushTimeout(b, WAIT));
    for (int i = 0; i < 4; i++) {
        int pending;
        CHECK(natsSubscription_GetPending(members[i], &pending, NULL));
        total += pending;
        idle += pending == 0;
        natsSubscription_Destroy(members[i]);
    }
    printf("%d %d\n", total, idle);
}

static void headers(natsConnection *a, natsConnection *b, const char *subject) {
    natsSubscription *sub;
    natsMsg *msg;
    const char *one, *other, **values;
    int number;
    CHECK(natsConnection_SubscribeSync(&sub, a, subject));
    CHECK(natsConnection_FlushTimeout(a, WAIT));
    CHECK(natsMsg_Create(&msg, subject, NULL, "payload", 7));
    CHECK(natsMsgHeader_Add(msg, "Key", "one"));
    CHECK(natsMsgHeader_Add(msg, "Key", "two"));
    CHECK(natsMsgHeader_Set(msg, "Other", "value: with colon"));
    CHECK(natsConnection_PublishMsg(b, msg));
    natsMsg_Destroy(msg);
    CHECK(natsConnection_FlushTimeout(b, WAIT));
    CHECK(natsSubscription_NextMsg(&msg, sub, WAIT));
    CHECK(natsMsgHeader_Get(msg, "Key", &one));
    CHECK(natsMsgHeader_Get(msg, "Other", &other));
    CHECK(natsMsgHeader_Values(msg, "Key", &values, &number));
    printf("%s|%d|%s|%s|%s\n", natsMsg_GetData(msg), number, values[0], values[1], other);
    free(values);
    natsMsg_Destroy(msg);
    natsSubscription_Destroy(sub);
}

static void drain(natsConnection *a, natsConnection *b, const char *subject) {
    natsSubscription *sub;
    CHECK(natsConnection_Subscribe(&sub, b, subject, on_message, NULL));
    CHECK(natsConnection_FlushTimeout(b, WAIT));
    publish_numbers(a, subject, SOME);
    CHECK(natsConnection_FlushTimeout(b, WAIT));
    CHECK(natsConnection_DrainTimeout(b, WAIT));
    wait_for(&closed, 1);
    printf("%d %d\n", handled, in_order);
    natsSubscription_Destroy(sub);
}

/* Over its own limit of pending messages the client drops messages and calls the error callback; no connection closes. */
static void slow_consumer(natsConnection *a, natsConnection *b, const char *subject) {
    natsSubscription *sub;
    int64_t dropped;
    CHECK(natsConnection_SubscribeSync(&sub, a, subject));
    CHECK(natsSubscription_SetPendingLimits(sub, 10, -1));
    CHECK(natsConnection_FlushTimeout(a, WAIT));
    publish_numbers(b, subject, SOME);
    CHECK(natsConnection_FlushTimeout(a, WAIT));
    wait_for(&slow, 1);
    CHECK(natsSubscription_GetDropped(sub, &dropped));
    printf("%d %d\n", (int) dropped, natsConnection_IsClosed(a));
    natsSubscription_Destroy(sub);
}

static const struct {
    const char *name;
    void (*run)(natsConnection *a, natsConnection *b, const char *subject);
} scenarios[] = {{"pubsub", pubsub}, {"request", request}, {"queue", queue},
                 {"headers", headers}, {"drain", drain}, {"slow", slow_consumer}};

int main(int argc, char **argv) {
    natsOptions *options;
    natsConnection *a, *b;
    natsInbox *subject;
    if (argc != 3) {
        fprintf(stderr, "usage: session <url> <scenario>\n");
        return 1;
    }
    CHECK(natsOptions_Create(&options));
    CHECK(natsOptions_SetURL(options, argv[1]));
    CHECK(natsOptions_SetClosedCB(options, on_closed, NULL));
    CHECK(natsOptions_SetErrorHandler(options, on_error, NULL));
    CHECK(natsConnection_Connect(&a, options));
    CHECK(natsConnection_Connect(&b, options));
    CHECK(natsInbox_Create(&subject));
    int known = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(scenarios[i].name, argv[2]) == 0) {
            scenarios[i].run(a, b, subject);
            known = 1;
        }
    natsInbox_Destroy(subject);
    natsConnection_Destroy(a);
    natsConnection_Destroy(b);
    natsOptions_Destroy(options);
    nats_CloseAndWait(WAIT);
    return known ? 0 : 1;
}
