// Deaths by signals at their default action, with the engine taking the signal first: computing,
// waiting in all ways, blocked, ignored, stopped, with threads, in vfork's child and after an exec.
// Everything must look as it does without.
// variants: pie static
// stops: own
// env: CLEW_DEBUG=hook
#include "guest.h"
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
static int ready[2], never[2];
static volatile long counter;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void is_ready(void) { CHECK(write(ready[1], "r", 1) == 1); }
static void compute(void) { for (;;) counter++; }
static void wait_in_read(void) { char c; for (;;) read(never[0], &c, 1); }
static void wait_in_pause(void) { for (;;) pause(); }
static void wait_in_sleep(void) { struct timespec long_time = {1000, 0}; for (;;) nanosleep(&long_time, NULL); }
static void wait_in_poll(void) { struct pollfd p = {never[0], POLLIN, 0}; for (;;) poll(&p, 1, -1); }
static void *in_compute(void *u) { (void)u; compute(); return NULL; }
static void *in_read(void *u) { (void)u; wait_in_read(); return NULL; }
static void *in_condition(void *u) {
    (void)u;
    pthread_mutex_lock(&mutex);
    for (;;) pthread_cond_wait(&condition, &mutex);
    return NULL;
}
static void start(void *(*function)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
}
static void wait_on_threads(void) { start(in_read); start(in_condition); in_condition(NULL); }
static void compute_beside_threads(void) { start(in_read); start(in_condition); compute(); }
static void wait_beside_computing(void) { start(in_compute); start(in_read); in_condition(NULL); }
static void main_gone(void) { start(in_condition); start(in_compute); pthread_exit(NULL); }
static void only_one_takes_it(void) {
    sigset_t all;
    start(in_condition);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    start(in_read);
    compute();
}
static void suspend(void) {
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (;;) sigsuspend(&none);
}
static void suspend_with_threads(void) { start(in_condition); suspend(); }
static void masked_poll(void) {
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    sigprocmask(SIG_BLOCK, &all, NULL);
    struct pollfd p = {never[0], POLLIN, 0};
    for (;;) ppoll(&p, 1, NULL, &none);
}
static void parent_of_vfork(void) {
    // The one that gets the signal is the child, which shares its memory; the parent dies likewise.
    pid_t pid = vfork();
    if (!pid) { is_ready(); compute(); }
    int status;
    waitpid(pid, &status, 0);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
}

static void kill_in(const char *name, void (*mode)(void), int sig) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        is_ready();
        mode();
        _exit(96);
    }
    char c;
    CHECK(read(ready[0], &c, 1) == 1);
    kill(pid, sig);
    siginfo_t info;
    CHECK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    char text[80];
    snprintf(text, sizeof text, "%s %d (code %d, status %d)", name, sig, info.si_code, info.si_status);
    say_status(text, status);
}

static int in_child(void (*function)(void)) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) { function(); _exit(0); }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

static void blocked_then_ignored(void) {
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGTERM);
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGTERM));
    signal(SIGTERM, SIG_IGN);
    sigpending(&pending);
    CHECK(!sigismember(&pending, SIGTERM));
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(SIGTERM);
    _exit(11);
}
static void blocked_then_not(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGTERM);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}
static void waited_for(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGTERM);
    int sig;
    CHECK(sigwait(&set, &sig) == 0 && sig == SIGTERM);
    _exit(12);
}
static void nothing(int sig) { (void)sig; }
static void once_handled(void) {
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESETHAND}, old;
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    sigaction(SIGUSR1, NULL, &old);
    CHECK(old.sa_handler == SIG_DFL);
    raise(SIGUSR1);
}
static void handled_no_more(void) {
    signal(SIGUSR2, nothing);
    raise(SIGUSR2);
    signal(SIGUSR2, SIG_DFL);
    raise(SIGUSR2);
}
static void timer(int which) {
    struct itimerval soon = {{0, 0}, {0, 20000}};
    setitimer(which, &soon, NULL);
    compute();
}
static void alarm_timer(void) { timer(ITIMER_REAL); }
static void virtual_timer(void) { timer(ITIMER_VIRTUAL); }
static void profile_timer(void) { timer(ITIMER_PROF); }
static void processor_time(void) {
    struct rlimit limit = {1, 5};
    setrlimit(RLIMIT_CPU, &limit);
    compute();
}
static void file_size(void) {
    struct rlimit limit = {10, 10};
    int fd = memfd_create("x", 0);
    setrlimit(RLIMIT_FSIZE, &limit);
    CHECK(write(fd, "0123456789", 10) == 10);
    write(fd, "x", 1);
}
static void file_size_with_threads(void) { start(in_condition); file_size(); }
static void broken_pipe(void) {
    int fds[2];
    CHECK(pipe(fds) == 0);
    close(fds[0]);
    write(fds[1], "x", 1);
}
static void broken_pipe_with_threads(void) { start(in_condition); broken_pipe(); }
static void *breaks_pipe(void *u) { (void)u; broken_pipe(); return NULL; }
static void broken_pipe_in_thread(void) { start(breaks_pipe); in_condition(NULL); }
static void broken_pipe_blocked(void) {
    sigset_t set, pending;
    start(in_condition);
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    broken_pipe();
    sigpending(&pending);
    CHECK(sigismember(&pending, SIGPIPE));
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    broken_pipe();
    _exit(13);
}
static void *aborts(void *u) { (void)u; abort(); return NULL; }
static void abort_in_thread(void) { start(aborts); in_condition(NULL); }
static void *sends(void *u) { pthread_kill(*(pthread_t *)u, SIGRTMIN + 3); pause(); return NULL; }
static void sent_by_thread(void) {
    pthread_t self = pthread_self(), thread;
    CHECK(pthread_create(&thread, NULL, sends, &self) == 0);
    in_condition(NULL);
}
static void after_exec(void) {
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, nothing);
    execl("/proc/self/exe", "fatal", "query", (char *)NULL);
}

