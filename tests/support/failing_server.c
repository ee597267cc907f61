/* Preloaded into a server: fails one call of malloc, or of the system, that the modules under test make.
 *
 * The test shares `struct control` with the server: the file that GNATS_FAILING names. While a call is wanted, the
 * first one that comes along a new way fails, and no other. A way is the places of the nearest `depth` callers in
 * modules of gnats/core, gnats/store and gnats/jetstream. A call that leads through a module that
 * GNATS_FAILING_EXEMPT names never fails.
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
enum { WAYS = 4096, FRAMES = 24 };

struct control {
    _Atomic uint32_t wanted;   /* one of the above, 0 for none */
    _Atomic uint32_t failed;   /* calls that did, so far */
    int32_t error;
    uint32_t nways;
    uint32_t depth;            /* callers that make a way */
    uint32_t reserved;
    uint64_t ways[WAYS];
    char where[1024];          /* of the last one: "module offset " of each caller, the nearest first */
};

static struct control *control;
static const char *exempt;     /* ",core/runtime/inbox,": modules whose calls do not fail */
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

/* Say what an address belongs to; of a compiled module of the three folders also its path below gnats/. */
static int module(const void *address, char *name, size_t room, uintptr_t *offset)
{
    static const char *const folders[] = {"/gnats/core/", "/gnats/store/", "/gnats/jetstream/"};
    Dl_info found;
    const char *base = NULL, *end;
    char *at, quoted[160];
    int i;
    if (dladdr(address, &found) == 0 || found.dli_fname == NULL)
        return OTHER;
    for (i = 0; i < 3 && base == NULL; i++)
        base = strstr(found.dli_fname, folders[i]);
    if (base == NULL)
        return OTHER;
    base += strlen("/gnats/");
    end = strchr(base, '.');
    if (end == NULL || (size_t)(end - base) + 3 > room || room > sizeof(quoted))
        return OTHER;
    memcpy(name, base, end - base);
    name[end - base] = 0;
    at = stpcpy(quoted, ",");
    at = stpcpy(at, name);
    strcpy(at, ",");
    *offset = (uintptr_t)address - (uintptr_t)found.dli_fbase;
    return strstr(exempt, quoted) == NULL ? TESTED : EXEMPT;
}

static void note(char *where, size_t room, const char *name, uintptr_t offset)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = strlen(where), i, digits = 16;
    if (n + strlen(name) + digits + 3 > room)
        return;
    n = stpcpy(stpcpy(where + n, name), " ") - where;
    for (i = 0; i < digits; i++)
        where[n++] = hex[offset >> 4 * (digits - 1 - i) & 15];
    strcpy(where + n, " ");
}

static int fails(uint32_t kind, const void *caller)
{
    void *frames[FRAMES];
    char name[128], where[sizeof(control->where)] = "";
    uintptr_t offset;
    uint64_t way = kind;
    const char *p;
    int i, n, owner, near = 0, result = 0;
    if (control == NULL || inside || atomic_load(&control->wanted) != kind)
        return 0;
    inside = 1;
    if (module(caller, name, sizeof(name), &offset) == TESTED) {
        n = backtrace(frames, FRAMES);
        for (i = 0; i < n && near < (int)control->depth; i++) {
            owner = module(frames[i], name, sizeof(name), &offset);
            if (owner == EXEMPT)
                goto done;
            if (owner == TESTED) {
                for (p = name; *p; p++)
                    way = (way ^ (unsigned char)*p) * UINT64_C(0x100000001B3);
                way = (way ^ offset) * UINT64_C(0x9E3779B97F4A7C15);
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
