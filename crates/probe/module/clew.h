/* What a probe sees of the place that it runs at. */
struct clew_hit {
    unsigned long r[16], rip, rflags, fs, gs;
    unsigned long event, ticks, thread, extra, extra_too, unused;
    unsigned char x[16][16];
};
#ifdef __cplusplus
extern "C" {
#endif
extern struct clew_hit __clew_hit;
extern void __clew_entered(unsigned long function);
extern unsigned long __clew_at_entry(unsigned long function, unsigned long frame, int n);
/* The locals that regions of one function share, of the call that the probe runs in. */
extern void *__clew_instance;
extern void **__clew_locals(unsigned long group, unsigned long function, unsigned long frame);
#ifdef __cplusplus
}
template <class T> inline void __clew_set(T &to, T &from) { to = static_cast<T &&>(from); }
template <class T, unsigned long N> inline void __clew_set(T (&to)[N], T (&from)[N])
{
    for (unsigned long n = 0; n < N; n++)
        __clew_set(to[n], from[n]);
}
#endif
/* The position, as clew debug --at takes it: EVENT+TICKS; and the thread's number in the recording. */
#define CLEW_EVENT (__clew_hit.event)
#define CLEW_TICKS (__clew_hit.ticks)
#define CLEW_THREAD (__clew_hit.thread)
/* Functions that run when something happens. A body follows. */
#define CLEW_ON_CALL(function) void __clew_on_call_##function(void)
#define CLEW_ON_RETURN(function) void __clew_on_return_##function(void)
/* after: 0 before the call, 1 after it; args has its arguments, result what it returned. */
#define CLEW_ON_SYSCALL(name) void __clew_on_syscall_##name(int after, const unsigned long *args, long result)
#define CLEW_ON_READ(variable) void __clew_on_read_##variable(unsigned long address, unsigned long length)
#define CLEW_ON_WRITE(variable) void __clew_on_write_##variable(unsigned long address, unsigned long length)
#define CLEW_ON_ACCESS(variable) void __clew_on_access_##variable(unsigned long address, unsigned long length)
#define CLEW_ON_THREAD void __clew_on_thread_any(void)
#define CLEW_ON_SIGNAL void __clew_on_signal_any(void)
#define CLEW_AT_END void __clew_at_end_any(void)
