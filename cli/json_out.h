/* Strict JSON for programs: numbers that JSON cannot hold become null. */
#ifndef CLI_JSON_OUT_H
#define CLI_JSON_OUT_H

#include <jansson.h>
#include <stdint.h>

/* Each sets object[key].  text may be NULL (null); bytes of it that are no UTF-8
 * become "?". */
void jo_int(json_t *object, const char *key, int64_t value);
void jo_real(json_t *object, const char *key, double value);
void jo_bool(json_t *object, const char *key, int value);
void jo_text(json_t *object, const char *key, const char *text);

/* A document's beginning: {"tileglu": version, "command": ...}. */
json_t *jo_document(const char *command);
/* Prints it on stdout with a newline and frees it.  Returns an exit code. */
int jo_print(json_t *document);

#endif /* CLI_JSON_OUT_H */
