#!/usr/bin/env bash
# On a machine with a GPU: the GPU tests, then one sweep, and one or two through kvikio where it is.  Nothing is downloaded: it uses the Python that is there.
#   PYTHON=python3 OUT=results BUDGET=240s MODEL=qwen3-8b scripts/gpu_check.sh
# Exit code: that of the first step that failed; the sweep runs even when a test fails.
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
sys.exit(f"missing Python packages: {' '.join(missing)}; carry their wheels along" if missing else 0)
PY

status=0
"$PYTHON" -m bench doctor || status=$?
if "$PYTHON" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("pytest") is None)'; then
    "$PYTHON" -m pytest -m gpu || status=$?
else
    echo "no pytest here: the GPU tests are not run"
fi
mkdir -p results/scratch
"$PYTHON" -m bench sweep "$MODEL" --budget "$BUDGET" --results "$OUT"
swept=$?
# kvikio into the GPU: by its own reads, then by cuFile where its driver opens; cuFile has one configuration a process
if "$PYTHON" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("kvikio") is None)'; then
    for compat in on off; do
        "$PYTHON" -m bench sweep "$MODEL" --backend gds,posix --backend-option gds.compat=$compat \
            --budget "$BUDGET" --results "$OUT" || [ $? = 3 ] || status=1
    done
else
    echo "no kvikio here: kvikio-cu13, libkvikio-cu13, rapids-logger and cuda-pathfinder are needed"
fi
[ "$swept" = 0 ] || [ "$swept" = 3 ] || exit "$swept"
exit "$status"
