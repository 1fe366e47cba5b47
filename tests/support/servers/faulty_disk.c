/* A disk and a clock that misbehave on command, under a program that does not know of it: preloaded with LD_PRELOAD.
 *
 * It exists so that campaigns try what real disks do to real servers. faulty_disk.py compiles it, has the other side of the
 * control page, and throws away what a power loss takes.
 *
 * Rules:
 *   - Only files below FAULTY_DISK_ROOT are concerned. Without that variable only the clock is.
 *   - FAULTY_DISK_CONTROL is a page that both sides map: settings, which count at once, and counters of what really happened,
 *     which a kill does not take back.
 *   - FAULTY_DISK_JOURNAL is a folder. Before anything is changed below the root, how to undo it and how to do it again is
 *     written to the file FAULTY_DISK_LIFE in it; a sync is noted when it is done. So whoever reads it after a kill knows what
 *     no sync covered. A file that loses its name is kept in the folder "graves" in there, by the number of its inode.
 *   - A sync does not touch the real disk. It waits sync_us, so that kills find something unsynced.
 *   - Monotonic time stays as it is.
 *
 * Not followed: descriptors made by dup, files that are mapped, links. The store uses none of these.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The control page: slots of 8 bytes. The same list, in the same order, is in faulty_disk.py. */
enum setting { SHORT_ONE_IN, EIO_WRITES, EIO_SYNCS, NO_ROOM, ROOM_BYTES, TORN_WRITES, CLOCK_NS, LIE, SYNC_US };
enum counter { C_SHORT = 32, C_EIO_WRITES, C_EIO_SYNCS, C_NO_ROOM, C_TORN, C_CLOCK, C_LIES, C_WRITES, C_SYNCS, C_NAMES };
#define PAGE_BYTES 4096
#define MAX_DESCRIPTORS 65536

enum kind { WRITE = 1, RESULT, CUT, SYNC, SYNC_FAILED, CREATE, RENAME, UNLINK };
struct record {
    uint32_t magic, kind;
    uint64_t inode, offset, size, old_bytes, new_bytes; /* then the old bytes (or a name), then the new ones (or a name) */
};
#define MAGIC 0x4b534944u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], journal_folder[PATH_MAX];
static size_t root_bytes;
static int64_t none[PAGE_BYTES / 8];
static int64_t *page = none;
static unsigned char tracked[MAX_DESCRIPTORS];
static int journal = -1;
static uint64_t journal_end, chance;
static int (*real_clock)(clockid_t, struct timespec *);

static int64_t setting(enum setting which) { return __atomic_load_n(&page[which], __ATOMIC_RELAXED); }
static void count(enum counter which) { __atomic_fetch_add(&page[which], 1, __ATOMIC_RELAXED); }

/* Take one of so many faults that are ordered. */
static int take(enum setting which)
{
    int64_t left = setting(which);
    while (left > 0)
        if (__atomic_compare_exchange_n(&page[which], &left, left - 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return 1;
    return 0;
}

static uint64_t draw(uint64_t below)
{
    chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
    return below ? chance % below : 0;
}

static void fail(const char *what)
{
    int why = errno;
    dprintf(2, "faulty_disk: %s: %s\n", what, strerror(why));
    _exit(99);
}

__attribute__((constructor)) static void begin(void)
{
    const char *control = getenv("FAULTY_DISK_CONTROL"), *where = getenv("FAULTY_DISK_ROOT"), *life = getenv("FAULTY_DISK_LIFE");
    real_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (!control)
        return;
    int file = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDWR | O_CLOEXEC, 0);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED)
        fail(control);
    syscall(SYS_close, file);
    page = mapped;
    chance = ((uint64_t)getpid() << 32 | 88172645463325252ull) * 6364136223846793005ull | 1;
    if (!where)
        return;
    const char *folder = getenv("FAULTY_DISK_JOURNAL");
    if (!folder || !life)
        fail("FAULTY_DISK_JOURNAL and FAULTY_DISK_LIFE are missing");
    char path[PATH_MAX + 64];
    snprintf(journal_folder, sizeof journal_folder, "%s", folder);
    snprintf(path, sizeof path, "%s/%s", folder, life);
    journal = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (journal < 0)
        fail(path);
    journal_end = (uint64_t)lseek(journal, 0, SEEK_END);
    snprintf(root, sizeof root, "%s", where);
    root_bytes = strlen(root);
}

/* --- names ------------------------------------------------------------------------------------------------------------ */

