/* The problems of verify --quick and --full: every type, activation, layout and op,
 * with sizes, biases, strides and addresses drawn from a seed. */
#ifndef CLI_SWEEP_H
#define CLI_SWEEP_H

#include <stddef.h>
#include <stdint.h>

#include "options.h"

size_t sweep_count(int full);
spec sweep_at(size_t index, int full, uint64_t seed);

#endif /* CLI_SWEEP_H */
