/* Memory for the command itself.  A failed request ends the program with a message
 * and CLI_RUNTIME: nothing a command line tool does then is of use to anyone.
 * Weights and results are asked for with guard.h, which reports instead. */
#ifndef CLI_MEM_H
#define CLI_MEM_H

#include <stddef.h>

void *mem_zeroed(size_t count, size_t bytes);
void *mem_resize(void *pointer, size_t bytes);
__attribute__((format(printf, 1, 2)))
char *mem_text(const char *format, ...);
void mem_free(void *pointer); /* accepts NULL */

#endif /* CLI_MEM_H */