/* Whether a path is below the root; its absolute form. */
static int below(int folder, const char *path, char *whole)
{
    char base[PATH_MAX] = "", link[64];
    if (!root_bytes || !path)
        return 0;
    if (path[0] != '/') {
        snprintf(link, sizeof link, folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", folder);
        ssize_t length = readlink(link, base, sizeof base - 2);
        if (length < 0)
            return 0;
        base[length] = '/', base[length + 1] = 0;
    }
    if (snprintf(whole, PATH_MAX, "%s%s", base, path) >= PATH_MAX)
        return 0;
    return !strncmp(whole, root, root_bytes) && (whole[root_bytes] == 0 || whole[root_bytes] == '/');
}

static int is_tracked(int file) { return file >= 0 && file < MAX_DESCRIPTORS && tracked[file]; }

static uint64_t inode_of(const char *path)
{
    struct stat found;
    return fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) ? 0 : (uint64_t)found.st_ino;
}

static uint64_t folder_of(const char *path)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    char *end = strrchr(folder, '/');
    if (end)
        *end = 0;
    return inode_of(folder);
}

static void note(enum kind kind, uint64_t inode, uint64_t offset, uint64_t size, const void *old, uint64_t old_bytes,
                 const void *new, uint64_t new_bytes)
{
    struct record head = {MAGIC, kind, inode, offset, size, old_bytes, new_bytes};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)old, old_bytes}, {(void *)new, new_bytes}};
    ssize_t all = (ssize_t)(sizeof head + old_bytes + new_bytes);
    if (syscall(SYS_writev, journal, parts, 3) != all)
        fail("the journal cannot be written");
    journal_end += (uint64_t)all;
}

/* Keep the file that is about to lose its name. */
static void bury(const char *path, uint64_t inode)
{
    char grave[PATH_MAX + 64];
    snprintf(grave, sizeof grave, "%s/graves/%llu", journal_folder, (unsigned long long)inode);
    if (linkat(AT_FDCWD, path, AT_FDCWD, grave, 0) && errno != EEXIST)
        fail(grave);
}

static void note_name(enum kind kind, const char *from, const char *to, uint64_t inode, uint64_t replaced)
{
    from += root_bytes + 1;
    to = to ? to + root_bytes + 1 : "";
    note(kind, inode, replaced, folder_of(kind == RENAME ? to - root_bytes - 1 : from - root_bytes - 1), from, strlen(from), to,
         strlen(to));
    count(C_NAMES);
}

