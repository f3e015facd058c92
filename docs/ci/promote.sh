#!/bin/sh
# Measure a candidate against the baseline, and promote it only if the gate passes.
#
#   BASELINE_URL=http://a:8000 SPECULATIVE_URL=http://b:8000 PROMOTE=./promote docs/ci/promote.sh
#
# RUN names a stored run to judge again instead of measuring one. The exit code is that of loadtest: 0 pass, 2 usage,
# 3 failed, 4 inconclusive, 5 invalid, 130 interrupted. Only 0 reaches the last line.
set -eu

SCENARIO="${SCENARIO:-scenarios/chat.py}"
SLO="${SLO:-slo.toml}"

if [ -n "${RUN:-}" ]; then
    loadtest gate "$RUN" --slo "$SLO"
else
    # An unset URL is passed on as an empty one, which loadtest refuses with exit code 2.
    loadtest run "$SCENARIO" --slo "$SLO" --baseline "${BASELINE_URL:-}" --speculative "${SPECULATIVE_URL:-}"
fi

"${PROMOTE:?say what promotes: PROMOTE=./promote}"
