#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

char folder[256], path[300];
int warnings;
char warned[1024];

int make_folder(void **state)
{
  (void)state;
  const char *base = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/tileglu-tuner-XXXXXX", base ? base : "/tmp");
  if (!mkdtemp(folder)) return -1;
  if (chmod(folder, 0755)) return -1;
  snprintf(path, sizeof path, "%s/tune.txt", folder);
  warnings = 0;
  return 0;
}

static void remove_all(const char *name)
{
  DIR *open = opendir(name);
  if (!open) {
    unlink(name);
    return;
  }
  for (struct dirent *e; (e = readdir(open));) {
    char child[600];
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    snprintf(child, sizeof child, "%s/%s", name, e->d_name);
    remove_all(child);
  }
  closedir(open);
  rmdir(name);
}

int remove_folder(void **state)
{
  (void)state;
  chmod(folder, 0755);
  remove_all(folder);
  return 0;
}

int count_files(void)
{
  int count = 0;
  DIR *open = opendir(folder);
  assert_non_null(open);
  for (struct dirent *e; (e = readdir(open));)
    count += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
  closedir(open);
  return count;
}

static void count_warning(void *user, tglu_log_level level, const char *message)
{
  (void)user;
  if (level != TGLU_LOG_WARNING) return;
  warnings++;
  snprintf(warned, sizeof warned, "%s", message);
}

tglu_context_options options_at(const char *cache)
{
  tglu_context_options o;
  tglu_context_options_init(&o);
  o.backend = TGLU_BACKEND_CPU;
  o.threads = 1;
  o.tune_cache = cache;
  o.log = count_warning;
  return o;
}

tglu_context *context_at(const char *cache)
{
  const tglu_context_options o = options_at(cache);
  tglu_context *context = NULL;
  assert_ok(tglu_context_create(&o, &context));
  return context;
}

static const float one[N * K] = {1};

static tglu_glu_desc describe(tglu_dtype dtype, int64_t n, int64_t k, const void *gate,
                              const void *up)
{
  tglu_glu_desc d;
  tglu_glu_desc_init(&d);
  d.hidden = k;
  d.intermediate = n;
  d.dtype = dtype;
  d.activation = TGLU_ACTIVATION_RELU;
  d.layout = TGLU_LAYOUT_SEPARATE;
  d.gate = gate;
  d.up = up;
  return d;
}

tglu_plan_info plan_for(tglu_context *context, tglu_dtype dtype, int64_t n, int64_t k,
                        int64_t tokens)
{
  const tglu_glu_desc d = describe(dtype, n, k, one, one);
  tglu_glu *glu = NULL;
  tglu_plan_info plan;
  tglu_plan_info_init(&plan);
  assert_ok(tglu_glu_create(context, &d, &glu));
  assert_ok(tglu_glu_get_plan(glu, tokens, &plan));
  tglu_glu_destroy(glu);
  return plan;
}

void record(const char *cache, const tglu_tune_entry *e)
{
  tglu_context *context = context_at(cache);
  assert_ok(tglu_tune_record(context, e));
  tglu_context_destroy(context);
}

int tuned(tglu_dtype dtype, int64_t n, int64_t k, int64_t tokens)
{
  tglu_context *context = context_at(path);
  const int answer = plan_for(context, dtype, n, k, tokens).tuned;
  tglu_context_destroy(context);
  return answer;
}

rows find_rows(void)
{
  rows r;
  unsetenv("TILEGLU_BACKEND");
  unsetenv("TILEGLU_ROW");
  tglu_context *context = context_at("");
  snprintf(r.chosen, sizeof r.chosen, "%s",
           plan_for(context, TGLU_DTYPE_F32, N, K, M).row);
  snprintf(r.other, sizeof r.other, "%s", r.chosen);
  for (int32_t i = 0; i < tglu_row_count(context); i++) {
    tglu_row_info info;
    tglu_row_info_init(&info);
    assert_ok(tglu_row_get(context, i, &info));
    if (info.usable && strcmp(info.op, "glu") == 0 &&
        (info.dtypes & 1 << TGLU_DTYPE_F32) && strcmp(info.name, r.chosen) != 0)
      snprintf(r.other, sizeof r.other, "%s", info.name);
  }
  tglu_context_destroy(context);
  return r;
}

tglu_tune_entry entry_for(const char *row)
{
  tglu_tune_entry e;
  tglu_tune_entry_init(&e);
  e.op = "glu";
  e.dtype = TGLU_DTYPE_F32;
  e.hidden = K;
  e.intermediate = N;
  e.tokens = M;
  e.row = row;
  e.us = 12.5;
  return e;
}

/* Small integers, so that every order of summation gives the same. */
void assert_computes(tglu_context *context)
{
  enum { TOKENS = 3 };
  static float gate[N * K], up[N * K], x[TOKENS * K], out[TOKENS * N];
  uint64_t seed = 7;
  for (int i = 0; i < N * K; i++) {
    gate[i] = (float)(1 + next_random(&seed) % 3) - 4;
    up[i] = (float)(1 + next_random(&seed) % 3);
  }
  for (int i = 0; i < TOKENS * K; i++) x[i] = (float)(1 + next_random(&seed) % 5) - 6;
  for (int i = 0; i < TOKENS * N; i++) out[i] = NAN;
  const tglu_glu_desc d = describe(TGLU_DTYPE_F32, N, K, gate, up);
  tglu_glu *glu = NULL;
  tglu_run_args a;
  tglu_run_args_init(&a);
  a.x = x;
  a.tokens = TOKENS;
  a.out = out;
  assert_ok(tglu_glu_create(context, &d, &glu));
  assert_ok(tglu_glu_run(glu, &a));
  tglu_glu_destroy(glu);
  for (int t = 0; t < TOKENS; t++)
    for (int n = 0; n < N; n++) {
      float g = 0, u = 0;
      for (int k = 0; k < K; k++) {
        g += x[t * K + k] * gate[n * K + k];
        u += x[t * K + k] * up[n * K + k];
      }
      const float expected = (g > 0 ? g : 0) * u;
      if (!(out[t * N + n] == expected))
        fail_msg("out[%d][%d] is %g, not %g", t, n, (double)out[t * N + n],
                 (double)expected);
    }
}

size_t read_file(const char *name, char *bytes, size_t room)
{
  int file = open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) return SIZE_MAX;
  size_t count = 0;
  for (ssize_t got; (got = read(file, bytes + count, room - count)) > 0;)
    count += (size_t)got;
  close(file);
  return count;
}

void write_file(const char *name, const void *bytes, size_t count)
{
  FILE *file = fopen(name, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

size_t whole_file(const char *body, char *out)
{
  size_t length = (size_t)sprintf(out, "tileglu-tune 1\n%s", body), lines = 0;
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ (unsigned char)out[i]) * UINT64_C(0x100000001b3);
  for (const char *c = body; *c; c++) lines += *c == '\n';
  return length + (size_t)sprintf(out + length, "end %zu %016llx\n", lines,
                                  (unsigned long long)hash);
}

int cache_lines(const char *name)
{
  char *bytes = malloc(TGLU__CACHE_ROOM);
  assert_non_null(bytes);
  const size_t count = read_file(name, bytes, TGLU__CACHE_ROOM);
  const char *body = NULL;
  size_t length = 0;
  int lines = count == SIZE_MAX                                         ? -2
              : tglu__cache_open(bytes, count, &body, &length) != NULL ? -1
                                                                        : 0;
  for (size_t i = 0; lines >= 0 && i < length; i++) lines += body[i] == '\n';
  free(bytes);
  return lines;
}
