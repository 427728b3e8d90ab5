/* JSON, checked.  Jansson parses every key and value; the walk over a large object's
 * members is done here, so that memory does not grow with a hostile header. */
#include "model_internal.h"

#include <string.h>

typedef struct cursor {
  const char *file, *what;
  const char *start, *at, *end;
} cursor;

static tglu_status syntax(const cursor *c, const char *rule)
{
  return tglu__fail(TGLU_ERR_FORMAT, "%s: %s is not valid JSON: %s at byte %zu",
                    tglu__show_path(c->file).text, c->what, rule,
                    (size_t)(c->at - c->start));
}

static void skip_space(cursor *c)
{
  while (c->at < c->end
         && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) {
    c->at++;
  }
}

static bool next_is(const cursor *c, char byte) { return c->at < c->end && *c->at == byte; }

/* Steps over a string, quotes included; what is in it is Jansson's to check. */
static tglu_status skip_string(cursor *c)
{
  c->at++;
  while (c->at < c->end && *c->at != '"') {
    if (*c->at == '\\') {
      c->at++;
      if (c->at == c->end) break;
    }
    c->at++;
  }
  if (c->at >= c->end) return syntax(c, "a string has no end");
  c->at++;
  return TGLU_OK;
}

static tglu_status skip_nested(cursor *c, int max_depth)
{
  int depth = 0;
  while (c->at < c->end) {
    char byte = *c->at;
    if (byte == '"') {
      tglu_status status = skip_string(c);
      if (status != TGLU_OK) return status;
      continue;
    }
    if (byte == '{' || byte == '[') {
      if (++depth > max_depth) return syntax(c, "it is nested too deeply");
    } else if (byte == '}' || byte == ']') {
      depth--;
    }
    c->at++;
    if (depth == 0) return TGLU_OK;
  }
  return syntax(c, "an object or array has no end");
}

/* Extent of the value at the cursor: a string, a nested value or a run of others. */
static tglu_status skip_value(cursor *c, int max_depth)
{
  if (c->at == c->end) return syntax(c, "a value is missing");
  if (*c->at == '"') return skip_string(c);
  if (*c->at == '{' || *c->at == '[') return skip_nested(c, max_depth);
  const char *begin = c->at;
  while (c->at < c->end && !memchr(",}] \t\r\n", *c->at, 8)) c->at++;
  return c->at == begin ? syntax(c, "a value is missing") : TGLU_OK;
}

/* The key whose closing quote is the last byte before `position`, decoded.  The
 * opening quote is the nearest one behind an even number of backslashes. */
static json_t *key_before(tglu__span text, size_t position)
{
  if (position < 2 || position > text.length || text.at[position - 1] != '"') return NULL;
  size_t open = position - 1;
  while (open > 0) {
    open--;
    if (text.at[open] != '"') continue;
    size_t slashes = 0;
    while (slashes < open && text.at[open - 1 - slashes] == '\\') slashes++;
    if (slashes % 2 == 0) break;
  }
  json_error_t ignored;
  return json_loadb(text.at + open, position - open, JSON_DECODE_ANY, &ignored);
}

static tglu_status load_failed(const char *file, const char *what, tglu__span text,
                               const json_error_t *error)
{
  enum json_error_code code = json_error_code(error);
  if (code == json_error_out_of_memory || error->text[0] == '\0') {
    return tglu__no_memory(file);
  }
  if (code == json_error_duplicate_key) {
    json_t *key = key_before(text, error->position > 0 ? (size_t)error->position : 0);
    const char *name = json_string_value(key);
    tglu_status status =
        tglu__fail(TGLU_ERR_FORMAT, "%s: duplicate key %s in %s",
                   tglu__show_path(file).text, tglu__show(name ? name : "?").text, what);
    json_decref(key);
    return status;
  }
  return tglu__fail(TGLU_ERR_FORMAT, "%s: %s is not valid JSON: %s at line %d, column %d",
                    tglu__show_path(file).text, what, tglu__show(error->text).text,
                    error->line, error->column);
}

/* ---- what Jansson may lose ----
 * When a string outgrows Jansson's buffer and there is no memory for a larger one, the
 * rest of the string is dropped without an error.  So the bytes of all strings are
 * counted in the text and in what came of it. */
