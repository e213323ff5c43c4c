# A good part of CPython's own test package (Debian's libpython3.11-testsuite).
# needs: python3
# run: long
# timeout: 1500
python3 -c 'import test.test_list' 2>/dev/null || { echo "install libpython3.11-testsuite"; exit 1; }
python3 -m test -q -w \
    test_grammar test_opcodes test_dict test_list test_set test_unicode test_bytes test_int test_float test_complex \
    test_generators test_exceptions test_scope test_sys_settrace test_descr test_functools test_itertools \
    test_re test_json test_struct test_array test_math test_cmath test_decimal test_statistics test_random \
    test_zlib test_bz2 test_lzma test_hashlib test_pickle test_marshal test_io test_fileio test_tempfile \
    test_os test_posix test_subprocess test_popen test_pipes test_fork1 test_wait3 test_wait4 test_select test_poll \
    test_epoll test_selectors test_signal test_threading test_threadsignals test_thread test_queue test_threading_local \
    test_context test_asyncgen test_coroutines test_mmap test_ctypes test_socketserver test_time \
    >log 2>&1 || true
grep -E '^(test_[a-z0-9_]+ failed|Total|[0-9]+ tests? (OK|failed))' log | sed 's/ (.*//' | sort | uniq
rm -f log
