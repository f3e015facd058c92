// The floor: what reading streams costs at least. A client in C, one thread, epoll, that reads as many events as a client
// must, keeps the kernel's stamp of each, and parses no more of them than it needs to tell tokens from the rest.
//
//   reader PORT STREAMS SECONDS RAMP MODEL USAGE FILE [--cpu N] [--realtime PRIORITY]
//
// Keeps STREAMS requests in flight for SECONDS, started over the first RAMP seconds. FILE gets the server's log format,
// with arrived_ns = when the request was sent and the chunks' times of arrival. USAGE 1 asks for it in each chunk.
// Prints one JSON object: begin_ns, end_ns, cpu_s, waited_s, requests, chunks, errors.
#define _GNU_SOURCE
#include "truth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <signal.h>
#include <unistd.h>

enum { CARRY = 4096, READ = 1 << 16 };

typedef struct {
  int socket, space;
  LogRecord record;
  int64_t *at_ns;
  char carry[CARRY];  // the beginning of an event whose end has not come
  size_t carried;
} Stream;

static struct { int port, streams; double seconds, ramp_s; const char *model; bool usage; } asked;
static char request[1024];
static int request_length, poller;
static FILE *out;
static long chunks, requests, errors;

void *grown(void *memory, size_t bytes) {
  void *result = realloc(memory, bytes);
  if (!result) exit(1);
  return result;
}

