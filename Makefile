# Two commands: `make run` (raw mails in, a released model out) and `make test`.

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(shell command -v $(p) 2>/dev/null)))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DATA ?=
PRESET ?=
UNTIL ?=
# The sample is fetched only where params.yaml still names it.
SAMPLE := $(if $(DATA),,$(shell grep -qE '^ *source: *input/spam( |$$)' params.yaml && echo input/spam))

.PHONY: help run test browser test-unit lint bench bench-quality bench-clean bench-train up setup lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /make \1\t/' | expand -t 22

run: $(READY) $(SAMPLE) ## the pipeline, end to end: DATA=path/ for your own files, PRESET=quick, UNTIL=stage
	@$(BIN)/daymill run $(if $(DATA),--data '$(DATA)') $(if $(PRESET),--preset $(PRESET)) $(if $(UNTIL),--until $(UNTIL))

test: $(READY) browser ## every test
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

browser: # the server's page is tested in a real one
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { \
		command -v apt-get >/dev/null 2>&1 || { echo "error: the tests need a Chromium on the PATH"; exit 1; }; \
		as_root=$$(test "$$(id -u)" = 0 || echo sudo); echo "installing chromium for the tests"; \
		$$as_root apt-get update -qq && $$as_root apt-get install -y -qq chromium >/dev/null; }

test-unit: $(READY) ## the tests that take a minute
	$(BIN)/python -m pytest -q tests/unit -m 'not slow'

lint: $(READY) ## ruff, mypy and the walls between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY) ## training speed and loss beside a nanoGPT-style loop and the transformers Trainer
	$(BIN)/python benchmarks/train_speed.py

bench-quality: $(READY) ## the sample over three seeds, beside TF-IDF (needs `make run` first)
	$(BIN)/python benchmarks/quality.py

bench-clean: $(READY) ## all that cleaning promises, beside its peers: about an hour (needs `daymill sample spam`)
	PYTHONPATH=. $(BIN)/python benchmarks/clean.py

bench-train: $(READY) ## all that the training engine promises, beside claims and peers: four hours (needs `daymill sample spam`)
	PYTHONPATH=. $(BIN)/python benchmarks/train.py

up: $(READY) ## the Prefect UI with the pipeline's form, until Ctrl-C
	@$(BIN)/daymill up

setup: $(READY) ## the environment alone

input/spam: | $(READY)
	@$(BIN)/daymill sample spam

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "error: no python3 found; install Python 3.11, 3.12 or 3.13"; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else f"error: {sys.executable} is Python {v[0]}.{v[1]}; expected 3.11 to 3.13 (make PYTHON=/path/to/python3.11)")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[openvino,dask,samples,dev]'
	@touch $@

lock: $(READY) ## write constraints.txt anew from the environment
	$(BIN)/python -m pip freeze --exclude-editable --exclude daymill | grep -E '^[A-Za-z0-9._-]+==' | sed 's/+[a-z0-9.]*$$//' > constraints.txt

clean: ## what runs left behind; keeps the environment, the inputs and the releases
	rm -rf artifacts .prefect
