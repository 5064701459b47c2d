# Each target runs one verb of `python -m bench` and first makes the virtual environment that it needs.
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
.PHONY: help setup kvikio peers check test slow mutants bench sweep report doctor predict matrix capacity size longctx reuse notebooks clean

help: ## List the targets.
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12
	@echo
	@echo 'make sweep MODEL=qwen3-8b ARGS="--budget 10m --data-dir /mnt/nvme"'
	@echo 'make sweep RESUME=results/<model>/<machine>/<run>'
	@echo 'make report RESULTS=results/<model>/<machine>/<run>'
	@echo 'make predict ARGS="machine --model llama-3.1-8b --gpu H100 --ssd pm9a3"'
	@echo 'make reuse TRACE=conversation_trace.jsonl ARGS="--capacity 1e6,10e6"'
	@echo
	@echo 'Exit code: make returns 2 for every failure and for a suspect result.'
	@echo 'For 0/1/2/3 run .venv/bin/python -m bench VERB; see README.md.'

setup: $(VENV)/.dev ## Make .venv with everything that development needs.

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

kvikio: $(VENV)/.dev ## Install kvikio for the tests, without the CUDA packages (80 MB).
	@$(PIP) --no-deps kvikio-cu13 libkvikio-cu13 rapids-logger cuda-pathfinder 'cuda-bindings>=13' nvidia-cufile nvidia-cuda-runtime

peers: $(VENV)-peers/.made ## Make .venv-peers: file readers of vLLM and LMCache (2 GB).

$(VENV)-peers/.made: tests/perf/peers-requirements.txt
	@$(PYTHON) -m venv $(VENV)-peers
	@$(VENV)-peers/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	@$(VENV)-peers/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

check: $(VENV)/.dev ## Run ruff, mypy --strict and the import-arrow test.
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pytest tests/test_arrows.py

test: $(VENV)/.dev ## Run the test suite. Needs no network and no GPU.
	$(PY) -m pytest -n auto --dist worksteal -m 'not slow' $(ARGS)

slow: $(VENV)/.dev ## Run the slow tests: whole sweeps, servers, ranks, kill and resume.
	$(PY) -m pytest -n auto --dist worksteal -m slow $(ARGS)

mutants: $(VENV)/.dev ## each wrong line of tests/mutants/table.py must make its test fail (also in slow)
	$(PY) -m tests.mutants

bench: $(VENV)/.dev ## Compare our reads with fio, NIXL, vLLM, LMCache; arms with limits.
	$(PY) -m pytest tests/perf --benchmark-only -o addopts= -p no:cacheprovider $(ARGS)

sweep: $(VENV)/.runtime ## Measure recompute and load; find the crossover.
	@$(PY) -m bench sweep $(if $(RESUME),--resume '$(RESUME)','$(MODEL)') $(ARGS)

report: $(VENV)/.runtime ## Derive all files of RESULTS again from its samples.
	@$(PY) -m bench report $(if $(RESULTS),'$(RESULTS)') $(ARGS)

capacity: $(VENV)/.runtime ## Print KV bytes of users and contexts (arithmetic).
	@$(PY) -m bench capacity $(if $(filter command,$(firstword $(origin MODEL))),--model '$(MODEL)') $(ARGS)

size: $(VENV)/.runtime ## Print GPUs, storage and cost, with and without reuse (modelled).
	@$(PY) -m bench size $(if $(filter command,$(firstword $(origin MODEL))),--model '$(MODEL)') $(ARGS)

longctx: $(VENV)/.runtime ## Compare recompute and load up to 1M tokens (modelled).
	@mkdir -p results/scratch
	@$(PY) -m bench predict machine --model '$(if $(filter command,$(firstword $(origin MODEL))),$(MODEL),llama-4-maverick)' --gpu h200-sxm --num-gpus 8 --bandwidth 10GB/s,50GB/s --tokens 1k..1M --csv results/scratch/longctx.csv --plot results/scratch/longctx.png $(ARGS)

reuse: $(VENV)/.runtime ## Print the hit ratio of TRACE per cache capacity (modelled).
	@$(PY) -m bench reuse $(if $(TRACE),'$(TRACE)') $(ARGS)

doctor: $(VENV)/.runtime ## List what this machine can measure, and why not the rest.
	@$(PY) -m bench doctor $(ARGS)

predict: $(VENV)/.runtime ## Print modelled times, C* and P* of a machine.
	@$(PY) -m bench predict $(ARGS)

matrix: $(VENV)/.runtime ## Write modelled C* over models, GPUs and storage.
	@$(PY) -m bench matrix $(ARGS)

notebooks: $(VENV)/.dev ## Run the notebooks on RESULTS (default: the newest result).
	@mkdir -p results/scratch
	KVCROSS_RESULTS='$(RESULTS)' $(PY) -m nbconvert --to html --execute --output-dir results/scratch notebooks/*.ipynb

clean: ## Remove environments, caches and scratch files; keep results.
	rm -rf $(VENV) $(VENV)-peers build *.egg-info .mypy_cache .ruff_cache results/scratch
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
