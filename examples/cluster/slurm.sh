#!/bin/sh
# Starts one host of a run in each task of a Slurm array. All tasks share the limits.
#
#   sbatch --array=1-4 --export=ALL,RUN=nightly-17 slurm.sh
#
# Before: put the server's URL into ~/.ultrapar-cluster (mode 600), and the pool's keys into the environment.
# After: ultrapar merge runs/nightly-17/* --out merged
#SBATCH --job-name=ultrapar
#SBATCH --cpus-per-task=4
#SBATCH --ntasks=1
set -eu

: "${RUN:?name the run: RUN=nightly-17}"
ULTRAPAR_CLUSTER=${ULTRAPAR_CLUSTER:-$(cat "$HOME/.ultrapar-cluster")}
export ULTRAPAR_CLUSTER

# A task that is run again is a new host, so the name includes the job's id.
host="slurm-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID"
srun pytest "${SUITE:-suite}" -n "${SLURM_CPUS_PER_TASK:-4}" \
  --ultrapar-pool "${POOL:-pool.toml}" \
  --ultrapar-cluster-run "$RUN" --ultrapar-cluster-host "$host" \
  --ultrapar-out="runs/$RUN/$host"
