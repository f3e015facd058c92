// The server: one thread, epoll, a heap of turns. See truth.h for what it speaks and what it logs.
//
//   server --port N [--log FILE] [--schedule TEXT] [--cpu N] [--realtime PRIORITY] [--for SECONDS] [--tls CERT KEY]
//
// It listens on 127.0.0.1 alone; port 0 takes a free one. It prints "listening on PORT", and at its end one JSON object
// with its counts. It ends on SIGTERM or SIGINT, after --for seconds (default 600), and when its parent is gone.
#define _GNU_SOURCE
#include "truth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
  char *data;
  size_t length, space;
} Buffer;

typedef struct Connection {
  int socket;
  bool closed;           // its memory waits until nothing points at it
  bool answering;        // between a request and the end of its answer
  bool waiting;          // it has a turn
  bool role_due, tail_made;
  Tls *tls;
  Buffer in, out;
  size_t taken;          // of `out`, by the kernel
  int64_t next_ns;       // when the next chunk is due
  int made, sent;        // chunks put into `out`, chunks that the kernel has taken
  int64_t *sent_ns;
  int sent_space;
  int64_t arrived_ns;    // of the request that is being read; 0: none yet
  Answer answer;
  LogRecord record;
} Connection;

static int poller;
static FILE *log_file;
static Schedule fallback;
static bool with_tls;
static struct { uint64_t requests, chunks, sends, connections, delayed; int64_t latest_ns; } counts;
static int connection_count;
static volatile sig_atomic_t ending;
static char scratch[MAX_MERGED * EVENT_SPACE];

static void append(Buffer *buffer, const char *data, size_t length) {
  if (buffer->length + length + 1 > buffer->space) {
    buffer->space = (buffer->length + length + 1) * 2;
    buffer->data = grown(buffer->data, buffer->space);
  }
  memcpy(buffer->data + buffer->length, data, length);
  buffer->length += length;
}

// A connection that closed stays among the turns until its time has come.
static void wait_for_turn(Connection *c) {
  add_turn(c->next_ns, c);
  c->waiting = true;
}

// ---- closing; memory is freed between rounds of events, which may still name a closed connection

static Connection **dead;
static int dead_length, dead_space;

static void bury(Connection *c) {
  if (dead_length == dead_space) dead = grown(dead, (size_t)(dead_space = dead_space * 2 + 64) * sizeof *dead);
  dead[dead_length++] = c;
}

static void free_dead(void) {
  while (dead_length) {
    Connection *c = dead[--dead_length];
    free(c->in.data), free(c->out.data), free(c->sent_ns), free(c);
  }
}

static void end_answer(Connection *c) {
  if (!c->answering) return;
  c->answering = false;
  c->record.chunks = c->sent;
  if (!log_file) return;
  fwrite(&c->record, sizeof c->record, 1, log_file);
  fwrite(c->sent_ns, sizeof *c->sent_ns, (size_t)c->sent, log_file);
}

static void close_connection(Connection *c) {
  if (c->closed) return;
  end_answer(c);
  c->closed = true, connection_count--;
  close(c->socket);
  tls_free(c->tls);
  if (!c->waiting) bury(c);
}

// ---- sending

static void put(Connection *c, const char *data, size_t length) {
  if (!c->tls) {
    append(&c->out, data, length);
    return;
  }
  tls_write(c->tls, data, length);
}

static void collect_records(Connection *c) {
  if (!c->tls) return;
  char part[16384];
  while (tls_pending(c->tls)) append(&c->out, part, tls_take(c->tls, part, sizeof part));
}

static void watch(Connection *c, bool writable) {
  struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_MOD, c->socket, &event);
}

// Hand `out` to the kernel, noting the time for the chunks in it. False: the kernel has not taken it all, or it closed.
static bool transmit(Connection *c) {
  collect_records(c);
  while (c->taken < c->out.length) {
    size_t length = c->out.length - c->taken;
    if (c->answering && c->answer.plan.split && !c->taken && c->made > c->sent) length = (length + 1) / 2;
    int64_t at_ns = now_ns();
    ssize_t count = send(c->socket, c->out.data + c->taken, length, MSG_NOSIGNAL);
    counts.sends++;
    if (count < 0) {
      if (errno != EAGAIN) return close_connection(c), false;
      c->record.delayed += c->made - c->sent;
      counts.delayed += (uint64_t)(c->made - c->sent);
      return watch(c, true), false;
    }
    c->taken += (size_t)count;
    if (c->taken == c->out.length)
      while (c->sent < c->made) c->sent_ns[c->sent++] = at_ns;
  }
  c->taken = c->out.length = 0;
  return true;
}

