# Run within `unshare -rn`: a network for the master and the server, one for a worker whose clock is an hour ahead, and
# two lines between them, for the messages (10.99.0.x) and for the traffic (10.99.1.x).
# $1 python · $2 folder · $3 scenario. The test cuts the first line by `ip link set line0 down` in this network.
set -eu
python=$1 folder=$2 scenario=$3
ip link set lo up
ip link add line0 type veth peer name line1
ip link add way0 type veth peer name way1
ip addr add 10.99.0.1/24 dev line0
ip addr add 10.99.1.1/24 dev way0
ip link set line0 up
ip link set way0 up
cat > "$folder/worker.sh" <<'END'
ip link set lo up
until ip link show line1 && ip link show way1; do sleep 0.05; done > /dev/null 2>&1
ip addr add 10.99.0.2/24 dev line1
ip addr add 10.99.1.2/24 dev way1
ip link set line1 up
ip link set way1 up
exec "$1" -m loadtest worker --master 10.99.0.1:5557 --name far --spool "$2/spool" --wait 1m
END
unshare -n -T --monotonic 3600 --boottime 3600 --fork --kill-child bash "$folder/worker.sh" "$python" "$folder" \
  > "$folder/worker.out" 2>&1 &
worker=$!
sleep 0.5
ip link set line1 netns "$worker"
ip link set way1 netns "$worker"
"$python" -m loadtest.simulate --host 10.99.1.1 --port 8000 --log "$folder/truth.jsonl" > "$folder/server.out" 2>&1 &
server=$!
until grep -q ready "$folder/server.out"; do sleep 0.1; done
code=0
"$python" -m loadtest run "$scenario" --server http://10.99.1.1:8000 --expect-workers 1 --bind 10.99.0.1:5557 --wait 1m \
  --levels 6 --blocks 3 --window 8s --set generation.max_tokens=24 --set load.think_time=0 --set plan.stages=one \
  --measure-only --out "$folder/out" || code=$?
wait "$worker" || code="$code, worker $?"
kill "$server"
cat "$folder/worker.out"
echo "ended with $code"
