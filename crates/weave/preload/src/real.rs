//! The C library's own functions behind the ones that this library takes the place of.

use core::ffi::{c_char, c_int, c_void};

unsafe extern "C" {
    pub fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub fn __errno_location() -> *mut c_int;
}

const NEXT: *mut c_void = -1isize as *mut c_void;

/// # Safety
/// `name` ends with NUL.
pub unsafe fn next(name: &str) -> usize {
    // SAFETY: a C string, by the caller's word.
    unsafe { dlsym(NEXT, name.as_ptr().cast()) as usize }
}

#[inline]
pub fn set_errno(value: i32) {
    // SAFETY: the C library's own place for it.
    unsafe { *__errno_location() = value }
}

/// A system call's result as the C library returns it.
#[inline]
pub fn result(value: i64) -> i64 {
    if (-4095..0).contains(&value) {
        set_errno(-value as i32);
        return -1;
    }
    value
}

/// Declares functions of the C library, found by [`find`] when the program starts.
#[macro_export]
macro_rules! reals {
    ($($name:ident($($arg:ty),*) -> $ret:ty;)*) => {
        #[allow(non_upper_case_globals)]
        pub mod at { $(pub static mut $name: usize = 0;)* }
        $(
            /// # Safety
            /// As the C library's.
            #[inline]
            pub unsafe fn $name() -> unsafe extern "C" fn($($arg),*) -> $ret {
                // SAFETY: looked up under this name, with the type that its header gives.
                unsafe {
                    if at::$name == 0 {
                        at::$name = $crate::real::next(concat!(stringify!($name), "\0"));
                    }
                    core::mem::transmute::<usize, unsafe extern "C" fn($($arg),*) -> $ret>(at::$name)
                }
            }
        )*
        /// Looks them all up, so that nobody has to while threads run.
        ///
        /// # Safety
        /// Before there are threads.
        pub unsafe fn find() {
            // SAFETY: nobody else is there.
            unsafe { $(at::$name = $crate::real::next(concat!(stringify!($name), "\0"));)* }
        }
    };
}

type P = *mut c_void;

reals! {
    pthread_create(*mut usize, *const c_void, extern "C" fn(P) -> P, P) -> c_int;
    pthread_join(usize, *mut P) -> c_int;
    pthread_tryjoin_np(usize, *mut P) -> c_int;
    pthread_timedjoin_np(usize, *mut P, P) -> c_int;
    pthread_key_create(*mut u32, Option<extern "C" fn(P)>) -> c_int;
    pthread_setspecific(u32, *const c_void) -> c_int;
    pthread_mutex_lock(P) -> c_int;
    pthread_mutex_trylock(P) -> c_int;
    pthread_mutex_timedlock(P, P) -> c_int;
    pthread_mutex_clocklock(P, c_int, P) -> c_int;
    pthread_mutex_unlock(P) -> c_int;
    pthread_cond_wait(P, P) -> c_int;
    pthread_cond_timedwait(P, P, P) -> c_int;
    pthread_cond_clockwait(P, P, c_int, P) -> c_int;
    pthread_cond_signal(P) -> c_int;
    pthread_cond_broadcast(P) -> c_int;
    pthread_rwlock_rdlock(P) -> c_int;
    pthread_rwlock_wrlock(P) -> c_int;
    pthread_rwlock_tryrdlock(P) -> c_int;
    pthread_rwlock_trywrlock(P) -> c_int;
    pthread_rwlock_timedrdlock(P, P) -> c_int;
    pthread_rwlock_timedwrlock(P, P) -> c_int;
    pthread_rwlock_unlock(P) -> c_int;
    sem_init(P, c_int, u32) -> c_int;
    sem_post(P) -> c_int;
    sem_wait(P) -> c_int;
    sem_trywait(P) -> c_int;
    sem_timedwait(P, P) -> c_int;
    sem_clockwait(P, c_int, P) -> c_int;
    sem_getvalue(P, *mut c_int) -> c_int;
    fopencookie(P, *const c_char, crate::stdio::Functions) -> P;
    fclose(P) -> c_int;
    setvbuf(P, *mut c_char, c_int, usize) -> c_int;
    fork() -> c_int;
    dlopen(*const c_char, c_int) -> P;
    dl_iterate_phdr(extern "C" fn(P, usize, P) -> c_int, P) -> c_int;
    setlocale(c_int, *const c_char) -> P;
    realpath(*const c_char, *mut u8) -> *mut u8;
    sysconf(c_int) -> i64;
    get_nprocs() -> c_int;
    get_nprocs_conf() -> c_int;
    random() -> i64;
    rand() -> c_int;
    srandom(u32) -> ();
    srand(u32) -> ();
    sigaction(c_int, *const c_void, *mut c_void) -> c_int;
    system(*const c_char) -> c_int;
    clock_gettime(c_int, *mut i64) -> c_int;
}
