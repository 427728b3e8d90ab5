/* Whether the tuner's winners could be stored, which is asked before anything is measured. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "cmd_tune.h"

enum { FOLDERS_MADE = 2, MOST_BYTES = 4 << 20 }; /* tileglu.h, tglu_tune_record */

/* Why the file that is there cannot be replaced; NULL: it can, or there is none. */
static const char *file_refusal(const char *path) {
  struct stat facts;
  if (path[0] && path[strlen(path) - 1] == '/') return "it is a folder's name";
  if (stat(path, &facts) != 0) return errno == ENOENT || errno == ENOTDIR ? NULL : strerror(errno);
  if (S_ISDIR(facts.st_mode)) return "it is a folder";
  if (!S_ISREG(facts.st_mode)) return "it is no regular file";
  if (facts.st_size > MOST_BYTES) return "it is larger than 4 MiB";
  return faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) == 0 ? NULL : strerror(errno);
}

/* Turns a path into that of its folder. */
static void cut_name(char *path) {
  char *slash = strrchr(path, '/');
  if (!slash) strcpy(path, ".");
  else if (slash == path) path[1] = 0;
  else *slash = 0;
}

/* Why nothing can be written beside the file, and which folder is at fault; NULL: it can.
 * folder: PATH_MAX bytes, the path of the file before. */
static const char *folder_refusal(char *folder) {
  struct stat facts;
  for (int missing = 0;; missing++) {
    cut_name(folder);
    if (stat(folder, &facts) == 0) break;
    if (errno != ENOENT || missing == FOLDERS_MADE) return strerror(errno);
  }
  if (!S_ISDIR(facts.st_mode)) return strerror(ENOTDIR);
  return faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) == 0 ? NULL : strerror(errno);
}

int tune_check_cache(const char *path) {
  char place[PATH_MAX];
  const char *why = file_refusal(path), *folder = "";
  if (!why && !realpath(path, place)) { /* of a link the file behind it is meant */
    if (snprintf(place, sizeof place, "%s", path) >= (int)sizeof place) {
      why = strerror(ENAMETOOLONG);
    }
  }
  if (!why && (why = folder_refusal(place)) != NULL) folder = place;
  if (!why) return CLI_OK;
  return cli_error(CLI_INPUT, "nothing is measured, since no winner could be stored in %s: %s%s%s; "
                   "--tune-cache FILE or TILEGLU_TUNE_CACHE names another file, --dry-run needs "
                   "none", path, folder, *folder ? ": " : "", why);
}
