// General- and local-dynamic TLS in a library that is loaded late.
__thread int tls_global = 5;
static __thread int tls_a = 1, tls_b = 2;
static __thread char big[5000];
int tls_sum(int n) { tls_a += n; tls_b += n; big[4999]++; return tls_a * 100 + tls_b * 10 + big[4999]; }
int *tls_address(void) { return &tls_global; }
