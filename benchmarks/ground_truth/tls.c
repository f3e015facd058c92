// TLS in memory: records are made before the time is taken, so that the logged time is still that of the send().
// Without -DWITH_TLS (no OpenSSL headers) the server does without.
#include "truth.h"

#ifdef WITH_TLS
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>

struct Tls {
  SSL *session;
  BIO *incoming, *outgoing;
};

static SSL_CTX *context;

bool tls_available(void) { return true; }

bool tls_load(const char *certificate, const char *key) {
  context = SSL_CTX_new(TLS_server_method());
  if (context && SSL_CTX_use_certificate_chain_file(context, certificate) == 1 &&
      SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1)
    return true;
  ERR_print_errors_fp(stderr);
  return false;
}

Tls *tls_new(void) {
  Tls *tls = calloc(1, sizeof *tls);
  if (!tls) return NULL;
  tls->session = SSL_new(context);
  tls->incoming = BIO_new(BIO_s_mem());
  tls->outgoing = BIO_new(BIO_s_mem());
  SSL_set_bio(tls->session, tls->incoming, tls->outgoing);
  SSL_set_accept_state(tls->session);
  return tls;
}

void tls_free(Tls *tls) {
  if (!tls) return;
  SSL_free(tls->session);  // and with it the buffers
  free(tls);
}

bool tls_feed(Tls *tls, const char *data, size_t length, void (*take)(void *, const char *, size_t), void *to) {
  static char plain[16384];  // the longest record
  BIO_write(tls->incoming, data, (int)length);
  for (;;) {
    int count = SSL_read(tls->session, plain, sizeof plain);  // shakes hands first
    if (count <= 0) {
      int reason = SSL_get_error(tls->session, count);
      ERR_clear_error();
      return reason == SSL_ERROR_WANT_READ;
    }
    take(to, plain, (size_t)count);
  }
}

void tls_write(Tls *tls, const char *data, size_t length) { SSL_write(tls->session, data, (int)length); }

size_t tls_pending(Tls *tls) { return BIO_ctrl_pending(tls->outgoing); }

size_t tls_take(Tls *tls, char *out, size_t space) {
  int count = BIO_read(tls->outgoing, out, (int)space);
  return count > 0 ? (size_t)count : 0;
}

#else
#include <stdio.h>

bool tls_available(void) { return false; }
bool tls_load(const char *certificate, const char *key) {
  (void)certificate, (void)key;
  fputs("this server was built without OpenSSL\n", stderr);
  return false;
}
Tls *tls_new(void) { return NULL; }
void tls_free(Tls *tls) { (void)tls; }
bool tls_feed(Tls *tls, const char *data, size_t length, void (*take)(void *, const char *, size_t), void *to) {
  (void)tls, (void)data, (void)length, (void)take, (void)to;
  return false;
}
void tls_write(Tls *tls, const char *data, size_t length) { (void)tls, (void)data, (void)length; }
size_t tls_pending(Tls *tls) { return (void)tls, 0; }
size_t tls_take(Tls *tls, char *out, size_t space) { return (void)tls, (void)out, (void)space, 0; }
#endif
