#!/usr/bin/env bash
# Trains both methods on the paper's two tasks with preset `converged`, all runs in parallel on one GPU.
#   results/training/converged.sh RUNS [SEED...]       runs that were started before go on where they were
set -euo pipefail
runs=$1
shift
seeds=("$@")
[ ${#seeds[@]} -gt 0 ] || seeds=(0 1)
export OMP_NUM_THREADS=2
mkdir -p "$runs"
python3 -m mental_accounts data make hopper-medium --steps 400000
python3 -m mental_accounts data make walker2d-medium-replay
for seed in "${seeds[@]}"; do
  for method in odt ewa-vq-odt; do
    for task in hopper-medium walker2d-medium-replay; do
      run=$runs/$task-$method-$seed
      steps=()
      [ "$task" = hopper-medium ] && steps=(--data-steps 400000)
      if [ -e "$run/config.json" ]; then
        python3 -m mental_accounts resume "$run" >>"$run.log" 2>&1 &
      else
        python3 -m mental_accounts train --preset converged --task "$task" --method "$method" --seed "$seed" \
          --run "$run" "${steps[@]}" >"$run.log" 2>&1 &
      fi
    done
  done
done
wait
