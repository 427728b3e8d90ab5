/* Runs a fuzz target over every file of a corpus folder, whole and cut at every length,
 * and with each byte changed in a few ways.  Needs no fuzzing compiler.
 *   replay FOLDER...     prints the counts; no file at all is a failure */
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t files, runs;

/* In memory of exactly its size, so that a sanitizer sees one byte too many. */
static void run(const uint8_t *bytes, size_t length)
{
  uint8_t *exact = malloc(length ? length : 1);
  REQUIRE(exact);
  if (length) memcpy(exact, bytes, length);
  LLVMFuzzerTestOneInput(exact, length);
  free(exact);
  runs++;
}

static void run_variants(uint8_t *bytes, size_t length)
{
  static const uint8_t changes[] = {0x01, 0x02, 0x10, 0x20, 0x80, 0xff};
  run(bytes, length);
  size_t step = length / 256 + 1;
  for (size_t i = 0; i < length; i += step) {
    run(bytes, i);
    uint8_t kept = bytes[i];
    for (size_t j = 0; j < sizeof changes; j++) {
      bytes[i] = kept ^ changes[j];
      run(bytes, length);
    }
    bytes[i] = kept;
  }
}

static int replay_file(const char *path)
{
  FILE *file = fopen(path, "rb");
  if (!file) return 1;
  static uint8_t bytes[1 << 20];
  size_t length = fread(bytes, 1, sizeof bytes, file);
  int failed = ferror(file) || !feof(file);
  fclose(file);
  if (failed) return 1;
  files++;
  run_variants(bytes, length);
  return 0;
}

static int replay_folder(const char *folder)
{
  struct dirent **names = NULL;
  int count = scandir(folder, &names, NULL, alphasort), failed = count < 0;
  for (int i = 0; i < count; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
    if (names[i]->d_name[0] != '.' && replay_file(path)) {
      fprintf(stderr, "%s: cannot be read\n", path);
      failed = 1;
    }
    free(names[i]);
  }
  free(names);
  return failed;
}

int main(int argc, char **argv)
{
  int failed = 0;
  for (int i = 1; i < argc; i++) failed |= replay_folder(argv[i]);
  printf("replayed %zu files in %zu runs\n", files, runs);
  return failed || files == 0;
}
