#include "buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MARGIN = 256 }; /* sentinel bytes beside the data at least, when inside */

unsigned char tt_pattern(int64_t offset) {
  const uint64_t mixed = (uint64_t)offset * UINT64_C(0x9e3779b97f4a7c15);
  return (unsigned char)((mixed >> 56) ^ 0xa5);
}

static size_t page_bytes(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

static unsigned char *body_of(const tt_buffer *buffer) {
  return buffer->map + page_bytes();
}

static unsigned char *body_end_of(const tt_buffer *buffer) {
  return buffer->map + buffer->map_bytes - page_bytes();
}

void tt_buffer_create(tt_buffer *buffer, size_t bytes, tt_place place, size_t misalign) {
  const size_t page = page_bytes();
  const size_t margins = place == TT_PLACE_INSIDE ? 2 * MARGIN + misalign : 0;
  const size_t body = (bytes + margins + page - 1) / page * page + (bytes == 0 ? page : 0);
  buffer->bytes = bytes;
  buffer->map_bytes = body + 2 * page;
  buffer->map = mmap(NULL, buffer->map_bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (buffer->map == MAP_FAILED ||
      mprotect(buffer->map + page, body, PROT_READ | PROT_WRITE) != 0) {
    perror("tt_buffer_create");
    exit(2);
  }
  switch (place) {
    case TT_PLACE_INSIDE: buffer->data = body_of(buffer) + MARGIN + misalign; break;
    case TT_PLACE_END: buffer->data = body_end_of(buffer) - bytes; break;
    case TT_PLACE_START: buffer->data = body_of(buffer); break;
  }
  for (unsigned char *at = body_of(buffer); at < buffer->data; at++) {
    *at = tt_pattern(at - buffer->data);
  }
  memset(buffer->data, 0xff, bytes);
  for (unsigned char *at = buffer->data + bytes; at < body_end_of(buffer); at++) {
    *at = tt_pattern(at - buffer->data);
  }
}

void tt_buffer_destroy(tt_buffer *buffer) {
  if (buffer->map != NULL) munmap(buffer->map, buffer->map_bytes);
  memset(buffer, 0, sizeof *buffer);
}

bool tt_buffer_intact(const tt_buffer *buffer, int64_t *offset) {
  for (unsigned char *at = body_of(buffer); at < body_end_of(buffer); at++) {
    if (at == buffer->data) at += buffer->bytes;
    if (at == body_end_of(buffer)) break;
    if (*at != tt_pattern(at - buffer->data)) {
      *offset = at - buffer->data;
      return false;
    }
  }
  return true;
}

uint64_t tt_hash(const void *data, size_t bytes) {
  const unsigned char *at = data;
  uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ bytes;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
  }
  for (; bytes > 0; bytes--, at++) hash = (hash ^ *at) * UINT64_C(0x100000001b3);
  return hash;
}
