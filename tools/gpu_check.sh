#!/usr/bin/env bash
# Everything that needs an NVIDIA GPU, in an order in which the first failure says most.
# usage: gpu_check.sh PYTHON FOLDER [tests|figures]
set -uo pipefail
source "$(dirname "$0")/bounded.sh"
python=$1 folder=$2 what=${3:-all}

"$python" - <<'PY' || exit 4
import importlib.util
import sys

named = ("pytest", "sqlalchemy", "cupy", "nvmath", "cuda", "triton", "torch")
missing = [name for name in named if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"not installed: {', '.join(missing)}; say pip install -e '.[cuda,triton]' torch pytest, "
             "or make gpu GPU_PYTHON=a-python-that-has-them")
PY
[ -e /dev/nvidiactl ] || { echo "there is no NVIDIA GPU on this machine" >&2; exit 4; }

mkdir -p "$folder"
export PYTHONPATH="$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}"
# What tests measure on their way: how long a lost worker is missed, for example.
KERNELARC_GPU_FIGURES="$(cd "$folder" && pwd)/figures.json"
export KERNELARC_GPU_FIGURES
failed=0

part() {  # name, seconds at most, command...
    local name=$1 most=$2 begun=$SECONDS status=0
    shift 2
    bounded "$python" "$most" "$folder/$name.log" "$@" || status=$?
    [ "$status" -eq 0 ] || failed=1
    printf '%-24s %-10s %5d s  %s\n' "$name" "$([ "$status" -eq 0 ] && echo ok || echo "exit $status")" \
        "$((SECONDS - begun))" "$(tail -n 1 "$folder/$name.log" | cut -c1-80)" | tee -a "$folder/summary.txt"
}

# A process for each file: a context that is lost does not take the next file with it.
# The judge first: nothing measured counts before planted faults are caught.
if [ "$what" != figures ]; then
    for name in cuda_guardrails kernel_guardrails cuda_forms cuda_session kernel_session \
                cuda_routes cuda_solution triton_solution torch_baselines autotune runtime \
                cuda_equal; do
        part "$name" 900 "$python" -m pytest -q -c /dev/null --rootdir . -p no:cacheprovider \
            --import-mode=importlib "tests/gpu/test_$name.py"
    done
fi
if [ "$what" != tests ]; then
    for name in cublaslt_probe cuda_kernels triton_search triton_beside "library_searches --live --repeats 3"; do
        # shellcheck disable=SC2086 - a name may bring options
        part "${name%% *}" 900 "$python" -m kernelarc.bench.experiments.$name \
            -o "$folder/${name%% *}.json"
    done
fi
exit "$failed"
