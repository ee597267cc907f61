/* Fails one call of the store in tests: preloaded into a process, told by a page that it shares with the test.

   Only calls that the compiled modules of gnats/store and gnats/raft make are counted and failed. Names and numbers are those of
   support/failing.py. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum kind { WRITE, SYNC, DUP, OPEN, RENAME, UNLINK, TRUNCATE, MKDIR, MMAP, MALLOC, READ, KINDS };

struct page {
    int64_t generation;      /* changes when the test has told something new */
    int64_t kind;            /* what is to fail, -1: nothing */
    int64_t left;            /* the call of that kind that fails: 1 is the next */
    int64_t error;           /* its errno */
    int64_t hits;            /* calls that have failed */
    int64_t seen[KINDS];     /* calls of each kind */
    void (*synced)(int fd);  /* called, in the test's own process, after a file was synced */
    void (*called)(int kind);  /* the same, before each call that may change a directory */
};

enum { MODULES = 128 };

static struct page *page;
static struct { uintptr_t first, last; } modules[MODULES];
static int n_modules;
static int64_t known = -1;

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("GNATS_FAILING");
    int fd = path ? (int) syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    void *at;
    if (fd < 0)
        return;
    at = (void *) syscall(SYS_mmap, NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    syscall(SYS_close, fd);
    if (at != MAP_FAILED)
        page = at;
}

static int note_module(struct dl_phdr_info *info, size_t size, void *ctx)
{
    (void) size;
    (void) ctx;
    if (strstr(info->dlpi_name, "/gnats/store/") == NULL && strstr(info->dlpi_name, "/gnats/raft/") == NULL)
        return 0;
    if (n_modules == MODULES)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && part->p_flags & PF_X) {
            modules[n_modules].first = info->dlpi_addr + part->p_vaddr;
            modules[n_modules].last = modules[n_modules].first + part->p_memsz;
            n_modules++;
            break;
        }
    }
    return 0;
}

static int fails(enum kind kind, void *caller)
{
    uintptr_t at = (uintptr_t) caller;
    int i;
    if (page == NULL || __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE) == 0)
        return 0;
    if (known != page->generation) {
        n_modules = 0;
        dl_iterate_phdr(note_module, NULL);
        known = page->generation;
    }
    for (i = 0; i < n_modules; i++)
        if (modules[i].first <= at && at < modules[i].last)
            break;
    if (i == n_modules)
        return 0;
    __atomic_add_fetch(&page->seen[kind], 1, __ATOMIC_RELAXED);
    if (page->called != NULL && kind != MALLOC && kind != MMAP && kind != READ && kind != DUP)
        page->called(kind);
    if (page->kind != kind || __atomic_sub_fetch(&page->left, 1, __ATOMIC_RELAXED) != 0)
        return 0;
    __atomic_add_fetch(&page->hits, 1, __ATOMIC_RELEASE);
    errno = (int) page->error;
    return 1;
}

#define FAIL(kind, otherwise) \
    do { \
        if (fails(kind, __builtin_return_address(0))) \
            return otherwise; \
    } while (0)

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    FAIL(WRITE, -1);
    return syscall(SYS_pwrite64, fd, p, n, at);
}
ssize_t pwrite64(int, const void *, size_t, off64_t) __attribute__((alias("pwrite")));

ssize_t write(int fd, const void *p, size_t n)
{
    FAIL(WRITE, -1);
    return syscall(SYS_write, fd, p, n);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    FAIL(READ, -1);
    return syscall(SYS_pread64, fd, p, n, at);
}
ssize_t pread64(int, void *, size_t, off64_t) __attribute__((alias("pread")));

static int synced(int fd, long rc)
{
    if (rc == 0 && page != NULL && page->synced != NULL)
        page->synced(fd);
    return (int) rc;
}

int fsync(int fd)
{
    FAIL(SYNC, -1);
    return synced(fd, syscall(SYS_fsync, fd));
}

int fdatasync(int fd)
{
    FAIL(SYNC, -1);
    return synced(fd, syscall(SYS_fdatasync, fd));
}

int dup(int fd)
{
    FAIL(DUP, -1);
    return (int) syscall(SYS_dup, fd);
}

int openat(int dirfd, const char *path, int flags, ...)
{
    va_list args;
    int mode;
    FAIL(OPEN, -1);
    va_start(args, flags);
    mode = va_arg(args, int);
    va_end(args);
    return (int) syscall(SYS_openat, dirfd, path, flags, mode);
}
int openat64(int, const char *, int, ...) __attribute__((alias("openat")));

int renameat(int olddir, const char *old, int newdir, const char *new)
{
    FAIL(RENAME, -1);
    return (int) syscall(SYS_renameat2, olddir, old, newdir, new, 0);
}

int unlinkat(int dirfd, const char *path, int flags)
{
    FAIL(UNLINK, -1);
    return (int) syscall(SYS_unlinkat, dirfd, path, flags);
}

int ftruncate(int fd, off_t n)
{
    FAIL(TRUNCATE, -1);
    return (int) syscall(SYS_ftruncate, fd, n);
}
int ftruncate64(int, off64_t) __attribute__((alias("ftruncate")));

int mkdirat(int dirfd, const char *path, mode_t mode)
{
    FAIL(MKDIR, -1);
    return (int) syscall(SYS_mkdirat, dirfd, path, mode);
}

void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    FAIL(MMAP, MAP_FAILED);
    return (void *) syscall(SYS_mmap, at, n, prot, flags, fd, offset);
}
void *mmap64(void *, size_t, int, int, int, off64_t) __attribute__((alias("mmap")));

void *malloc(size_t n)
{
    FAIL(MALLOC, NULL);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    FAIL(MALLOC, NULL);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    FAIL(MALLOC, NULL);
    return __libc_realloc(p, n);
}
