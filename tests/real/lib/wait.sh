# wait_for COMMAND...: repeats the command until it succeeds, for a minute at most.
wait_for() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ $tries -gt 600 ]; then
            echo "gave up waiting: $*" >&2
            exit 1
        fi
        sleep 0.1
    done
}