/* The bytes of a file from here on, up to so many; the caller frees them. */
static char *old_bytes(int file, off_t offset, uint64_t *bytes)
{
    char path[64], *taken = malloc(*bytes + 1);
    uint64_t got = 0;
    ssize_t more = 1;
    /* It may be open for writing only. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int reader = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (!taken || reader < 0)
        fail("a file cannot be read before it is changed");
    while (got < *bytes && (more = pread(reader, taken + got, *bytes - got, offset + (off_t)got)) > 0)
        got += (uint64_t)more;
    syscall(SYS_close, reader);
    *bytes = got;
    return taken;
}

static int open_file(int folder, const char *path, int flags, mode_t mode)
{
    char whole[PATH_MAX];
    if (!below(folder, path, whole))
        return (int)syscall(SYS_openat, folder, path, flags, mode);
    pthread_mutex_lock(&lock);
    int made = (flags & O_CREAT) && !inode_of(whole), file = -1;
    if (made && setting(NO_ROOM) && setting(ROOM_BYTES) <= 0) {
        count(C_NO_ROOM);
        errno = ENOSPC;
    } else {
        file = (int)syscall(SYS_openat, folder, path, flags & ~O_TRUNC, mode);
    }
    struct stat found;
    if (file >= 0 && !fstat(file, &found)) {
        if (file >= MAX_DESCRIPTORS)
            fail("too many descriptors");
        tracked[file] = S_ISREG(found.st_mode) || S_ISDIR(found.st_mode);
        if (made)
            note_name(CREATE, whole, NULL, (uint64_t)found.st_ino, 0);
        if ((flags & O_TRUNC) && found.st_size) {
            uint64_t bytes = (uint64_t)found.st_size;
            char *old = old_bytes(file, 0, &bytes);
            note(CUT, (uint64_t)found.st_ino, 0, (uint64_t)found.st_size, old, bytes, NULL, 0);
            free(old);
            if (syscall(SYS_ftruncate, file, 0))
                fail("a file cannot be cut");
        }
    }
    int why = errno;
    pthread_mutex_unlock(&lock);
    errno = why;
    return file;
}

#define OPEN(name, flagged)                                                  \
    int name(const char *path, int flags, ...)                               \
    {                                                                        \
        va_list more;                                                        \
        va_start(more, flags);                                               \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                        \
        return open_file(AT_FDCWD, path, flags | flagged, mode);             \
    }
#define OPENAT(name, flagged)                                                \
    int name(int folder, const char *path, int flags, ...)                   \
    {                                                                        \
        va_list more;                                                        \
        va_start(more, flags);                                               \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more);                                                        \
        return open_file(folder, path, flags | flagged, mode);               \
    }
OPEN(open, 0)
OPEN(open64, O_LARGEFILE)
OPENAT(openat, 0)
OPENAT(openat64, O_LARGEFILE)

int close(int file)
{
    if (is_tracked(file))
        tracked[file] = 0;
    return (int)syscall(SYS_close, file);
}

static int rename_file(int from_folder, const char *from, int to_folder, const char *to)
{
    char old[PATH_MAX], new[PATH_MAX];
    if (!below(from_folder, from, old) || !below(to_folder, to, new))
        return (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
    pthread_mutex_lock(&lock);
    uint64_t inode = inode_of(old), replaced = inode_of(new);
    if (inode && replaced)
        bury(new, replaced);
    if (inode)
        note_name(RENAME, old, new, inode, replaced);
    int done = (int)syscall(SYS_renameat, from_folder, from, to_folder, to);
    int why = errno;
    pthread_mutex_unlock(&lock);
    errno = why;
    return done;
}

int rename(const char *from, const char *to) { return rename_file(AT_FDCWD, from, AT_FDCWD, to); }
int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return rename_file(from_folder, from, to_folder, to);
}

static int unlink_file(int folder, const char *path, int flags)
{
    char whole[PATH_MAX];
    if ((flags & AT_REMOVEDIR) || !below(folder, path, whole))
        return (int)syscall(SYS_unlinkat, folder, path, flags);
    pthread_mutex_lock(&lock);
    uint64_t inode = inode_of(whole);
    if (inode) {
        bury(whole, inode);
        note_name(UNLINK, whole, NULL, inode, 0);
    }
    int done = (int)syscall(SYS_unlinkat, folder, path, flags);
    int why = errno;
    pthread_mutex_unlock(&lock);
    errno = why;
    return done;
}

int unlink(const char *path) { return unlink_file(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char *path, int flags) { return unlink_file(folder, path, flags); }

/* --- bytes ------------------------------------------------------------------------------------------------------------ */

/* How many bytes of a write get through; -1: none, and errno says why. */
static ssize_t let_through(uint64_t bytes, int64_t grows, int *torn)
{
    if (take(EIO_WRITES)) {
        count(C_EIO_WRITES);
        errno = EIO;
        return -1;
    }
    if (bytes && take(TORN_WRITES)) {
        *torn = 1;
        count(C_TORN);
        return (ssize_t)draw(bytes);
    }
    if (grows > 0 && setting(NO_ROOM)) {
        int64_t room = setting(ROOM_BYTES), lacking = grows - (room > 0 ? room : 0);
        __atomic_store_n(&page[ROOM_BYTES], room > grows ? room - grows : 0, __ATOMIC_RELAXED);
        if (lacking > 0) {
            count(C_NO_ROOM);
            if ((uint64_t)lacking >= bytes) {
                errno = ENOSPC;
                return -1;
            }
            return (ssize_t)(bytes - (uint64_t)lacking);
        }
    }
    int64_t one_in = setting(SHORT_ONE_IN);
    if (bytes > 1 && one_in > 0 && draw((uint64_t)one_in) == 0) {
        count(C_SHORT);
        return (ssize_t)(1 + draw(bytes - 1));
    }
    return (ssize_t)bytes;
}

/* Write at an offset, or where the file is if that is negative. */
static ssize_t write_file(int file, const void *data, size_t bytes, off_t offset)
{
    struct stat found;
    int torn = 0;
    pthread_mutex_lock(&lock);
    int flags = fcntl(file, F_GETFL);
    off_t at = offset;
    if (fstat(file, &found))
        fail("a file that is open cannot be looked at");
    if (at < 0)
        at = flags & O_APPEND ? found.st_size : lseek(file, 0, SEEK_CUR);
    ssize_t most = let_through(bytes, (int64_t)at + (int64_t)bytes - (int64_t)found.st_size, &torn);
    ssize_t done = most;
    if (most >= 0) {
        uint64_t had = found.st_size > at ? (uint64_t)(found.st_size - at) : 0;
        had = had < (uint64_t)most ? had : (uint64_t)most;
        char *old = had ? old_bytes(file, at, &had) : NULL;
        note(WRITE, (uint64_t)found.st_ino, (uint64_t)at, (uint64_t)found.st_size, old, had, data, (uint64_t)most);
        free(old);
        count(C_WRITES);
        done = offset < 0 ? syscall(SYS_write, file, data, most) : syscall(SYS_pwrite64, file, data, most, offset);
        if (done != most)
            note(RESULT, (uint64_t)found.st_ino, (uint64_t)(done < 0 ? 0 : done), 0, NULL, 0, NULL, 0);
    }
    if (torn)
        kill(getpid(), SIGKILL);
    int why = errno;
    pthread_mutex_unlock(&lock);
    errno = why;
    return done;
}

ssize_t write(int file, const void *data, size_t bytes)
{
    return is_tracked(file) ? write_file(file, data, bytes, -1) : syscall(SYS_write, file, data, bytes);
}

ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset)
{
    return is_tracked(file) ? write_file(file, data, bytes, offset) : syscall(SYS_pwrite64, file, data, bytes, offset);
}
ssize_t pwrite64(int file, const void *data, size_t bytes, off64_t offset) { return pwrite(file, data, bytes, offset); }

