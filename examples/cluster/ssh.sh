#!/bin/sh
# Starts one host of a run on each given machine over ssh, and merges their results.
#
#   ULTRAPAR_CLUSTER=rediss://... sh ssh.sh nightly-17 m1 m2 m3
#
# Each machine needs the suite, the pool, an environment with pytest-ultrapar[cluster] in .venv and the pool's keys in
# keys.env, all below DIR (a path from the home directory).
set -eu

run=$1
shift
dir=${DIR:-evals}
mkdir -p "runs/$run"

for machine in "$@"; do
  host=$(printf %s "$machine" | tr -c 'A-Za-z0-9._-' -) # user@m1 is not a valid host name
  {
    # The URL contains a password, and other users can read command lines, so it goes to standard input.
    printf '%s\n' "$ULTRAPAR_CLUSTER" | ssh "$machine" "
      cd '$dir' && read -r ULTRAPAR_CLUSTER && export ULTRAPAR_CLUSTER && set -a && . ./keys.env && set +a &&
      .venv/bin/pytest suite -n ${WORKERS:-4} --ultrapar-pool pool.toml --ultrapar-cluster-run '$run' \
        --ultrapar-cluster-host '$host' --ultrapar-out='runs/$run/$host' </dev/null" \
      > "runs/$run/$host.log" 2>&1 || echo "$machine ended with $?; see runs/$run/$host.log" >&2
    ssh "$machine" "cd '$dir' && tar -cf - 'runs/$run/$host'" </dev/null | tar -xf -
  } &
done
wait

set --
for one in "runs/$run"/*/; do
  set -- "$@" "$one"
done
ultrapar merge "$@" --out "runs/$run-merged"
