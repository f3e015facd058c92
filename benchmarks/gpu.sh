#!/usr/bin/env bash
# Measure a real pair of vLLM servers on this machine's GPUs: start both, wait, run the chat scenario, stop both.
#
#   benchmarks/gpu.sh [--with NAME]… [LOADTEST OPTION…]
#   benchmarks/gpu.sh --simulated [LOADTEST OPTION…]      the same on the simulated pair: no GPU, 5 minutes
#
# --with NAME lays compose.NAME.yml on top (ngram, draft, eagle3, mtp, tp4, isolated). Settings are in .env. Servers
# are started with Docker Compose, or with `vllm` where there is no Docker; if both ports answer already, that pair is
# measured and left alone. Other options go to `loadtest run`, after the ladder that stands below.
# Everything is kept in reports/gpu-TIME/ (OUT names another folder than reports); the exit code is that of
# `loadtest run` (see README.md).
set -euo pipefail
set -m # every job is a process group of its own, so that it can be ended with its children, and nothing else
cd "$(dirname "$0")/.."

ladder=(--levels '1,4,8,16,32,64,128' --blocks 4)
short=(--levels '4,16,32,48,64' --blocks 3 --window 3s --set window.min_requests=1 --set generation.max_tokens=64
  --set load.think_time=0)
read -r -a ports <<<"${PORTS:-8010 8011}" # those of docker-compose.yml; servers without Docker may have others
[ "${#ports[@]}" -eq 2 ] || { echo "gpu.sh: PORTS is '${PORTS:-}'; it must be two ports, such as '8010 8011'." >&2; exit 2; }
names=(baseline speculative)
start_limit_s=${START_LIMIT_S:-3600}

say() { printf 'gpu.sh: %s\n' "$*"; }
fail() {
  printf 'gpu.sh: %s\n' "$@" >&2
  exit 2
}

simulated='' overrides=()
while [ $# -gt 0 ]; do
  case $1 in
  -h | --help)
    sed -n '2,11s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  --simulated) simulated=1 ;;
  --with)
    [ -f "compose.${2-}.yml" ] || fail "there is no compose.${2-}.yml; there are $(echo compose.*.yml)."
    overrides+=("$2")
    shift
    ;;
  *) break ;;
  esac
  shift
done

# --- what is there ------------------------------------------------------------------------------------------------
python=${PYTHON:-python3}
"$python" -c 'import loadtest' 2>/dev/null || fail "$python has no loadtest; install it (pip install .), or name" \
  "the python that has it: PYTHON=.venv/bin/python benchmarks/gpu.sh"

healthy() {
  "$python" - "$1" <<'END' 2>/dev/null
import sys, urllib.request
urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/health", timeout=4)
END
}
has_docker() { docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; }
gpus=$({ nvidia-smi -L 2>/dev/null || true; } | grep -c '^GPU' || true)

if healthy "${ports[0]}" && healthy "${ports[1]}"; then
  how=found
elif healthy "${ports[0]}" || healthy "${ports[1]}"; then
  fail "one of the ports ${ports[*]} answers and the other does not; stop that server or start the other."
elif [ -n "$simulated" ]; then
  how=simulated
elif [ "$gpus" -eq 0 ]; then
  fail "nvidia-smi shows no GPU. Without one: benchmarks/gpu.sh --simulated, or docs/vllm-cpu.md for real servers."
elif has_docker; then
  how=docker ports=(8010 8011)
elif command -v vllm >/dev/null; then
  how=vllm
else
  fail "neither Docker Compose with a running engine nor vllm was found." \
    "Docker: https://docs.docker.com/engine/install/ and the NVIDIA container toolkit; see docs/docker.md." \
    "vLLM alone: python3 -m venv v && v/bin/pip install vllm==0.33.0 && PATH=\$PWD/v/bin:\$PATH benchmarks/gpu.sh"
fi
if [ "$gpus" -eq 1 ] && { [ "$how" = docker ] || [ "$how" = vllm ]; }; then
  say "one GPU: both servers share its memory (compose.onegpu.yml); only one of them is loaded at a time."
  overrides+=(onegpu)
fi
if [ "$how" = vllm ]; then
  for name in ${overrides[@]+"${overrides[@]}"}; do
    [ "$name" = onegpu ] || fail "--with $name needs Docker Compose; without it set the variables of .env yourself."
  done
fi

out=${OUT:-reports}/gpu-$(date -u +%Y%m%dT%H%M%SZ)
mkdir -p "$out"
if [ "$gpus" -gt 0 ]; then nvidia-smi -q >"$out/gpus.txt"; fi

