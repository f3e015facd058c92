// What an answer consists of: events of an OpenAI-compatible stream, each as one HTTP chunk.
//
// Of a request's JSON only a few members matter; they are found by their quoted names. Inside a JSON string such a name
// would have its quotes escaped, so that a prompt cannot be taken for one.
#define _GNU_SOURCE
#include "truth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const WORDS[] = {
    "the",  "of",   "and",  "to",    "in",   "is",   "you",   "that", "it",   "he",   "was",  "for",   "on",   "are",  "as",   "with",
    "his",  "they", "at",   "be",    "this", "have", "from",  "or",   "one",  "had",  "by",   "word",  "but",  "not",  "what", "all",
    "were", "we",   "when", "your",  "can",  "said", "there", "use",  "an",   "each", "which", "she",  "do",   "how",  "their", "if",
    "will", "up",   "other", "about", "out", "many", "then",  "them", "these", "so",  "some", "her",   "would", "make", "like", "him",
};
enum { WORD_COUNT = sizeof WORDS / sizeof *WORDS };

// ---- reading the request

static const char *member(const char *body, const char *end, const char *quoted_name) {
  size_t length = strlen(quoted_name);
  const char *found = memmem(body, (size_t)(end - body), quoted_name, length);
  if (!found) return NULL;
  found += length;
  while (found < end && strchr(" \t\r\n:", *found)) found++;
  return found < end ? found : NULL;
}

static bool is_true(const char *body, const char *end, const char *quoted_name) {
  const char *value = member(body, end, quoted_name);
  return value && *value == 't';
}

static int number_of(const char *body, const char *end, const char *quoted_name) {
  const char *value = member(body, end, quoted_name);
  char digits[16] = "";
  for (size_t i = 0; value && value + i < end && i < sizeof digits - 1; i++) digits[i] = value[i];
  return atoi(digits);
}

static void copy_model(char *model, size_t space, const char *body, const char *end) {
  const char *value = member(body, end, "\"model\"");
  size_t length = 0;
  if (value && *value == '"')
    for (value++; value + length < end && value[length] != '"' && length < space - 1; length++) model[length] = value[length];
  model[length] = 0;
}

bool plan_answer(Answer *answer, const Schedule *fallback, uint64_t number, bool chat, const char *body, size_t length) {
  const char *end = body + length;
  *answer = (Answer){.number = number, .plan = *fallback, .chat = chat, .prompt_tokens = 1};
  copy_model(answer->model, sizeof answer->model, body, end);
  int tokens = number_of(body, end, "\"max_completion_tokens\"");
  if (tokens <= 0) tokens = number_of(body, end, "\"max_tokens\"");
  if (tokens > 0) answer->plan.chunks = 0;  // the name may say; else the tokens do, once those of a chunk are known
  static const char PREFIX[] = "truth-";
  if (!strncmp(answer->model, PREFIX, sizeof PREFIX - 1)) {
    const char *text = answer->model + sizeof PREFIX - 1;
    if (!read_schedule(&answer->plan, text, strlen(text))) return false;
  }
  if (!answer->plan.chunks) answer->plan.chunks = (tokens + answer->plan.tokens - 1) / answer->plan.tokens;
  if (answer->plan.chunks > MAX_CHUNKS) answer->plan.chunks = MAX_CHUNKS;
  answer->usage = is_true(body, end, "\"include_usage\"");
  answer->usage_each = is_true(body, end, "\"continuous_usage_stats\"");
  for (const char *at = body; at < end; at++) answer->prompt_tokens += *at == ' ';
  answer->start_length = snprintf(
      answer->start, sizeof answer->start,
      "data: {\"id\":\"%s-%llu\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"%s\",\"choices\":[",
      chat ? "chatcmpl" : "cmpl", (unsigned long long)number, chat ? "chat.completion.chunk" : "text_completion",
      answer->model);
  return true;
}

// ---- writing events

static char *copied(char *out, const char *text, size_t length) {
  memcpy(out, text, length);
  return out + length;
}
#define LITERAL(out, text) copied(out, text, sizeof(text) - 1)

