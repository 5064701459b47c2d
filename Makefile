# Every target is one line over `python -m bench VERB`; each makes the virtual environment that it needs.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt

MODEL ?= qwen3-8b
RESULTS ?=
RESUME ?=
TRACE ?=
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup kvikio peers check test slow bench sweep report doctor predict matrix capacity size longctx reuse notebooks clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
	@echo
	@echo 'make sweep MODEL=qwen3-8b [ARGS="--budget 120s --limit 100MB/s --data-dir /mnt/nvme"]'
	@echo 'make sweep RESUME=results/<model>/<machine>/<run>'
	@echo 'make reuse TRACE=conversation_trace.jsonl ARGS="--capacity 1e6,10e6"'
	@echo 'make report RESULTS=results/<model>/<machine>/<run>'

setup: $(VENV)/.dev ## make .venv with everything that developing needs

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "kvcross needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "no venv module for $(PYTHON): apt-get install python3-venv, or make PYTHON=..."; exit 2; }
	@touch $@

$(VENV)/.runtime: $(VENV)/.made pyproject.toml constraints.txt
	@echo "installing kvcross into $(VENV) (minutes on the first run) ..."
	@$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@$(PIP) -e '.[dev]'
	@touch $@

kvikio: $(VENV)/.dev ## kvikio for the tests, which read into host memory: without the CUDA packages that it asks for (80 MB)
	@$(PIP) --no-deps kvikio-cu13 libkvikio-cu13 rapids-logger cuda-pathfinder 'cuda-bindings>=13' nvidia-cufile nvidia-cuda-runtime

peers: $(VENV)-peers/.made ## the file readers of vLLM and LMCache for bench, in .venv-peers (2 GB)

$(VENV)-peers/.made: tests/perf/peers-requirements.txt
	@$(PYTHON) -m venv $(VENV)-peers
	@$(VENV)-peers/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	@$(VENV)-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

check: $(VENV)/.dev ## ruff, mypy --strict and the import arrows
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest tests/test_arrows.py

test: $(VENV)/.dev ## the test suite: no network, no GPU needed
	$(PY) -m pytest -n auto --dist worksteal -m 'not slow' $(ARGS)

slow: $(VENV)/.dev ## the tests that take long: whole sweeps against servers, with several ranks, killed and resumed
	$(PY) -m pytest -n auto --dist worksteal -m slow $(ARGS)

bench: $(VENV)/.dev ## pytest-benchmark suite: our reads against fio, NIXL, vLLM, LMCache (make peers); the arms against the machine
	$(PY) -m pytest tests/perf --benchmark-only -o addopts= -p no:cacheprovider $(ARGS)

sweep: $(VENV)/.runtime ## measure recompute and load, locate the crossover
	@$(PY) -m bench sweep $(if $(RESUME),--resume '$(RESUME)','$(MODEL)') $(ARGS)

report: $(VENV)/.runtime ## recompute everything from the samples of RESULTS
	@$(PY) -m bench report $(if $(RESULTS),'$(RESULTS)') $(ARGS)

capacity: $(VENV)/.runtime ## KV bytes of users and contexts (arithmetic); MODEL=... for one model
	@$(PY) -m bench capacity $(if $(filter command,$(firstword $(origin MODEL))),--model '$(MODEL)') $(ARGS)

size: $(VENV)/.runtime ## GPUs, storage and cost with and without reuse (modelled); see docs/capacity.md for ARGS
	@$(PY) -m bench size $(if $(filter command,$(firstword $(origin MODEL))),--model '$(MODEL)') $(ARGS)

longctx: $(VENV)/.runtime ## recompute against load to a million tokens (modelled): figure and CSV in results/scratch
	@mkdir -p results/scratch
	@$(PY) -m bench longctx $(if $(filter command,$(firstword $(origin MODEL))),'$(MODEL)') --csv results/scratch/longctx.csv --plot results/scratch/longctx.png $(ARGS)

reuse: $(VENV)/.runtime ## hit ratio of TRACE against the capacity of a cache, modelled
	@$(PY) -m bench reuse $(if $(TRACE),'$(TRACE)') $(ARGS)

doctor: $(VENV)/.runtime ## what this machine can measure, and why not the rest
	@$(PY) -m bench doctor $(ARGS)

predict: $(VENV)/.runtime ## modelled times and crossover: ARGS="--model llama-3.1-8b --gpu H100 --ssd pm9a3"
	@$(PY) -m bench predict $(ARGS)

matrix: $(VENV)/.runtime ## modelled C* over models, GPUs and storages: CSV, heat map, curves
	@$(PY) -m bench matrix $(ARGS)

notebooks: $(VENV)/.dev ## execute the notebooks on RESULTS (or the newest results) into results/scratch
	@mkdir -p results/scratch
	KVCROSS_RESULTS='$(RESULTS)' $(PY) -m nbconvert --to html --execute --output-dir results/scratch notebooks/*.ipynb

clean: ## remove the environment, caches and scratch files; results stay
	rm -rf $(VENV) $(VENV)-peers build *.egg-info .mypy_cache .ruff_cache results/scratch
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
