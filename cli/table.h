/* Tables for people: cells are formatted in order, columns get their width from
 * the widest cell. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdio.h>

typedef struct table table;

/* heads: one string a column, NULL-terminated; one that begins with '<' makes its
 * column left-aligned (the mark is not printed).  Never fails: out of memory ends
 * the program with CLI_RUNTIME. */
table *table_new(const char *const *heads);
__attribute__((format(printf, 2, 3)))
void table_cell(table *t, const char *format, ...);
void table_print(const table *t, FILE *stream);
void table_free(table *t);

#endif /* CLI_TABLE_H */
