#!/usr/bin/env bash
# Test and measure everything on a GPU, in under 8 minutes: kernels against their definition, then speed and memory.
#
#     [TITANS_COMMIT=abc1234] benchmarks/run_gpu.sh [folder]
#
# Needs torch with CUDA, triton, safetensors and scikit-learn; pytest for the tests; and gpu_peers.txt for the peers, which
# are recorded as unavailable otherwise. With lightning and pandas the forecaster's epochs are timed too.
# Results go to benchmarks/results/*_gpu.jsonl, and are copied with the test log to the folder, even if the run fails.
# If the git history is missing or older than the files, set TITANS_COMMIT to their commit.
set -uo pipefail
folder="${1:-$(mktemp -d)}"
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
cd "$(dirname "$0")/.."
export PYTHONPATH="$PWD/core:$PWD/datasets:$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
unset TRITON_INTERPRET
python="${PYTHON:-python3}"

"$python" - <<'check' || exit 1
import importlib.util
import sys

needed = {"torch": "torch", "triton": "triton", "safetensors": "safetensors", "sklearn": "scikit-learn"}
if missing := [package for name, package in needed.items() if importlib.util.find_spec(name) is None]:
    sys.exit(f"{', '.join(missing)} cannot be imported: install what is missing, or set PYTHON to another interpreter")
import torch

sys.exit(None if torch.cuda.is_available() else "there is no CUDA device here")
check
trap 'cp benchmarks/results/*_gpu.jsonl "$folder"/ 2>/dev/null' EXIT
failed=0
# fla and the forecaster's kernels compile in parallel with the tests. fla's tuning results are not cached, as the GPU is
# busy; Triton caches compiled kernels.
FLA_CACHE_RESULTS=0 timeout -k 5 150 "$python" benchmarks/memory_gpu.py --warm >"$folder/warm.log" 2>&1 &
timeout -k 5 150 "$python" benchmarks/forecast_gpu.py --warm >"$folder/warm_forecast.log" 2>&1 &
if "$python" -c 'import pytest' 2>/dev/null; then
  # most of their time is compiling, so they are shared out among processes
  run=("$python" -m pytest -q -rf -p no:cacheprovider -o addopts=--import-mode=importlib -o timeout=0)
  parts="$(mktemp -d)"
  "${run[@]}" --collect-only tests/core/nn/test_triton_layers.py \
    tests/core/ops/test_triton_{coefficients,decode,memory}.py >"$parts/all" 2>&1 || failed=1
  grep '^tests/.*::' "$parts/all" | split -e -d -n "r/$(($(nproc) < 16 ? $(nproc) : 16))" - "$parts/part"
  started=()
  for part in "$parts"/part*; do
    [ -s "$part" ] || continue
    mapfile -t some <"$part"
    # on SIGINT pytest still reports failures
    timeout -s INT -k 10 130 "${run[@]}" "${some[@]}" >"$part.log" 2>&1 &
    started+=($!)
  done
  if [ ${#started[@]} -eq 0 ]; then
    cat "$parts/all" >&2
    failed=1
  fi
  for one in "${started[@]}"; do wait "$one" || failed=1; done
  cat "$parts"/part*.log >"$folder/tests.log"
  rm -r "$parts"
  grep -E '^(FAILED|ERROR|[0-9]+ (passed|failed)|.* in [0-9.]+s)' "$folder/tests.log"
else
  echo "pytest is not installed: the kernels are measured, but not tested" >&2
  failed=1
fi
wait
timeout -k 5 240 "$python" benchmarks/memory_gpu.py --minutes 3.3 || failed=1
if "$python" -c 'import lightning, pandas' 2>/dev/null; then
  # 124: out of time; the finished sets are in the file
  timeout -k 5 60 "$python" benchmarks/forecast_gpu.py --minutes 0.5 || [ $? -eq 124 ] || failed=1
else
  echo "lightning or pandas is not installed: the forecaster is not timed" >&2
fi
exit "$failed"
