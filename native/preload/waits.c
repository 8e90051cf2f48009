/* Waiting until a time of day: the kernel waits by its own clock. */
#include "preload.h"

#include <mqueue.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/timerfd.h>

/* Converts a deadline to the kernel's clock: if `id` is the time of day, or if that is -1 and its value looks so. */
static const struct timespec *deadline(clockid_t id, const struct timespec *shown, struct timespec *real) {
    if (!shown || (id != CLOCK_REALTIME && (id != -1 || !is_of_shown_clock(shown)))) return shown;
    *real = real_timespec(*shown);
    return real;
}

#define UNTIL(name, id, arguments, ...)                                \
    EXPORT(int, name, __VA_ARGS__) {                                   \
        struct timespec real;                                          \
        until = deadline(id, until, &real);                            \
        return NEXT(name) arguments;                                   \
    }

UNTIL(pthread_cond_timedwait, -1, (c, m, until), pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until)
UNTIL(pthread_cond_clockwait, clock, (c, m, clock, until), pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock,
      const struct timespec *until)
UNTIL(pthread_mutex_timedlock, CLOCK_REALTIME, (m, until), pthread_mutex_t *m, const struct timespec *until)
UNTIL(pthread_mutex_clocklock, clock, (m, clock, until), pthread_mutex_t *m, clockid_t clock,
      const struct timespec *until)
UNTIL(pthread_rwlock_timedrdlock, CLOCK_REALTIME, (l, until), pthread_rwlock_t *l, const struct timespec *until)
UNTIL(pthread_rwlock_timedwrlock, CLOCK_REALTIME, (l, until), pthread_rwlock_t *l, const struct timespec *until)
UNTIL(pthread_rwlock_clockrdlock, clock, (l, clock, until), pthread_rwlock_t *l, clockid_t clock,
      const struct timespec *until)
UNTIL(pthread_rwlock_clockwrlock, clock, (l, clock, until), pthread_rwlock_t *l, clockid_t clock,
      const struct timespec *until)
UNTIL(pthread_timedjoin_np, CLOCK_REALTIME, (t, result, until), pthread_t t, void **result,
      const struct timespec *until)
UNTIL(cnd_timedwait, CLOCK_REALTIME, (c, m, until), void *c, void *m, const struct timespec *until)
UNTIL(mtx_timedlock, CLOCK_REALTIME, (m, until), void *m, const struct timespec *until)
UNTIL(sem_timedwait, CLOCK_REALTIME, (s, until), sem_t *s, const struct timespec *until)
UNTIL(sem_clockwait, clock, (s, clock, until), sem_t *s, clockid_t clock, const struct timespec *until)
UNTIL(mq_timedsend, CLOCK_REALTIME, (q, data, length, priority, until), mqd_t q, const char *data, size_t length,
      unsigned priority, const struct timespec *until)

EXPORT(ssize_t, mq_timedreceive, mqd_t q, char *data, size_t length, unsigned *priority, const struct timespec *until) {
    struct timespec real;
    return NEXT(mq_timedreceive)(q, data, length, priority, deadline(CLOCK_REALTIME, until, &real));
}

EXPORT(int, clock_nanosleep, clockid_t clock, int flags, const struct timespec *wait, struct timespec *left) {
    struct timespec real;
    if (flags & TIMER_ABSTIME) wait = deadline(clock, wait, &real);
    return NEXT(clock_nanosleep)(clock, flags, wait, left);
}

/* Converts a timer's setting to the kernel's clock if it is a time of day. */
static const struct itimerspec *as_real_timer(bool absolute, const struct itimerspec *set, struct itimerspec *real) {
    if (!absolute || !set || !is_of_shown_clock(&set->it_value)) return set;
    *real = (struct itimerspec){set->it_interval, real_timespec(set->it_value)};
    return real;
}

EXPORT(int, timerfd_settime, int fd, int flags, const struct itimerspec *set, struct itimerspec *old) {
    struct itimerspec real;
    return NEXT(timerfd_settime)(fd, flags, as_real_timer(flags & TFD_TIMER_ABSTIME, set, &real), old);
}

EXPORT(int, timer_settime, timer_t timer, int flags, const struct itimerspec *set, struct itimerspec *old) {
    struct itimerspec real;
    return NEXT(timer_settime)(timer, flags, as_real_timer(flags & TIMER_ABSTIME, set, &real), old);
}
