# Sourced: parts that end in time, and with the script that runs them, however that ends.

# Has the kernel send SIGTERM when the script is gone, SIGKILL included; `timeout` hands it on to
# everything that the command started in its group, and kills what is still there later.
die_with_script='
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != int(sys.argv[1]):
    sys.exit(143)
os.execvp(sys.argv[2], sys.argv[2:])
'
running=""

end_part() {
    [ -z "$running" ] || { kill -TERM "$running"; wait "$running"; } 2>/dev/null
    exit 143
}
trap end_part TERM INT HUP

bounded() {  # python, seconds at most, log, command...
    local python=$1 most=$2 log=$3 status=0
    shift 3
    "$python" -c "$die_with_script" $$ timeout --kill-after=10 "$most" "$@" >"$log" 2>&1 &
    running=$!
    wait "$running" || status=$?
    running=""
    return "$status"
}