static double cpu_s(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static long long waited_ns(void) {  // ready to run, without a core
  long long ran = 0, waited = 0;
  FILE *file = fopen("/proc/self/schedstat", "r");
  if (file && fscanf(file, "%lld %lld", &ran, &waited) != 2) waited = 0;
  if (file) fclose(file);
  return waited;
}

static void make_request(void) {
  char body[512];
  int length = snprintf(body, sizeof body,
                        "{\"model\":\"%s\",\"stream\":true,\"stream_options\":{\"include_usage\":true%s},\"messages\":"
                        "[{\"role\":\"user\",\"content\":\"hello there\"}]}",
                        asked.model, asked.usage ? ",\"continuous_usage_stats\":true" : "");
  request_length = snprintf(request, sizeof request,
                            "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                            "Content-Length: %d\r\n\r\n%s", length, body);
}

static void ask(Stream *stream) {
  stream->record = (LogRecord){.magic = LOG_MAGIC, .tokens = 1, .arrived_ns = now_ns()};
  stream->carried = 0;
  if (send(stream->socket, request, (size_t)request_length, MSG_NOSIGNAL) != request_length) errors++;
}

static bool open_stream(Stream *stream) {
  int one = 1;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)asked.port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  stream->socket = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(stream->socket, (void *)&address, sizeof address)) return perror("reader"), false;
  setsockopt(stream->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(stream->socket, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = stream};
  epoll_ctl(poller, EPOLL_CTL_ADD, stream->socket, &event);
  ask(stream);
  return true;
}

static void take_event(Stream *stream, const char *event, const char *end, int64_t at_ns) {
  size_t length = (size_t)(end - event);
  if (!stream->record.request) {
    const char *id = memmem(event, length, "cmpl-", 5);
    if (id) stream->record.request = strtoull(id + 5, NULL, 10);
  }
  static const char CONTENT[] = "\"content\":\"";
  const char *text = memmem(event, length, CONTENT, sizeof CONTENT - 1);
  if (!text || text[sizeof CONTENT - 1] == '"') return;
  if (stream->record.chunks == stream->space)
    stream->at_ns = grown(stream->at_ns, (size_t)(stream->space = stream->space * 2 + 128) * sizeof *stream->at_ns);
  stream->at_ns[stream->record.chunks++] = at_ns;
  chunks++;
}

// Take apart what has come; return true at the end of an answer.
static bool take(Stream *stream, char *data, size_t length, int64_t at_ns) {
  char *event = data, *end = data + length, *next;
  while ((next = memmem(event, (size_t)(end - event), "\n\n", 2))) {
    take_event(stream, event, next, at_ns);
    event = next + 2;
  }
  if (end - event >= 5 && !memcmp(end - 5, "0\r\n\r\n", 5)) return true;
  stream->carried = (size_t)(end - event);
  if (stream->carried > CARRY) fputs("reader: an event is too long\n", stderr), exit(1);
  memcpy(stream->carry, event, stream->carried);
  return false;
}

// Read what is there. Return false when the stream is over and no other is to follow, or when it broke.
static bool on_readable(Stream *stream, int64_t until_ns) {
  static char data[CARRY + READ];
  char control[64];
  memcpy(data, stream->carry, stream->carried);
  struct iovec part = {data + stream->carried, READ};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t count = recvmsg(stream->socket, &message, MSG_DONTWAIT);
  if (count < 0 && errno == EAGAIN) return true;
  if (count <= 0) return errors++, close(stream->socket), false;
  int64_t at_ns = now_ns();
  struct cmsghdr *item = CMSG_FIRSTHDR(&message);
  if (item && item->cmsg_type == SCM_TIMESTAMPNS) {
    struct timespec stamp, wall;
    memcpy(&stamp, CMSG_DATA(item), sizeof stamp);
    clock_gettime(CLOCK_REALTIME, &wall);
    at_ns -= (wall.tv_sec - stamp.tv_sec) * SECOND_NS + (wall.tv_nsec - stamp.tv_nsec);
  }
  if (!take(stream, data, stream->carried + (size_t)count, at_ns)) return true;
  requests++;
  fwrite(&stream->record, sizeof stream->record, 1, out);
  fwrite(stream->at_ns, sizeof *stream->at_ns, (size_t)stream->record.chunks, out);
  if (now_ns() < until_ns) return ask(stream), true;
  return close(stream->socket), false;
}

static bool run(int64_t begin_ns) {
  Stream *streams = calloc((size_t)asked.streams, sizeof *streams);
  int64_t until_ns = begin_ns + (int64_t)(asked.seconds * 1e9), heard_ns = begin_ns;
  struct epoll_event events[256];
  int started = 0, left = asked.streams;
  while (streams && left > 0 && now_ns() - heard_ns < 20 * SECOND_NS) {
    while (started < asked.streams && now_ns() >= begin_ns + (int64_t)(asked.ramp_s * 1e9 * started / asked.streams))
      if (!open_stream(&streams[started++])) return false;
    int count = epoll_wait(poller, events, 256, started < asked.streams ? 1 : 1000);
    for (int i = 0; i < count; i++) left -= !on_readable(events[i].data.ptr, until_ns);
    if (count > 0) heard_ns = now_ns();
  }
  return left == 0;
}

int main(int count, char **words) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (count < 8) return fputs("reader PORT STREAMS SECONDS RAMP MODEL USAGE FILE [--cpu N] [--realtime PRIORITY]\n", stderr), 2;
  asked.port = atoi(words[1]), asked.streams = atoi(words[2]), asked.seconds = atof(words[3]);
  asked.ramp_s = atof(words[4]), asked.model = words[5], asked.usage = atoi(words[6]);
  for (int i = 8; i + 1 < count; i += 2) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)atoi(words[i + 1]), &one);
    struct sched_param priority = {.sched_priority = atoi(words[i + 1])};
    if (!strcmp(words[i], "--cpu") ? sched_setaffinity(0, sizeof one, &one) : sched_setscheduler(0, SCHED_RR, &priority))
      perror(words[i]);
  }
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  out = fopen(words[7], "wb");
  poller = epoll_create1(EPOLL_CLOEXEC);
  if (!out || poller < 0) return perror(words[7]), 1;
  make_request();
  double before_s = cpu_s();
  long long waited_before_ns = waited_ns();
  int64_t begin_ns = now_ns();
  bool whole = run(begin_ns);
  double used_s = cpu_s() - before_s;
  int64_t end_ns = now_ns();
  long long waited = waited_ns() - waited_before_ns;
  fclose(out);
  printf("{\"begin_ns\":%lld,\"end_ns\":%lld,\"cpu_s\":%.6f,\"waited_s\":%.6f,\"requests\":%ld,\"chunks\":%ld,\"errors\":%ld}\n",
         (long long)begin_ns, (long long)end_ns, used_s, (double)waited / 1e9, requests, chunks, errors + !whole);
  return 0;
}