static void serve_requests(Connection *c);

// All that was made has been taken: wait for the next chunk's time, or come to the end.
static void go_on(Connection *c) {
  if (!c->answering) return;
  if (c->made < c->answer.plan.chunks) return wait_for_turn(c);
  if (!c->tail_made) {
    c->tail_made = true;
    put(c, scratch, (size_t)put_tail(scratch, &c->answer));
    if (!transmit(c)) return;
  }
  end_answer(c);
}

static void send_due(Connection *c) {
  if (c->role_due) {
    c->role_due = false;
    put(c, scratch, (size_t)put_role(scratch, &c->answer));
    if (!transmit(c)) return;
  }
  int64_t now = now_ns();
  if (now - c->next_ns > counts.latest_ns) counts.latest_ns = now - c->next_ns;
  int length = 0;
  const Schedule *plan = &c->answer.plan;
  for (int merged = 0; merged < plan->merged && c->made < plan->chunks && (!merged || c->next_ns <= now); merged++) {
    length += put_chunk(scratch + length, &c->answer, c->made++);
    c->next_ns += c->record.gap_ns;
    counts.chunks++;
  }
  put(c, scratch, (size_t)length);
  if (!transmit(c)) return;
  go_on(c);
  if (!c->closed && !c->answering) serve_requests(c);
}

// ---- requests

static uint64_t mixed(uint64_t value) {  // splitmix64's last step: spreads request numbers over a gap
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ value >> 27) * 0x94d049bb133111ebull;
  return value ^ value >> 31;
}