static char *put_number(char *out, int value) {
  char digits[12];
  int count = 0;
  do digits[count++] = (char)('0' + value % 10);
  while ((value /= 10));
  while (count) *out++ = digits[--count];
  return out;
}

static char *put_usage(char *out, const Answer *answer, int completion) {
  out = LITERAL(out, ",\"usage\":{\"prompt_tokens\":");
  out = put_number(out, answer->prompt_tokens);
  out = LITERAL(out, ",\"total_tokens\":");
  out = put_number(out, answer->prompt_tokens + completion);
  out = LITERAL(out, ",\"completion_tokens\":");
  out = put_number(out, completion);
  return LITERAL(out, "}");
}

static char *put_words(char *out, const Answer *answer, int index) {
  for (int i = 0; i < answer->plan.tokens; i++) {
    const char *word = WORDS[((index * answer->plan.tokens + i) * 7 + index) % WORD_COUNT];
    *out++ = ' ';
    out = copied(out, word, strlen(word));
  }
  return out;
}

// Put `length` bytes, which stand behind room for the size line, into an HTTP chunk.
enum { SIZE_LINE = 5 };  // three hex digits, CR, LF: events have fewer than 4096 bytes
static int framed(char *out, char *end) {
  static const char HEX[] = "0123456789abcdef";
  size_t length = (size_t)(end - out) - SIZE_LINE;
  out[0] = HEX[length >> 8 & 15], out[1] = HEX[length >> 4 & 15], out[2] = HEX[length & 15];
  out[3] = '\r', out[4] = '\n';
  return (int)(LITERAL(end, "\r\n") - out);
}

static char *start_event(char *out, const Answer *answer) {
  return copied(out + SIZE_LINE, answer->start, (size_t)answer->start_length);
}

static int end_event(char *out, char *end, const Answer *answer, int tokens_so_far) {
  if (answer->usage_each) end = put_usage(end, answer, tokens_so_far);
  return framed(out, LITERAL(end, "}\n\n"));
}

int put_head(char *out) {
  return (int)(LITERAL(out, "HTTP/1.1 200 OK\r\ndate: Tue, 01 Jan 2030 00:00:00 GMT\r\nserver: uvicorn\r\n"
                            "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n") -
               out);
}

int put_role(char *out, const Answer *answer) {
  char *end = start_event(out, answer);
  end = LITERAL(end, "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]");
  return end_event(out, end, answer, 0);
}

int put_chunk(char *out, const Answer *answer, int index) {
  char *end = start_event(out, answer);
  end = answer->chat ? LITERAL(end, "{\"index\":0,\"delta\":{\"content\":\"") : LITERAL(end, "{\"index\":0,\"text\":\"");
  end = put_words(end, answer, index);
  end = answer->chat ? LITERAL(end, "\"}") : LITERAL(end, "\"");
  bool last = answer->plan.finish_last && index == answer->plan.chunks - 1;
  end = last ? LITERAL(end, ",\"logprobs\":null,\"finish_reason\":\"length\"}]")
             : LITERAL(end, ",\"logprobs\":null,\"finish_reason\":null}]");
  return end_event(out, end, answer, (index + 1) * answer->plan.tokens);
}

int put_tail(char *out, const Answer *answer) {
  int total = answer->plan.chunks * answer->plan.tokens, length = 0;
  if (!answer->plan.finish_last) {
    char *end = start_event(out, answer);
    end = answer->chat ? LITERAL(end, "{\"index\":0,\"delta\":{}") : LITERAL(end, "{\"index\":0,\"text\":\"\"");
    end = LITERAL(end, ",\"logprobs\":null,\"finish_reason\":\"length\"}]");
    length += end_event(out, end, answer, total);
  }
  if (answer->usage) {
    char *end = put_usage(LITERAL(start_event(out + length, answer), "]"), answer, total);
    length += framed(out + length, LITERAL(end, "}\n\n"));
  }
  length += framed(out + length, LITERAL(out + length + SIZE_LINE, "data: [DONE]\n\n"));
  return (int)(LITERAL(out + length, "0\r\n\r\n") - out);
}
