#include "json_out.h"

#include <math.h>
#include <stdio.h>

#include <tileglu/tileglu.h>

#include "cli.h"
#include "mem.h"

void jo_int(json_t *object, const char *key, int64_t value) {
  json_object_set_new(object, key, json_integer(value));
}

void jo_real(json_t *object, const char *key, double value) {
  json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

void jo_bool(json_t *object, const char *key, int value) {
  json_object_set_new(object, key, json_boolean(value));
}

void jo_text(json_t *object, const char *key, const char *text) {
  json_t *value = text ? json_string(text) : json_null();
  if (!value) { /* no UTF-8 */
    char *plain = mem_text("%s", text);
    for (char *p = plain; *p; p++) {
      if ((unsigned char)*p > 126) *p = '?';
    }
    value = json_string(plain);
    mem_free(plain);
  }
  json_object_set_new(object, key, value);
}

json_t *jo_document(const char *command) {
  json_t *document = json_object();
  jo_text(document, "tileglu", tglu_version_string());
  jo_text(document, "command", command);
  return document;
}

int jo_print(json_t *document) {
  int failed = json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
  json_decref(document);
  if (failed) return cli_error(CLI_RUNTIME, "could not write JSON");
  putchar('\n');
  return CLI_OK;
}
