/* Preloaded into a server: fails one call of malloc, or of the system, that the modules under test make.
 *
 * The test shares `struct control` with it (the file that GNATS_FAILING names). While a call is wanted, the first one
 * that comes along a way it has not failed on before fails, and nothing after it. A way is the addresses of the callers
 * within those modules; one that leads through a module that GNATS_FAILING_EXEMPT names does not count.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { MEMORY = 1, EPOLL_CTL, TIMERFD_SETTIME, SENDMSG, RECV };
enum { WAYS = 4096, DEPTH = 24, NEAR = 6 };

struct control {
    _Atomic uint32_t wanted;   /* one of the above, 0 for none */
    _Atomic uint32_t failed;   /* calls that did, so far */
    int32_t error;
    uint32_t nways;
    uint64_t ways[WAYS];
    char where[1024];          /* of the last one: modules and offsets */
};

static struct control *control;
static const char *exempt;     /* ",inbox,imports,": modules that are not under test */
static __thread int inside;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("GNATS_FAILING");
    void *frames[2];
    int fd;
    exempt = getenv("GNATS_FAILING_EXEMPT");
    if (path == NULL || exempt == NULL || (fd = open(path, O_RDWR | O_CLOEXEC)) < 0)
        return;
    backtrace(frames, 2);   /* it loads its library with the first call */
    void *shared = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    control = shared == MAP_FAILED ? NULL : shared;
}

enum { OTHER, EXEMPT, TESTED };

/* What an address belongs to; of a module of gnats.core also its name, between commas. */
static int module(const void *address, char *name, size_t room, uintptr_t *offset)
{
    Dl_info found;
    const char *base, *end;
    if (dladdr(address, &found) == 0 || found.dli_fname == NULL || strstr(found.dli_fname, "/gnats/core/") == NULL)
        return OTHER;
    base = strrchr(found.dli_fname, '/') + 1;
    end = strchr(base, '.');
    if (end == NULL || (size_t)(end - base) + 3 > room)
        return OTHER;
    name[0] = ',';
    memcpy(name + 1, base, end - base);
    strcpy(name + 1 + (end - base), ",");
    *offset = (uintptr_t)address - (uintptr_t)found.dli_fbase;
    return strstr(exempt, name) == NULL ? TESTED : EXEMPT;
}

static void note(char *where, size_t room, const char *name, uintptr_t offset)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = strlen(where), i, digits = 16;
    if (n + strlen(name) + digits + 2 > room)
        return;
    n += strlen(strcpy(where + n, name));
    for (i = 0; i < digits; i++)
        where[n++] = hex[offset >> 4 * (digits - 1 - i) & 15];
    strcpy(where + n, " ");
}

static int fails(uint32_t kind, const void *caller)
{
    void *frames[DEPTH];
    char name[128], where[sizeof(control->where)] = "";
    uintptr_t offset;
    uint64_t way = kind;
    int i, n, owner, near = 0, result = 0;
    if (control == NULL || inside || atomic_load(&control->wanted) != kind)
        return 0;
    inside = 1;
    if (module(caller, name, sizeof(name), &offset) == TESTED) {
        n = backtrace(frames, DEPTH);
        for (i = 0; i < n && near < NEAR; i++) {
            owner = module(frames[i], name, sizeof(name), &offset);
            if (owner == EXEMPT)
                goto done;
            if (owner == TESTED) {
                way = (way ^ (uintptr_t)frames[i]) * UINT64_C(0x9E3779B97F4A7C15);
                note(where, sizeof(where), name, offset);
                near++;
            }
        }
        for (i = 0; i < (int)control->nways && control->ways[i] != way; i++)
            ;
        if (i == (int)control->nways && i < WAYS && atomic_compare_exchange_strong(&control->wanted, &kind, 0)) {
            control->ways[control->nways++] = way;
            strcpy(control->where, where);
            errno = control->error;
            result = 1;
            atomic_fetch_add(&control->failed, 1);
        }
    }
done:
    inside = 0;
    return result;
}

#define CALLER __builtin_return_address(0)
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void *malloc(size_t n) { return fails(MEMORY, CALLER) ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return fails(MEMORY, CALLER) ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return fails(MEMORY, CALLER) ? NULL : __libc_realloc(p, n); }

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    return fails(EPOLL_CTL, CALLER) ? -1 : NEXT(epoll_ctl)(epfd, op, fd, event);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old)
{
    return fails(TIMERFD_SETTIME, CALLER) ? -1 : NEXT(timerfd_settime)(fd, flags, new, old);
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
    return fails(SENDMSG, CALLER) ? -1 : NEXT(sendmsg)(fd, msg, flags);
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
    return fails(RECV, CALLER) ? -1 : NEXT(recv)(fd, p, n, flags);
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
    return fails(RECV, CALLER) ? -1 : NEXT(recvmsg)(fd, msg, flags);
}