/* Several pieces are one write, as they are for the system. */
static ssize_t write_parts(int file, const struct iovec *parts, int number, off_t offset)
{
    size_t bytes = 0, at = 0;
    for (int each = 0; each < number; each++)
        bytes += parts[each].iov_len;
    char *together = malloc(bytes + 1);
    if (!together)
        fail("no memory");
    for (int each = 0; each < number; at += parts[each].iov_len, each++)
        memcpy(together + at, parts[each].iov_base, parts[each].iov_len);
    ssize_t done = write_file(file, together, bytes, offset);
    free(together);
    return done;
}

ssize_t writev(int file, const struct iovec *parts, int number)
{
    return is_tracked(file) ? write_parts(file, parts, number, -1) : syscall(SYS_writev, file, parts, number);
}
ssize_t pwritev(int file, const struct iovec *parts, int number, off_t offset)
{
    return is_tracked(file) ? write_parts(file, parts, number, offset)
                            : syscall(SYS_pwritev, file, parts, number, (long)offset, 0L);
}
ssize_t pwritev64(int file, const struct iovec *parts, int number, off64_t offset) { return pwritev(file, parts, number, offset); }
ssize_t pwritev2(int file, const struct iovec *parts, int number, off_t offset, int flags)
{
    return is_tracked(file) ? write_parts(file, parts, number, offset)
                            : syscall(SYS_pwritev2, file, parts, number, (long)offset, 0L, flags);
}
ssize_t pwritev64v2(int file, const struct iovec *parts, int number, off64_t offset, int flags)
{
    return pwritev2(file, parts, number, offset, flags);
}

int ftruncate(int file, off_t size)
{
    struct stat found;
    if (!is_tracked(file) || fstat(file, &found))
        return (int)syscall(SYS_ftruncate, file, size);
    pthread_mutex_lock(&lock);
    uint64_t bytes = found.st_size > size ? (uint64_t)(found.st_size - size) : 0;
    char *old = bytes ? old_bytes(file, size, &bytes) : NULL;
    note(CUT, (uint64_t)found.st_ino, (uint64_t)size, (uint64_t)found.st_size, old, bytes, NULL, 0);
    free(old);
    int done = (int)syscall(SYS_ftruncate, file, size), why = errno;
    pthread_mutex_unlock(&lock);
    errno = why;
    return done;
}
int ftruncate64(int file, off64_t size) { return ftruncate(file, size); }

static int sync_file(int file)
{
    struct stat found;
    pthread_mutex_lock(&lock);
    uint64_t until = journal_end; /* What is written while it goes on may not be covered. */
    pthread_mutex_unlock(&lock);
    if (fstat(file, &found))
        fail("a file that is open cannot be looked at");
    if (setting(SYNC_US) > 0)
        usleep((useconds_t)setting(SYNC_US));
    count(C_SYNCS);
    if (setting(LIE)) {
        count(C_LIES);
        return 0;
    }
    int failed = take(EIO_SYNCS);
    pthread_mutex_lock(&lock);
    note(failed ? SYNC_FAILED : SYNC, (uint64_t)found.st_ino, until, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    if (!failed)
        return 0;
    count(C_EIO_SYNCS);
    errno = EIO;
    return -1;
}

int fsync(int file) { return is_tracked(file) ? sync_file(file) : (int)syscall(SYS_fsync, file); }
int fdatasync(int file) { return is_tracked(file) ? sync_file(file) : (int)syscall(SYS_fdatasync, file); }

/* --- time ------------------------------------------------------------------------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int done = real_clock ? real_clock(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    int64_t off = setting(CLOCK_NS);
    if (!done && off && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t all = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + off;
        now->tv_sec = all / 1000000000;
        now->tv_nsec = all % 1000000000;
        count(C_CLOCK);
    }
    return done;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *place)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place)
        *place = now.tv_sec;
    return now.tv_sec;
}