# --- start, and always stop what was started ------------------------------------------------------------------------
jobs_started=() compose=() run='' interrupted=''
on_signal() {
  interrupted=1
  if [ -n "$run" ]; then kill -INT -- "-$run" 2>/dev/null || true; else exit 130; fi
}
stop() {
  code=$?
  trap '' INT TERM
  for job in ${jobs_started[@]+"${jobs_started[@]}"}; do kill -TERM -- "-$job" 2>/dev/null || true; done
  for job in ${jobs_started[@]+"${jobs_started[@]}"}; do
    for _ in $(seq 100); do
      kill -0 -- "-$job" 2>/dev/null || continue 2
      sleep 0.2
    done
    kill -KILL -- "-$job" 2>/dev/null || true
  done
  if [ ${#compose[@]} -gt 0 ]; then
    "${compose[@]}" logs --no-color >"$out/servers.log" 2>&1 || true
    "${compose[@]}" down || true
  fi
  say "kept: $out"
  exit "$code"
}
trap on_signal INT TERM
trap stop EXIT

finished() { # waits for a job however often a signal interrupts the wait; returns its exit code
  local code
  while :; do
    code=0
    wait "$1" || code=$?
    kill -0 "$1" 2>/dev/null || return "$code"
  done
}

await() { # number of a server that this script started, and its job
  local began=$SECONDS
  until healthy "${ports[$1]}"; do
    if ! kill -0 "$2" 2>/dev/null; then
      tail -n 20 "$out/${names[$1]}.log" >&2
      fail "the ${names[$1]} server ended before it was ready; its log: $out/${names[$1]}.log"
    fi
    [ $((SECONDS - began)) -lt "$start_limit_s" ] || fail "${names[$1]} was not ready after $start_limit_s s."
    sleep 1
  done
  say "${names[$1]} is ready after $((SECONDS - began)) s"
}

vllm_script() { # the command of docker-compose.yml, for this machine and one port
  sed -n '/exec vllm serve/,/SPEC_CONFIG:+/p' docker-compose.yml |
    sed -e 's/\$\$/$/g' -e "s/--host 0.0.0.0 --port 8000/--host 127.0.0.1 --port $1/"
}

start_vllm() { # number of the server, GPUs, share of their memory, speculative configuration
  (
    # Read line by line: .env holds JSON, which a shell would take apart. What the caller has set comes first.
    while IFS='=' read -r name value; do
      case $name in '' | \#* | COMPOSE_PROFILES) ;; *) [ -n "${!name-}" ] || export "$name=$value" ;; esac
    done <.env
    export PINS="${PINS-}" GPU_MEMORY_UTILIZATION="$3" SPEC_CONFIG="$4"
    export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="$2"
    export VLLM_SERVER_DEV_MODE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 VLLM_HTTP_TIMEOUT_KEEP_ALIVE=5
    export VLLM_CACHE_ROOT="${XDG_CACHE_HOME:-$HOME/.cache}/loadtest-vllm/${names[$1]}" # compiled graphs, each its own
    exec /bin/sh -euc "$(vllm_script "${ports[$1]}")"
  ) >"$out/${names[$1]}.log" 2>&1 &
  jobs_started+=("$!")
}

from_env() { sed -n "s/^$1=//p" .env; }

case $how in
found) say "a pair answers on ports ${ports[*]}; it is measured and left running." ;;
simulated)
  for i in 0 1; do
    "$python" -m loadtest.simulate --arm "${names[$i]}" --port "${ports[$i]}" >"$out/${names[$i]}.log" 2>&1 &
    jobs_started+=("$!")
  done
  await 0 "${jobs_started[0]}"
  await 1 "${jobs_started[1]}"
  ;;
docker)
  compose=(docker compose -f docker-compose.yml)
  for name in ${overrides[@]+"${overrides[@]}"}; do compose+=(-f "compose.$name.yml"); done
  compose+=(--profile gpu)
  "${compose[@]}" config >"$out/compose.yml"
  say "starting both servers with Docker Compose; the first start downloads image and weights."
  "${compose[@]}" up --detach --wait --wait-timeout "$start_limit_s" &
  run=$!
  finished "$run" || {
    [ -z "$interrupted" ] || exit 130
    fail "the servers did not become healthy; their logs: $out/servers.log"
  }
  ;;
vllm)
  share=$(from_env GPU_MEMORY_UTILIZATION) second=${SPEC_GPUS:-$(from_env SPEC_GPUS)}
  first=${BASELINE_GPUS:-$(from_env BASELINE_GPUS)}
  if [ "$gpus" -eq 1 ]; then share=0.45 second=$first; fi
  start_vllm 0 "$first" "$share" ""
  if [ "$gpus" -eq 1 ]; then await 0 "${jobs_started[0]}"; fi
  start_vllm 1 "$second" "$share" "${SPEC_CONFIG:-$(from_env SPEC_CONFIG)}"
  if [ "$gpus" -gt 1 ]; then await 0 "${jobs_started[0]}"; fi
  await 1 "${jobs_started[1]}"
  ;;
esac

# --- measure --------------------------------------------------------------------------------------------------------
if [ -n "$simulated" ]; then ladder=("${short[@]}"); fi
measure=("$python" -m loadtest run scenarios/chat.py --baseline "http://127.0.0.1:${ports[0]}"
  --speculative "http://127.0.0.1:${ports[1]}" --out "$out" "${ladder[@]}" "$@")
"${measure[@]}" &
run=$!
code=0
finished "$run" || code=$?
exit "$code"
