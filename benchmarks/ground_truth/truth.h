// A streaming server that writes down the truth: shared declarations, the schedule's text form, and the log's format.
//
// The server speaks as much HTTP/1.1 and as much of the OpenAI API as a load generator needs:
//   POST /v1/chat/completions, POST /v1/completions   an event stream on a schedule (Content-Length bodies only)
//   GET  /v1/models, GET /health                      so that tools believe it is a server
//
// A request's schedule comes from, the later the stronger: the option --schedule; `max_tokens` or
// `max_completion_tokens` in the body (chunks = tokens asked for / tokens per chunk); the model's name, where it begins
// with "truth-". The text form is letters with numbers between hyphens, such as truth-t200-g20-n100-k1-p1:
//   t  ms from the request's last byte to the first chunk       g  ms from chunk to chunk (decimals allowed: g2.5)
//   n  chunks                                                   k  tokens per chunk
//   r  role-only event: 1 with the first chunk (default), 2 at once, 0 never
//   p1 each request is put off by a part of one gap, so that streams do not beat together
//   s1 step mode: all streams send on the same tick, as continuous batching does
//   x1 each chunk is cut into two sends                         c  most chunks in one send, when behind
//   f1 the finish_reason stands in the last chunk, not in an event of its own
#ifndef TRUTH_H
#define TRUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// ---- the log: native byte order, one record per request, in the order in which the requests ended

#define LOG_MAGIC 0x4854555254544c31ull

typedef struct {
  uint64_t magic;
  uint64_t request;    // its number; the response id is "chatcmpl-<number>" or "cmpl-<number>"
  int64_t arrived_ns;  // the kernel received the request: its own stamp, carried over to CLOCK_MONOTONIC
  int64_t read_ns;     // the whole request had been read
  int64_t due_ns;      // when the first chunk was planned for
  int64_t gap_ns;      // planned distance of the chunks
  int32_t chunks;      // chunks sent: as many int64_t follow
  int32_t planned;     // chunks that were to be sent
  int32_t tokens;      // tokens per chunk
  int32_t delayed;     // chunks that the kernel did not take at once
} LogRecord;           // then, per chunk, sent_ns: CLOCK_MONOTONIC right before the send() that completed it

// ---- limits: a mistake in a test must not take the machine down

enum {
  MAX_CONNECTIONS = 16384,
  MAX_REQUEST = 1 << 20,  // bytes of head and body
  MAX_CHUNKS = 1000000,
  MAX_TOKENS = 64,  // per chunk
  MAX_MERGED = 256,
  EVENT_SPACE = 2048,  // bytes that an event never fills: names are cut, tokens are limited
};

#define SECOND_NS INT64_C(1000000000)

static inline int64_t now_ns(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (int64_t)at.tv_sec * SECOND_NS + at.tv_nsec;
}

// ---- schedules (schedule.c)

typedef struct {
  double first_ms, gap_ms;
  int chunks, tokens, role, merged;
  bool phase, step, split, finish_last;
} Schedule;

extern const Schedule DEFAULT_SCHEDULE;

// Read the text form into a schedule, bringing numbers into their limits. Return whether every letter was known.
bool read_schedule(Schedule *schedule, const char *text, size_t length);

// ---- answers (answers.c)

typedef struct {
  uint64_t number;
  Schedule plan;
  bool chat;         // or a plain completion
  bool usage;        // the closing usage was asked for
  bool usage_each;   // the running usage was asked for
  int prompt_tokens; // words of the body
  char model[96];
  char start[320];   // what every event of this answer begins with
  int start_length;
} Answer;

// Fill an answer from a request's body. Return false when the schedule in the model's name cannot be read.
bool plan_answer(Answer *answer, const Schedule *fallback, uint64_t number, bool chat, const char *body, size_t length);

// Each writes HTTP chunks to `out` and returns their length; `out` has room for EVENT_SPACE per event.
int put_head(char *out);
int put_role(char *out, const Answer *answer);
int put_chunk(char *out, const Answer *answer, int index);
int put_tail(char *out, const Answer *answer);  // finish, closing usage, [DONE] and the end: 4 events at most

// ---- turns (turns.c)

void *grown(void *memory, size_t bytes);  // realloc that ends the program when there is no memory
void add_turn(int64_t at_ns, void *what);
int64_t next_turn_ns(void);  // INT64_MAX: nothing waits
void *take_turn(void);       // what next_turn_ns() spoke of; something must wait

// ---- TLS (tls.c, or none): bytes are turned in memory, so that the send() itself stays the caller's

typedef struct Tls Tls;

bool tls_available(void);
bool tls_load(const char *certificate, const char *key);  // false: a sentence was printed
Tls *tls_new(void);
void tls_free(Tls *tls);
// Feed what came from the socket; plaintext is appended through `take`. False: the peer closed or broke the protocol.
bool tls_feed(Tls *tls, const char *data, size_t length, void (*take)(void *, const char *, size_t), void *context);
void tls_write(Tls *tls, const char *data, size_t length);
size_t tls_pending(Tls *tls);  // bytes to be sent
size_t tls_take(Tls *tls, char *out, size_t space);

#endif
