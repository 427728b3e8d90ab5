/* Lists of kernel rows by name, as --rows takes them: names joined by commas, each whole or
 * without the part that all rows of a type share ("paired_coop_128x72_s6_c1"). */
#ifndef CLI_ROW_NAMES_H
#define CLI_ROW_NAMES_H

/* "glu_bf16_sm90_paired_coop_128x72_s6_c1" -> "paired_coop_128x72_s6_c1"; rows of the CPU have
 * no short name. */
const char *row_short_name(const char *row);

/* Whether the list names this row. */
int row_names_hold(const char *names, const char *row);

/* The first name of the list that is neither of the words, which end with NULL, nor of the
 * rows; its length, 0: all are.  An empty name counts as one, of length -1. */
int row_names_unknown(const char *names, const char *const *words, const char *const *rows,
                      int count, const char **name);

/* An exit code for --rows, which takes one of the words or a list of names: refuses the first
 * name that is neither, or a word in a list.  rows: those of op that can be used. */
int row_names_check(const char *names, const char *const *words, const char *const *rows,
                    int count, const char *op);

#endif /* CLI_ROW_NAMES_H */
