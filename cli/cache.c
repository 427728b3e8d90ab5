#include "cache.h"

#include <stdio.h>
#include <unistd.h>

/* A number or word of /sys/devices/system/cpu/cpu0/cache/index<i>/<name>. */
static int read_index(int index, const char *name, const char *format, void *value,
                      char *unit) {
  char path[96];
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  int fields = unit ? fscanf(file, format, value, unit) : fscanf(file, format, value);
  fclose(file);
  return fields >= 1;
}

double cache_level_bytes(int level) {
  for (int i = 0; i < 8; i++) {
    int found = 0;
    double size = 0;
    char unit = 0;
    if (!read_index(i, "level", "%d", &found, NULL) || found != level) continue;
    if (!read_index(i, "size", "%lf%c", &size, &unit)) continue;
    return size * (unit == 'K' ? 0x1p10 : unit == 'M' ? 0x1p20 : 1);
  }
  /* The C library may count the caches of the whole socket. */
  long bytes = sysconf(level == 3 ? _SC_LEVEL3_CACHE_SIZE : _SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? (double)bytes : 0;
}
