/* Regular files: opened, measured, read, mapped, measured again. */
#include "model_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static tglu_status io_error(const char *path, const char *verb, int error)
{
  char buffer[128];
  tglu_status status = error == ENOENT || error == ENOTDIR ? TGLU_ERR_NOT_FOUND : TGLU_ERR_IO;
  return tglu__fail(status, "%s: cannot %s: %s", tglu__show_path(path).text, verb,
                    strerror_r(error, buffer, sizeof(buffer)));
}

tglu_status tglu__file_open(const char *path, tglu__file *out)
{
  *out = (tglu__file){.fd = -1};
  out->path = strdup(path);
  if (!out->path) return tglu__no_memory(path);
  out->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat info;
  tglu_status status = TGLU_OK;
  if (out->fd < 0 || fstat(out->fd, &info) != 0) {
    status = io_error(path, "open", errno);
  } else if (!S_ISREG(info.st_mode)) {
    status = tglu__fail(TGLU_ERR_IO, "%s: not a regular file%s", tglu__show_path(path).text,
                        S_ISDIR(info.st_mode) ? " but a folder" : "");
  } else {
    out->bytes = (uint64_t)info.st_size;
  }
  if (status != TGLU_OK) tglu__file_close(out);
  return status;
}

tglu_status tglu__file_map(tglu__file *file)
{
  if (file->bytes > SIZE_MAX) {
    return tglu__fail(TGLU_ERR_UNSUPPORTED, "%s: %llu bytes do not fit the address space",
                      tglu__show_path(file->path).text, (unsigned long long)file->bytes);
  }
  void *map = mmap(NULL, (size_t)file->bytes, PROT_READ, MAP_PRIVATE, file->fd, 0);
  if (map == MAP_FAILED) return io_error(file->path, "map", errno);
  file->map = map;
  return TGLU_OK;
}

void tglu__file_close(tglu__file *file)
{
  if (file->fd >= 0) {
    if (file->map) munmap((void *)(uintptr_t)file->map, (size_t)file->bytes);
    close(file->fd);
  }
  free(file->path);
  *file = (tglu__file){.fd = -1};
}

tglu_status tglu__file_read(const tglu__file *file, uint64_t at, void *out, size_t bytes)
{
  char *to = out;
  size_t done = 0;
  while (done < bytes) {
    ssize_t got = pread(file->fd, to + done, bytes - done, (off_t)(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(file->path, "read", errno);
    if (got == 0) {
      return tglu__fail(TGLU_ERR_IO, "%s: ended at byte %llu while being read, expected %llu",
                        tglu__show_path(file->path).text, (unsigned long long)(at + done),
                        (unsigned long long)file->bytes);
    }
    done += (size_t)got;
  }
  return TGLU_OK;
}

tglu_status tglu__file_recheck(const tglu__file *file)
{
  if (file->fd < 0) return TGLU_OK;
  struct stat info;
  if (fstat(file->fd, &info) != 0) return io_error(file->path, "measure", errno);
  if ((uint64_t)info.st_size == file->bytes) return TGLU_OK;
  return tglu__fail(TGLU_ERR_IO,
                    "%s: changed while open: expected %llu bytes, it has %lld now",
                    tglu__show_path(file->path).text, (unsigned long long)file->bytes,
                    (long long)info.st_size);
}

tglu_status tglu__read_text(const char *path, size_t limit, char **out, size_t *length)
{
  tglu__file file;
  tglu_status status = tglu__file_open(path, &file);
  if (status != TGLU_OK) return status;
  char *text = NULL;
  if (file.bytes > limit) {
    status = tglu__fail(TGLU_ERR_FORMAT, "%s: %llu bytes, more than the limit of %zu",
                        tglu__show_path(path).text, (unsigned long long)file.bytes, limit);
  } else if (!(text = malloc((size_t)file.bytes + 1))) {
    status = tglu__no_memory(path);
  } else {
    status = tglu__file_read(&file, 0, text, (size_t)file.bytes);
  }
  *length = (size_t)file.bytes;
  tglu__file_close(&file);
  if (status != TGLU_OK) {
    free(text);
    text = NULL;
  }
  *out = text;
  return status;
}

char *tglu__path_join(const char *folder, const char *name)
{
  size_t a = strlen(folder), b = strlen(name);
  char *path = malloc(a + b + 2);
  if (!path) return NULL;
  memcpy(path, folder, a);
  path[a] = '/';
  memcpy(path + a + 1, name, b + 1);
  return path;
}

char *tglu__path_folder(const char *path)
{
  const char *slash = strrchr(path, '/');
  if (!slash) return strdup(".");
  return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}