static unsigned hex4(const char *at)
{
  unsigned value = 0;
  for (int i = 0; i < 4; i++) {
    unsigned digit = (unsigned char)at[i];
    value = value * 16 + (digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
  }
  return value;
}

/* Decoded bytes of every string in a text that Jansson accepted. */
static size_t text_bytes(tglu__span text)
{
  size_t bytes = 0;
  bool inside = false;
  for (size_t i = 0; i < text.length; i++) {
    char byte = text.at[i];
    if (byte == '"') {
      inside = !inside;
    } else if (inside && byte == '\\' && text.length - i > 5 && text.at[i + 1] == 'u') {
      unsigned code = hex4(text.at + i + 2);
      bool half = code >= 0xd800 && code < 0xe000; /* of a pair that makes 4 bytes */
      bytes += half ? 2 : code < 0x80 ? 1 : code < 0x800 ? 2 : 3;
      i += 5;
    } else if (inside) {
      i += byte == '\\';
      bytes++;
    }
  }
  return bytes;
}

static size_t tree_bytes(const json_t *value)
{
  size_t bytes = json_string_length(value), i;
  json_t *item;
  const char *key;
  json_array_foreach(value, i, item) bytes += tree_bytes(item);
  json_object_foreach((json_t *)(uintptr_t)value, key, item) {
    bytes += strlen(key) + tree_bytes(item);
  }
  return bytes;
}

/* Jansson's parse, or NULL with the message set. */
static json_t *load(const char *file, const char *what, tglu__span text, size_t flags,
                    tglu_status *status)
{
  json_error_t error;
  json_t *value = json_loadb(text.at, text.length,
                             flags | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
  *status = TGLU_OK;
  if (!value) {
    *status = load_failed(file, what, text, &error);
  } else if (text_bytes(text) != tree_bytes(value)) {
    *status = tglu__no_memory(file);
    json_decref(value);
    value = NULL;
  }
  return value;
}

tglu_status tglu__json_load(const char *file, const char *what, tglu__span text,
                            int max_depth, size_t flags, json_t **out)
{
  *out = NULL;
  cursor c = {file, what, text.at, text.at, text.at + text.length};
  skip_space(&c);
  tglu_status status = skip_value(&c, max_depth);
  if (status != TGLU_OK) return status;
  *out = load(file, what, text, flags, &status);
  return status;
}

static tglu_status one_member(cursor *c, int max_depth, tglu__member_fn fn, void *user)
{
  if (!next_is(c, '"')) return syntax(c, "a key in quotes is missing");
  tglu__span key_text = {c->at, 0};
  tglu_status status = skip_string(c);
  if (status != TGLU_OK) return status;
  key_text.length = (size_t)(c->at - key_text.at);
  skip_space(c);
  if (!next_is(c, ':')) return syntax(c, "a colon is missing");
  c->at++;
  skip_space(c);
  tglu__span value = {c->at, 0};
  status = skip_value(c, max_depth);
  if (status != TGLU_OK) return status;
  value.length = (size_t)(c->at - value.at);

  json_t *key = load(c->file, c->what, key_text, 0, &status);
  if (!key) return status;
  status = fn(user, json_string_value(key), value);
  json_decref(key);
  return status;
}

tglu_status tglu__json_members(const char *file, const char *what, tglu__span text,
                               int max_depth, tglu__member_fn fn, void *user)
{
  cursor c = {file, what, text.at, text.at, text.at + text.length};
  skip_space(&c);
  if (!next_is(&c, '{')) return syntax(&c, "it is no object in {}");
  c.at++;
  skip_space(&c);
  if (next_is(&c, '}')) {
    c.at++;
  } else {
    for (;;) {
      tglu_status status = one_member(&c, max_depth, fn, user);
      if (status != TGLU_OK) return status;
      skip_space(&c);
      if (!next_is(&c, ',') && !next_is(&c, '}')) {
        return syntax(&c, "a comma or a closing brace is missing");
      }
      if (*c.at++ == '}') break;
      skip_space(&c);
    }
  }
  skip_space(&c);
  return c.at == c.end ? TGLU_OK : syntax(&c, "something follows the closing brace");
}
