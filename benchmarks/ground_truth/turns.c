// A heap of things by the time at which their turn comes.
#include "truth.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct {
  int64_t at_ns;
  void *what;
} Turn;

static Turn *heap;
static int length, space;

void *grown(void *memory, size_t bytes) {
  void *result = realloc(memory, bytes);
  if (!result) fputs("out of memory\n", stderr), exit(1);
  return result;
}

static void exchange(int a, int b) {
  Turn kept = heap[a];
  heap[a] = heap[b], heap[b] = kept;
}

void add_turn(int64_t at_ns, void *what) {
  if (length == space) heap = grown(heap, (size_t)(space = space * 2 + 64) * sizeof *heap);
  int at = length++;
  heap[at] = (Turn){at_ns, what};
  for (; at && heap[at].at_ns < heap[(at - 1) / 2].at_ns; at = (at - 1) / 2) exchange(at, (at - 1) / 2);
}

int64_t next_turn_ns(void) { return length ? heap[0].at_ns : INT64_MAX; }

void *take_turn(void) {
  void *what = heap[0].what;
  heap[0] = heap[--length];
  for (int at = 0;;) {
    int first = at, left = 2 * at + 1;
    if (left < length && heap[left].at_ns < heap[first].at_ns) first = left;
    if (left + 1 < length && heap[left + 1].at_ns < heap[first].at_ns) first = left + 1;
    if (first == at) return what;
    exchange(at, first), at = first;
  }
}