static void reply(Connection *c, const char *status, const char *json) {
  int length = snprintf(scratch, sizeof scratch, "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                        status, strlen(json), json);
  put(c, scratch, (size_t)length);
  transmit(c);
}

static void refuse(Connection *c, const char *status) {
  reply(c, status, "{\"error\":{\"message\":\"this server reads requests of up to 1 MiB with a Content-Length\"}}");
  close_connection(c);
}

static void start_answer(Connection *c, bool chat, const char *body, size_t length) {
  int64_t read_ns = now_ns();
  if (!plan_answer(&c->answer, &fallback, ++counts.requests, chat, body, length))
    return reply(c, "404 Not Found", "{\"error\":{\"message\":\"the schedule in the model's name cannot be read\"}}");
  const Schedule *plan = &c->answer.plan;
  int64_t gap_ns = (int64_t)(plan->gap_ms * 1e6), due_ns = read_ns + (int64_t)(plan->first_ms * 1e6);
  if (plan->phase && gap_ns) due_ns += (int64_t)(mixed(c->answer.number) % (uint64_t)gap_ns);
  if (plan->step && gap_ns) due_ns = (due_ns + gap_ns - 1) / gap_ns * gap_ns;
  c->record = (LogRecord){.magic = LOG_MAGIC, .request = c->answer.number, .arrived_ns = c->arrived_ns, .read_ns = read_ns,
                          .due_ns = due_ns, .gap_ns = gap_ns, .planned = plan->chunks, .tokens = plan->tokens};
  if (c->sent_space < plan->chunks)
    c->sent_ns = grown(c->sent_ns, (size_t)(c->sent_space = plan->chunks) * sizeof *c->sent_ns);
  c->answering = true, c->tail_made = false, c->made = c->sent = 0, c->next_ns = due_ns;
  c->role_due = chat && plan->role == 1;
  put(c, scratch, (size_t)put_head(scratch));
  if (chat && plan->role == 2) put(c, scratch, (size_t)put_role(scratch, &c->answer));
  if (transmit(c)) go_on(c);
}

static void route(Connection *c, const char *head, const char *body, size_t length) {
  if (!strncmp(head, "POST /v1/chat/completions ", 26)) return start_answer(c, true, body, length);
  if (!strncmp(head, "POST /v1/completions ", 21)) return start_answer(c, false, body, length);
  if (!strncmp(head, "GET /health ", 12)) return reply(c, "200 OK", "{}");
  if (!strncmp(head, "GET /v1/models ", 15))
    return reply(c, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"object\":\"model\",\"owned_by\":\"truth\"}]}");
  reply(c, "404 Not Found", "{\"error\":{\"message\":\"no such page\"}}");
}

static void serve_requests(Connection *c) {
  while (!c->closed && !c->answering && c->in.length) {
    c->in.data[c->in.length] = 0;
    char *head_end = memmem(c->in.data, c->in.length, "\r\n\r\n", 4);
    if (!head_end) {
      if (c->in.length > MAX_REQUEST) refuse(c, "431 Request Header Fields Too Large");
      return;
    }
    size_t head = (size_t)(head_end - c->in.data) + 4;
    head_end[2] = 0;  // so that searches end with the head
    char *length_line = strcasestr(c->in.data, "\r\ncontent-length:");
    bool chunked = strcasestr(c->in.data, "\r\ntransfer-encoding:") != NULL;
    size_t length = length_line ? strtoull(length_line + 17, NULL, 10) : 0;
    head_end[2] = '\r';
    if (chunked) return refuse(c, "411 Length Required");
    if (length > MAX_REQUEST) return refuse(c, "413 Content Too Large");
    if (c->in.length < head + length) return;
    route(c, c->in.data, c->in.data + head, length);
    if (c->closed) return;
    c->in.length -= head + length;
    memmove(c->in.data, c->in.data + head + length, c->in.length);
    c->arrived_ns = 0;
  }
}

// ---- receiving

static void take_plain(void *connection, const char *data, size_t length) {
  append(&((Connection *)connection)->in, data, length);
}

// Return when the kernel received what was just read: its CLOCK_REALTIME stamp less the clocks' distance right now.
static int64_t stamp_of(struct msghdr *message) {
  int64_t now = now_ns();
  struct cmsghdr *item = CMSG_FIRSTHDR(message);
  if (!item || item->cmsg_type != SCM_TIMESTAMPNS) return now;
  struct timespec stamp, wall;
  memcpy(&stamp, CMSG_DATA(item), sizeof stamp);
  clock_gettime(CLOCK_REALTIME, &wall);
  return now - ((int64_t)(wall.tv_sec - stamp.tv_sec) * SECOND_NS + (wall.tv_nsec - stamp.tv_nsec));
}

static void receive(Connection *c) {
  static char data[65536];
  char control[64];
  while (!c->closed) {
    struct iovec part = {data, sizeof data};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t count = recvmsg(c->socket, &message, 0);
    if (count <= 0) {
      if (count == 0 || errno != EAGAIN) close_connection(c);
      return;
    }
    if (!c->in.length) c->arrived_ns = stamp_of(&message);
    if (!c->tls) {
      take_plain(c, data, (size_t)count);
    } else if (!tls_feed(c->tls, data, (size_t)count, take_plain, c)) {
      close_connection(c);
    } else if (!c->answering) {
      transmit(c);  // of the handshake
    }
    if (!c->closed) serve_requests(c);
  }
}

static void accept_all(int listener) {
  int one = 1, fd;
  while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    Connection *c = connection_count < MAX_CONNECTIONS ? calloc(1, sizeof *c) : NULL;
    if (!c) {
      close(fd);
      continue;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    c->socket = fd, c->tls = with_tls ? tls_new() : NULL;
    counts.connections++, connection_count++;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
  }
}

// ---- the loop

static void on_event(Connection *c, uint32_t events) {
  if (c->closed) return;
  if (events & EPOLLOUT) {
    bool was_answering = c->answering;
    if (transmit(c)) {
      watch(c, false);
      go_on(c);
      if (was_answering && !c->answering) serve_requests(c);
    }
  }
  if (!c->closed && events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(c);
}

static void send_all_due(void) {
  enum { MOST_AT_ONCE = 512 };  // then sockets are looked at again
  for (int round = 0; round < MOST_AT_ONCE && next_turn_ns() <= now_ns(); round++) {
    Connection *c = take_turn();
    c->waiting = false;
    if (c->closed) bury(c);
    else send_due(c);
  }
}

static void run(int listener, int64_t until_ns) {
  struct epoll_event events[256], event = {.events = EPOLLIN, .data.ptr = NULL};
  epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
  while (!ending && now_ns() < until_ns) {
    int64_t now = now_ns(), next = next_turn_ns();
    int64_t wait_ns = next <= now ? 0 : next - now < SECOND_NS ? next - now : SECOND_NS;
    struct timespec wait = {wait_ns / SECOND_NS, wait_ns % SECOND_NS};
    int count = epoll_pwait2(poller, events, 256, &wait, NULL);
    for (int i = 0; i < count; i++) {
      if (events[i].data.ptr) on_event(events[i].data.ptr, events[i].events);
      else accept_all(listener);
    }
    send_all_due();
    free_dead();
  }
}

// ---- starting and ending

typedef struct { int port, cpu, realtime, lifetime_s; const char *log, *certificate, *key; } Options;

static int usage_error(const char *word) {
  fprintf(stderr, "server: %s is no option, or lacks a value that can be read\n", word);
  return 2;
}

static int read_options(Options *options, int count, char **words) {
  for (int i = 1; i < count; i++) {
    const char *name = words[i], *value = i + 1 < count ? words[++i] : NULL;
    if (!value) return usage_error(name);
    if (!strcmp(name, "--port")) options->port = atoi(value);
    else if (!strcmp(name, "--cpu")) options->cpu = atoi(value);
    else if (!strcmp(name, "--realtime")) options->realtime = atoi(value);
    else if (!strcmp(name, "--for")) options->lifetime_s = atoi(value);
    else if (!strcmp(name, "--log")) options->log = value;
    else if (!strcmp(name, "--schedule") && read_schedule(&fallback, value, strlen(value))) continue;
    else if (!strcmp(name, "--tls") && i + 1 < count) options->certificate = value, options->key = words[++i];
    else return usage_error(name);
  }
  return 0;
}

static void settle_in(const Options *options) {
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  if (options->cpu >= 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)options->cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one)) perror("server: --cpu");
  }
  struct sched_param priority = {.sched_priority = options->realtime};
  if (options->realtime > 0 && sched_setscheduler(0, SCHED_FIFO, &priority)) perror("server: --realtime");
}

