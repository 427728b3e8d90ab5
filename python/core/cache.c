/* The objects made so far, by what they bind; the least recently used go first.  The GIL
 * guards it.  An object holds no weights, only where they lie, so one whose tensors are
 * gone is merely unused, and is right for whatever tensors lie there next. */
#include "core.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096, DEFAULT_LIMIT = 4096 };

static core_entry *buckets[BUCKETS];
static core_entry *newest, *oldest;
static int64_t entries, limit = DEFAULT_LIMIT;
static int64_t hits, misses;

static uint64_t hash_of(const core_key *key)
{
  uint64_t words[sizeof *key / sizeof(uint64_t)];
  _Static_assert(sizeof words == sizeof *key, "a key is whole words");
  memcpy(words, key, sizeof words);
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
  return hash;
}

static core_entry *find(const core_key *key, uint64_t hash)
{
  core_entry *entry = buckets[hash % BUCKETS];
  while (entry && (entry->hash != hash || memcmp(&entry->key, key, sizeof *key) != 0))
    entry = entry->chain;
  return entry;
}

static void unlink_age(core_entry *entry)
{
  *(entry->newer ? &entry->newer->older : &newest) = entry->older;
  *(entry->older ? &entry->older->newer : &oldest) = entry->newer;
}

static void link_newest(core_entry *entry)
{
  entry->newer = NULL;
  entry->older = newest;
  *(newest ? &newest->newer : &oldest) = entry;
  newest = entry;
}

static void destroy_object(const core_key *key, void *object)
{
  if (key->is_mlp)
    core_lib.mlp_destroy(object);
  else
    core_lib.glu_destroy(object);
}

static void destroy(core_entry *entry)
{
  destroy_object(&entry->key, entry->object);
  free(entry);
}

static void forget(core_entry *entry)
{
  core_entry **place = &buckets[entry->hash % BUCKETS];
  while (*place != entry) place = &(*place)->chain;
  *place = entry->chain;
  unlink_age(entry);
  entries--;
  entry->forgotten = true;
  if (entry->pins == 0) destroy(entry);
}

static void insert(core_entry *entry)
{
  entry->chain = buckets[entry->hash % BUCKETS];
  buckets[entry->hash % BUCKETS] = entry;
  link_newest(entry);
  entries++;
  while (entries > limit && oldest != entry) forget(oldest);
}

static tglu_status create(const core_key *key, void **object)
{
  tglu_mlp_desc desc;
  core_lib.mlp_desc_init(&desc);
  tglu_glu_desc *glu = &desc.glu;
  glu->hidden = key->hidden, glu->intermediate = key->intermediate, glu->ld = key->ld;
  glu->dtype = (tglu_dtype)key->dtype, glu->activation = (tglu_activation)key->activation;
  glu->layout = (tglu_layout)key->layout;
  glu->alpha = key->alpha, glu->limit = key->limit, glu->offset = key->offset;
  if (key->layout == TGLU_LAYOUT_SEPARATE) {
    glu->gate = key->gate, glu->up = key->up;
    glu->gate_bias = key->gate_bias, glu->up_bias = key->up_bias;
  } else {
    glu->gate_up = key->gate, glu->gate_up_bias = key->gate_bias;
  }
  desc.down = key->down, desc.ld_down = key->ld_down, desc.down_bias = key->down_bias;
  return key->is_mlp ? core_lib.mlp_create(key->context, &desc, (tglu_mlp **)object)
                     : core_lib.glu_create(key->context, glu, (tglu_glu **)object);
}

/* Another thread may have made the same object while the GIL was let go. */
static core_entry *make(const core_key *key, uint64_t hash)
{
  void *object = NULL;
  tglu_status status;
  Py_BEGIN_ALLOW_THREADS
  status = create(key, &object);
  Py_END_ALLOW_THREADS
  if (status) return core_raise(status), NULL;
  core_entry *entry = find(key, hash);
  if (entry) return destroy_object(key, object), entry;
  entry = calloc(1, sizeof *entry);
  if (!entry) {
    destroy_object(key, object);
    PyErr_NoMemory();
    return NULL;
  }
  entry->key = *key, entry->hash = hash, entry->object = object;
  insert(entry);
  return entry;
}

core_entry *core_acquire(const core_key *key)
{
  const uint64_t hash = hash_of(key);
  core_entry *entry = find(key, hash);
  if (entry) {
    hits++;
    if (entry != newest) unlink_age(entry), link_newest(entry);
  } else {
    misses++;
    entry = make(key, hash);
  }
  if (entry) entry->pins++;
  return entry;
}

void core_release(core_entry *entry)
{
  if (--entry->pins == 0 && entry->forgotten) destroy(entry);
}

void core_forget(const tglu_context *context)
{
  for (core_entry *entry = newest, *older; entry; entry = older) {
    older = entry->older;
    if (!context || entry->key.context == context) forget(entry);
  }
}

PyObject *core_cache_info(PyObject *self, PyObject *ignored)
{
  (void)self, (void)ignored;
  return Py_BuildValue("{s:L,s:L,s:L,s:L}", "entries", (long long)entries, "limit",
                       (long long)limit, "hits", (long long)hits, "misses",
                       (long long)misses);
}

PyObject *core_cache_limit(PyObject *self, PyObject *given)
{
  (void)self;
  const long long wanted = PyLong_AsLongLong(given);
  if (wanted == -1 && PyErr_Occurred()) return NULL;
  if (wanted < 1)
    return PyErr_Format(PyExc_ValueError, "limit: %lld is below 1", wanted);
  limit = wanted;
  while (entries > limit) forget(oldest);
  Py_RETURN_NONE;
}

PyObject *core_cache_clear(PyObject *self, PyObject *ignored)
{
  (void)self, (void)ignored;
  core_forget(NULL);
  Py_RETURN_NONE;
}
