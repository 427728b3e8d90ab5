/* NOTE: one temporary name, not one a process: only the holder of the lock writes it, so
 * what a killed process leaves is overwritten by the next one and never piles up. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "plan/cache.h"

enum { LOCK_TRIES = 10000, LOCK_PAUSE_NS = 2000000, FOLDERS = 2 };

static const char *reason_of(int error) {
  switch (error) {
    case EACCES: case EPERM: return "permission denied";
    case EROFS: return "the file system is read-only";
    case ENOSPC: return "no space is left on the device";
    case EDQUOT: return "the disk quota is used up";
    case EFBIG: return "the limit on file sizes is reached";
    case ENOENT: return "its folder does not exist";
    case ENOTDIR: return "a part of the path is no folder";
    case EISDIR: return "a folder has that name";
    case EEXIST: return "something that cannot be removed has that name";
    case ENAMETOOLONG: return "the path is too long";
    case ELOOP: return "too many symbolic links";
    case EMFILE: case ENFILE: return "too many files are open";
    case ENOLCK: case EOPNOTSUPP: return "the file system has no locks";
    default: return "the system reported an error";
  }
}

/* ---- reading ---- */

/* Reads to the end or until the room is full; -1 with errno. */
static ssize_t read_all(int file, char *bytes, size_t room) {
  size_t count = 0;
  while (count < room) {
    ssize_t got = read(file, bytes + count, room - count);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    if (got == 0) break;
    count += (size_t)got;
  }
  return (ssize_t)count;
}

static tglu__cache_state judge(int file, char *bytes, size_t *count, const char **why) {
  struct stat facts;
  if (fstat(file, &facts) == 0 && !S_ISREG(facts.st_mode)) {
    *why = S_ISDIR(facts.st_mode) ? "it is a folder" : "it is no regular file";
    return TGLU__CACHE_FOREIGN;
  }
  ssize_t got = read_all(file, bytes, TGLU__CACHE_ROOM);
  if (got < 0) {
    *why = reason_of(errno);
    return TGLU__CACHE_FOREIGN;
  }
  if (got > TGLU__CACHE_MOST_BYTES) {
    *why = "it is larger than 4 MiB";
    return TGLU__CACHE_FOREIGN;
  }
  *count = (size_t)got;
  const char *body;
  size_t length;
  *why = tglu__cache_open(bytes, *count, &body, &length);
  return *why == NULL ? TGLU__CACHE_WHOLE : TGLU__CACHE_DAMAGED;
}

bool tglu__cache_exists(const char *path) {
  return access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

tglu__cache_state tglu__cache_read(const char *path, char *bytes, size_t *count,
                                   const char **why) {
  *why = NULL;
  *count = 0;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return TGLU__CACHE_MISSING;
    *why = reason_of(errno);
    return TGLU__CACHE_FOREIGN;
  }
  tglu__cache_state state = judge(file, bytes, count, why);
  close(file);
  return state;
}

/* ---- writing ---- */

static const char *const suffixes[] = {".lock", ".new"};

static bool beside(const char *path, int which, char *name) {
  return snprintf(name, PATH_MAX, "%s%s", path, suffixes[which]) < PATH_MAX;
}

/* Makes the path's folder, and that one's: no more, so that a home that is not there is
 * not made.  False with errno. */
static bool make_folders(const char *path) {
  char folder[PATH_MAX];
  size_t cuts[FOLDERS];
  int missing = 0;
  snprintf(folder, sizeof folder, "%s", path);
  while (missing < FOLDERS) {
    char *slash = strrchr(folder, '/');
    if (slash == NULL || slash == folder) break;
    *slash = '\0';
    if (access(folder, F_OK) == 0) break;
    cuts[missing++] = (size_t)(slash - folder);
  }
  while (missing-- > 0) {
    if (cuts[missing] != strlen(folder)) folder[strlen(folder)] = '/';
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) return false;
  }
  return true;
}

/* Of a file beside the cache, which is named where its name is what is wrong. */
static const char *reason_beside(int which, int error, const char **suffix) {
  if (error == EISDIR || error == EEXIST || error == ELOOP) *suffix = suffixes[which];
  return reason_of(error);
}

static int open_lock(const char *path) {
  char name[PATH_MAX];
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  if (!beside(path, 0, name)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int lock = open(name, flags, 0666);
  if (lock >= 0 || errno != ENOENT) return lock;
  return make_folders(path) ? open(name, flags, 0666) : -1;
}

/* Not for ever: the holder may have been stopped. */
static const char *take_lock(int lock) {
  for (int i = 0; i < LOCK_TRIES; ++i) {
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) return NULL;
    if (errno != EWOULDBLOCK && errno != EINTR) return reason_of(errno);
    nanosleep(&(struct timespec){0, LOCK_PAUSE_NS}, NULL);
  }
  return "another process holds its lock for too long";
}

static int write_all(int file, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t put = write(file, bytes, count);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    bytes += put;
    count -= (size_t)put;
  }
  return 0;
}

/* Keeps the mode of a file that is there. */
static int fill(int file, const char *path, const char *bytes, size_t count) {
  struct stat facts;
  int error = write_all(file, bytes, count);
  if (error == 0 && stat(path, &facts) == 0 && fchmod(file, facts.st_mode & 0777) != 0)
    error = errno;
  if (error == 0 && fsync(file) != 0 && errno != EINVAL && errno != EROFS) error = errno;
  if (close(file) != 0 && error == 0) error = errno;
  return error;
}

static const char *replace(const char *path, const char *bytes, size_t count,
                           const char **suffix) {
  char name[PATH_MAX];
  if (!beside(path, 1, name)) return reason_of(ENAMETOOLONG);
  int kept = unlink(name) == 0 ? 0 : errno;
  int file = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0) {
    bool in_the_way = errno == EEXIST && kept != 0 && kept != ENOENT;
    return reason_beside(1, in_the_way ? kept : errno, suffix);
  }
  int error = fill(file, path, bytes, count);
  if (error == 0 && rename(name, path) != 0) error = errno;
  if (error == 0) return NULL;
  unlink(name);
  return reason_of(error);
}

/* Under the lock. */
static const char *merge(const char *path, const char *key, const char *line, char *work,
                         const char **suffix) {
  const char *why, *body = NULL;
  size_t count, length = 0;
  char *out = work + TGLU__CACHE_ROOM;
  tglu__cache_state state = tglu__cache_read(path, work, &count, &why);
  if (state == TGLU__CACHE_FOREIGN) return why;
  if (state == TGLU__CACHE_WHOLE) tglu__cache_open(work, count, &body, &length);
  if (body == NULL) body = work;
  count = tglu__cache_merge(body, length, key, line, out);
  return replace(path, out, count, suffix);
}

const char *tglu__cache_store(const char *path, const char *key, const char *line,
                              char *work, const char **suffix) {
  const char *why;
  size_t count;
  char target[PATH_MAX];
  *suffix = "";
  /* Of a link the file behind it is replaced, under that file's lock. */
  if (realpath(path, target) != NULL) path = target;
  /* Before anything is made beside it: it may be a device. */
  if (tglu__cache_read(path, work, &count, &why) == TGLU__CACHE_FOREIGN) return why;
  int lock = open_lock(path);
  if (lock < 0) return reason_beside(0, errno, suffix);
  why = take_lock(lock);
  if (why == NULL) {
    why = merge(path, key, line, work, suffix);
    flock(lock, LOCK_UN); /* by hand: a child forked meanwhile has the file open, too */
  }
  close(lock);
  return why;
}