static int listen_on(int *port) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  setsockopt(listener, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);  // the kernel begins to stamp a little later
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  if (bind(listener, (void *)&address, length) || listen(listener, 8192)) return -1;
  getsockname(listener, (void *)&address, &length);
  *port = ntohs(address.sin_port);
  return listener;
}

static void end(int signal_number) {
  (void)signal_number;
  ending = 1;
}

int main(int count, char **words) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  Options options = {.cpu = -1, .lifetime_s = 600};
  fallback = DEFAULT_SCHEDULE;
  int wrong = read_options(&options, count, words);
  if (wrong) return wrong;
  signal(SIGPIPE, SIG_IGN), signal(SIGTERM, end), signal(SIGINT, end);
  settle_in(&options);
  if (options.certificate && !(with_tls = tls_load(options.certificate, options.key))) return 1;
  if (options.log && !(log_file = fopen(options.log, "wb"))) return perror(options.log), 1;
  if (log_file) setvbuf(log_file, NULL, _IOFBF, 1 << 22);
  poller = epoll_create1(EPOLL_CLOEXEC);
  int listener = listen_on(&options.port);
  if (listener < 0) return perror("server: --port"), 1;
  printf("listening on %d\n", options.port);
  fflush(stdout);
  run(listener, now_ns() + options.lifetime_s * SECOND_NS);
  if (log_file) fclose(log_file);
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  printf("{\"requests\":%llu,\"chunks\":%llu,\"sends\":%llu,\"connections\":%llu,\"delayed\":%llu,\"latest_us\":%.1f,\"cpu_s\":%.6f}\n",
         (unsigned long long)counts.requests, (unsigned long long)counts.chunks, (unsigned long long)counts.sends,
         (unsigned long long)counts.connections, (unsigned long long)counts.delayed, (double)counts.latest_ns / 1e3,
         (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
  return 0;
}
