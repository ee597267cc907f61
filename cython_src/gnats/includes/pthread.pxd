"""POSIX threads: locks, condition variables and threads for code that runs without the GIL.

Lock and unlock never fail on an initialised object that is used as its kind allows, so ignore their results. The init
functions and pthread_create return 0 or an errno.
"""
from libc.stddef cimport size_t

cdef extern from "<time.h>" nogil:
    struct timespec

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_mutexattr_t:
        pass
    int pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *attr)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_trylock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)

    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attr)
    int pthread_cond_destroy(pthread_cond_t *cond)
    int pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
    int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const timespec *until)
    int pthread_cond_signal(pthread_cond_t *cond)
    int pthread_cond_broadcast(pthread_cond_t *cond)

    ctypedef struct pthread_rwlock_t:
        pass
    ctypedef struct pthread_rwlockattr_t:
        pass
    int pthread_rwlock_init(pthread_rwlock_t *lock, const pthread_rwlockattr_t *attr)
    int pthread_rwlock_destroy(pthread_rwlock_t *lock)
    int pthread_rwlock_rdlock(pthread_rwlock_t *lock)
    int pthread_rwlock_wrlock(pthread_rwlock_t *lock)
    int pthread_rwlock_unlock(pthread_rwlock_t *lock)

    ctypedef unsigned long pthread_t
    ctypedef struct pthread_attr_t:
        pass
    int pthread_create(
        pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *) noexcept nogil, void *arg)
    int pthread_join(pthread_t thread, void **result)
    int pthread_detach(pthread_t thread)
    pthread_t pthread_self()
    int pthread_setname_np(pthread_t thread, const char *name)   # at most 15 bytes; ps and top show it
    bint pthread_equal(pthread_t a, pthread_t b)

cdef extern from * nogil:
    """
    #include <pthread.h>
    /* glibc's default lets a stream of readers starve a writer; this kind lets the writer in first, but then
       no thread may take the read lock twice. */
    static inline int gnats_rwlock_init(pthread_rwlock_t *lock)
    {
    #ifdef __GLIBC__
        pthread_rwlockattr_t attr;
        int err;
        if ((err = pthread_rwlockattr_init(&attr)))
            return err;
        pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
        err = pthread_rwlock_init(lock, &attr);
        pthread_rwlockattr_destroy(&attr);
        return err;
    #else
        return pthread_rwlock_init(lock, NULL);
    #endif
    }
    """
    # A readers/writer lock on which writers do not starve. A thread must never take it to read twice.
    int rwlock_init "gnats_rwlock_init"(pthread_rwlock_t *lock)
