// The text form of a schedule (see truth.h).
#include "truth.h"

#include <stdlib.h>
#include <string.h>

const Schedule DEFAULT_SCHEDULE = {.first_ms = 200, .gap_ms = 20, .chunks = 100, .tokens = 1, .role = 1, .merged = 1};

static int within(double value, int lowest, int highest) {
  if (!(value >= lowest)) return lowest;
  return value > highest ? highest : (int)value;
}

static bool set(Schedule *schedule, char letter, double value) {
  const double longest_ms = 3600e3;
  double ms = value > 0 ? (value > longest_ms ? longest_ms : value) : 0;
  switch (letter) {
    case 't': schedule->first_ms = ms; return true;
    case 'g': schedule->gap_ms = ms; return true;
    case 'n': schedule->chunks = within(value, 1, MAX_CHUNKS); return true;
    case 'k': schedule->tokens = within(value, 1, MAX_TOKENS); return true;
    case 'r': schedule->role = within(value, 0, 2); return true;
    case 'c': schedule->merged = within(value, 1, MAX_MERGED); return true;
    case 'p': schedule->phase = value != 0; return true;
    case 's': schedule->step = value != 0; return true;
    case 'x': schedule->split = value != 0; return true;
    case 'f': schedule->finish_last = value != 0; return true;
    default: return false;
  }
}

bool read_schedule(Schedule *schedule, const char *text, size_t length) {
  const char *end = text + length;
  while (text < end) {
    const char *hyphen = memchr(text, '-', (size_t)(end - text));
    const char *stop = hyphen ? hyphen : end;
    char number[24] = "", *rest;
    size_t digits = (size_t)(stop - text) - 1;
    if (stop == text || digits == 0 || digits >= sizeof number) return false;
    memcpy(number, text + 1, digits);
    double value = strtod(number, &rest);
    if (*rest || !set(schedule, *text, value)) return false;
    text = hyphen ? stop + 1 : end;
  }
  return true;
}
