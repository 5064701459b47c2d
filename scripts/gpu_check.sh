#!/usr/bin/env bash
# Check a machine with a GPU: doctor, the GPU tests, one sweep, and two sweeps through kvikio if it is installed.
# Downloads nothing and uses the Python that is installed.
#   PYTHON=python3 OUT=results BUDGET=240s MODEL=qwen3-8b scripts/gpu_check.sh
# Exit code: 0, or that of a step that failed. A suspect sweep (exit code 3) is no failure. The sweep runs even if a test fails.
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
OUT=${OUT:-results}
BUDGET=${BUDGET:-240s}
MODEL=${MODEL:-qwen3-8b}

"$PYTHON" - <<'PY' || exit 2
import importlib.util
import sys

needed = ("torch", "transformers", "pydantic", "typer", "rich", "pandas", "scipy", "matplotlib", "jinja2", "xxhash", "psutil")
missing = [name for name in needed if importlib.util.find_spec(name) is None]
sys.exit(f"missing Python packages: {' '.join(missing)}; install them from wheels" if missing else 0)
PY

status=0
"$PYTHON" -m bench doctor || status=$?
if "$PYTHON" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("pytest") is None)'; then
    "$PYTHON" -m pytest -m gpu || status=$?
else
    echo "GPU tests skipped: pytest is not installed"
fi
mkdir -p results/scratch
"$PYTHON" -m bench sweep "$MODEL" --budget "$BUDGET" --results "$OUT"
swept=$?
# Sweeps into the GPU: kvikio's own reads (on), then cuFile (off). cuFile takes one configuration per process.
if "$PYTHON" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("kvikio") is None)'; then
    for compat in on off; do
        "$PYTHON" -m bench sweep "$MODEL" --backend gds,posix --option gds.compat=$compat \
            --budget "$BUDGET" --results "$OUT" || [ $? = 3 ] || status=1
    done
else
    echo "kvikio sweeps skipped: install kvikio-cu13, libkvikio-cu13, rapids-logger and cuda-pathfinder"
fi
[ "$swept" = 0 ] || [ "$swept" = 3 ] || exit "$swept"
exit "$status"
