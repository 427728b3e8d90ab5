/* Sizes of the CPU's caches. */
#ifndef CLI_CACHE_H
#define CLI_CACHE_H

/* Bytes of the level 2 or 3 cache that one CPU sees, 0 if unknown. */
double cache_level_bytes(int level);

#endif /* CLI_CACHE_H */