int main(int argc, char **argv) {
    (void)argv;
    if (argc > 1) {
        for (int sig = 1; sig <= 64; sig++) {
            struct sigaction old;
            if (sigaction(sig, NULL, &old) == 0 && old.sa_handler != SIG_DFL)
                say("after exec: %d is %s", sig, old.sa_handler == SIG_IGN ? "ignored" : "handled");
        }
        wait_in_pause();
    }
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    CHECK(pipe(ready) == 0 && pipe(never) == 0);
    int some[] = {SIGHUP, SIGTERM, SIGQUIT, SIGIO, SIGSYS, SIGTRAP, SIGSEGV, SIGRTMIN, SIGRTMAX};
    for (unsigned i = 0; i < sizeof some / sizeof *some; i++) {
        kill_in("computing", compute, some[i]);
        kill_in("threads", wait_beside_computing, some[i]);
    }
    kill_in("read", wait_in_read, SIGINT);
    kill_in("pause", wait_in_pause, SIGUSR1);
    kill_in("sleep", wait_in_sleep, SIGUSR2);
    kill_in("poll", wait_in_poll, SIGPWR);
    kill_in("all wait", wait_on_threads, SIGTERM);
    kill_in("one computes", compute_beside_threads, SIGTERM);
    kill_in("main has gone", main_gone, SIGTERM);
    kill_in("one takes it", only_one_takes_it, SIGTERM);
    kill_in("suspended", suspend, SIGTERM);
    kill_in("suspended, threads", suspend_with_threads, SIGTERM);
    kill_in("masked poll", masked_poll, SIGTERM);

    say_status("blocked, then ignored", in_child(blocked_then_ignored));
    say_status("blocked, then not", in_child(blocked_then_not));
    say_status("waited for", in_child(waited_for));
    say_status("handled once", in_child(once_handled));
    say_status("handled no more", in_child(handled_no_more));
    say_status("alarm", in_child(alarm_timer));
    say_status("virtual timer", in_child(virtual_timer));
    say_status("profile timer", in_child(profile_timer));
    say_status("processor time", in_child(processor_time));
    say_status("file size", in_child(file_size));
    say_status("file size, threads", in_child(file_size_with_threads));
    say_status("broken pipe", in_child(broken_pipe));
    say_status("broken pipe, threads", in_child(broken_pipe_with_threads));
    say_status("broken pipe in a thread", in_child(broken_pipe_in_thread));
    say_status("broken pipe, blocked", in_child(broken_pipe_blocked));
    say_status("abort", in_child(abort));
    say_status("abort in a thread", in_child(abort_in_thread));
    say_status("sent by a thread", in_child(sent_by_thread));

    // A stopped process dies when it is continued.
    pid_t pid = fork();
    if (!pid) { is_ready(); compute(); }
    char c;
    CHECK(read(ready[0], &c, 1) == 1);
    int status;
    kill(pid, SIGSTOP);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    say_status("stopped", status);
    kill(pid, SIGTERM);
    CHECK(waitpid(pid, &status, WNOHANG) == 0);
    kill(pid, SIGCONT);
    CHECK(waitpid(pid, &status, 0) == pid);
    say_status("continued", status);

    // A whole group: a parent that waits for its vfork child, and the child.
    pid = fork();
    if (!pid) { setpgid(0, 0); parent_of_vfork(); _exit(95); }
    CHECK(read(ready[0], &c, 1) == 1);
    kill(-pid, SIGTERM);
    CHECK(waitpid(pid, &status, 0) == pid);
    say_status("vfork", status);

    pid = fork();
    if (!pid) { after_exec(); _exit(94); }
    // It says what it found and then waits.
    while (kill(pid, 0) == 0) {
        char path[64], state[256] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        int fd = open(path, O_RDONLY);
        read(fd, state, sizeof state - 1);
        close(fd);
        char *end = strrchr(state, ')');
        if (strstr(state, "(exe)") && end && end[2] == 'S') break;
        sched_yield();
    }
    kill(pid, SIGHUP);
    CHECK(waitpid(pid, &status, 0) == pid);
    say_status("after exec", status);
}
