"""Whole small files; see putfile.pxd."""
from libc.errno cimport EINTR, EIO, ENOENT, ENOMEM, errno
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from posix.fcntl cimport O_CLOEXEC, O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY
from posix.stat cimport fstat, struct_stat
from posix.unistd cimport close, fdatasync, fsync, read, write

cdef extern from "<fcntl.h>" nogil:
    int openat(int dirfd, const char *path, int flags, ...)

cdef extern from "<stdio.h>" nogil:
    int renameat(int olddir, const char *old, int newdir, const char *new)

cdef extern from "<unistd.h>" nogil:
    int unlinkat(int dirfd, const char *path, int flags)


cdef int write_file(int dirfd, const char *name, const uint8_t *data, size_t n, bint synced) noexcept nogil:
    cdef int fd = openat(dirfd, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0o600)
    cdef int err = 0
    cdef ssize_t done
    if fd < 0:
        return errno
    while n and err == 0:
        done = write(fd, data, n)
        if done > 0:
            data += done
            n -= done
        elif done == 0 or errno != EINTR:
            err = errno if done < 0 else EIO
    while synced and err == 0 and fdatasync(fd) != 0:
        if errno != EINTR:
            err = errno
    close(fd)
    if err:
        unlinkat(dirfd, name, 0)
    return err


cdef int put_file(int dirfd, const char *name, const uint8_t *data, size_t n, bint durably) noexcept nogil:
    cdef char[LONGEST_NAME + NAME_MORE] tmp
    cdef int err
    snprintf(tmp, sizeof(tmp), b"%s.tmp", name)
    err = write_file(dirfd, tmp, data, n, durably)
    if err == 0 and renameat(dirfd, tmp, dirfd, name) != 0:
        err = errno
        unlinkat(dirfd, tmp, 0)
    if err == 0 and durably:
        err = sync_dir(dirfd)
    return err


cdef int rename_file(int dirfd, const char *name, const char *new) noexcept nogil:
    return errno if renameat(dirfd, name, dirfd, new) != 0 else sync_dir(dirfd)


cdef int sync_dir(int dirfd) noexcept nogil:
    while fsync(dirfd) != 0:
        if errno != EINTR:
            return errno
    return 0


cdef int read_whole(int dirfd, const char *name, char **data, size_t *n) noexcept nogil:
    cdef int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC), err = 0
    cdef struct_stat found
    cdef ssize_t done = 1
    data[0] = NULL
    n[0] = 0
    if fd < 0:
        return errno
    if fstat(fd, &found) != 0:
        err = errno
    else:
        data[0] = <char *> malloc(found.st_size + 1)
        if data[0] == NULL:
            err = ENOMEM
    while err == 0 and done and n[0] < <size_t> found.st_size:
        done = read(fd, data[0] + n[0], found.st_size - n[0])
        if done > 0:
            n[0] += done
        elif done < 0 and errno != EINTR:
            err = errno
    close(fd)
    if err:
        free(data[0])
        data[0] = NULL
    return err


cdef int remove_file(int dirfd, const char *name) noexcept nogil:
    return errno if unlinkat(dirfd, name, 0) != 0 and errno != ENOENT else 0
