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

tglu_status tglu__json_load(const char *file, const char *what, tglu__span text,
                            int max_depth, size_t flags, json_t **out)
{
  *out = NULL;
  cursor c = {file, what, text.at, text.at, text.at + text.length};
  skip_space(&c);
  tglu_status status = skip_value(&c, max_depth);
  if (status != TGLU_OK) return status;
  json_error_t error;
  *out = json_loadb(text.at, text.length,
                    flags | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
  return *out ? TGLU_OK : load_failed(file, what, text, &error);
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

  json_error_t error;
  json_t *key = json_loadb(key_text.at, key_text.length, JSON_DECODE_ANY, &error);
  if (!key) return load_failed(c->file, c->what, key_text, &error);
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
