.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# With an empty PYTHONDONTWRITEBYTECODE, Python stores compiled tests. A pytest process loads compiled tests
# faster than it compiles all tests.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tests.runner.plugin
# Each pytest process starts its own services. Many tests wait, so on two cores, three processes finish earlier
# than two. tests/runner/order.py sorts the test files.
PARALLEL := --numprocesses 3 --dist loadfile --no-loadscope-reorder
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help run test test-full unit check containers clients bench house audit sbom requirements pictures messages \
	release-check site format

help: ## List the make targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

run: $(VENV)/.devstack ## Start Pressroom with all services on this machine; Ctrl-C stops it
	@$(BIN)/pressroom up

test: $(VENV)/.dev ## Run the tests against real services; TESTS=… selects files
	$(PYTEST) --tier fast $(if $(TIMES),--times) $(if $(TESTS),$(TESTS),$(PARALLEL))

test-full: $(VENV)/.dev ## Run the long tests; PART=… selects one part, SIZE=full takes hours
	@BIN=$(BIN) tests/runner/run_full $(if $(PART),$(PART),all) $(TESTS)

# The folders with tests that need no stack. Searching all other folders would take pytest as long as running
# these tests.
UNITS := $(addprefix tests/,api cli core devstack integrations services storage workers)

unit: $(VENV)/.dev ## Run the tests that need no services
	$(PYTEST) --tier fast -m "not stack and not slow" --numprocesses 3 --dist worksteal $(or $(TESTS),$(UNITS))

check: $(VENV)/.dev ## Check style, types, imports, dead code, migrations and documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .
	! $(BIN)/vulture | grep -E "unused (function|class|method|property|import)|unreachable"
	$(PYTEST) --tier check $$(grep -rl 'mark\.tier("check")' tests --include='test_*.py')

containers: $(VENV)/.dev ## Build the image and test the Compose file with Podman (as root)
	PRESSROOM_CONTAINERS=$${PRESSROOM_CONTAINERS:-full} $(PYTEST) -s tests/containers $(TESTS)

clients: $(addprefix client-,$(or $(LANGUAGE),python typescript)) ## Build the clients into build/clients; LANGUAGE=… builds one

.PHONY: client-sources client-python client-typescript
client-sources: $(VENV)/.clients
	@mkdir -p build/clients
	$(BIN)/python -m cli.openapi_document > build/openapi.json
	$(BIN)/python -m clients.generator

client-python: client-sources
	@rm -rf build/clients/*.whl clients/python/build
	@cp LICENSE clients/python
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/clients clients/python

# The file package-lock.json contains no addresses, so that npm uses the registry of the machine.
NPM := npm --prefix clients/typescript --no-audit --no-fund --loglevel error

client-typescript: client-sources
	@command -v node >/dev/null && command -v npm >/dev/null || \
		{ echo "The TypeScript client is built by Node.js 20 or newer and npm: install both."; exit 2; }
	@rm -f build/clients/*.tgz
	@cp LICENSE clients/typescript
	$(NPM) version --silent --no-git-tag-version --allow-same-version "$$($(BIN)/pressroom --version | cut -d " " -f 2)" >/dev/null
	$(NPM) ci --ignore-scripts
	$(NPM) run --silent types
	$(NPM) run --silent build
	npm pack --silent --pack-destination build/clients ./clients/typescript

client-%:
	@echo "LANGUAGE must be python or typescript, not $*."; exit 2

bench: $(VENV)/.dev ## Compare the speed with baselines; NAME=… selects one, SIZE=full the large size
	$(BIN)/python -m $(if $(filter growth,$(NAME)),tests.growth,benchmarks $(NAME))

house: $(VENV)/.dev ## Print metrics of the code and the file of each URL; BASE=<commit> compares
	@$(BIN)/python -m benchmarks.code_metrics $(BASE)

# No other target runs the audit, because new entries in the public database would make an unchanged commit fail.
audit: $(VENV)/.dev ## Look up known vulnerabilities of all pinned dependencies
	@code=0; $(BIN)/pip-audit --strict --requirement requirements-dev.txt --disable-pip --require-hashes \
		--progress-spinner off > $(VENV)/audit.log 2>&1 || code=$$?; \
	tail -n 40 $(VENV)/audit.log; \
	if [ $$code -ne 0 ] && ! grep -q "^Found .* vulnerabilit" $(VENV)/audit.log; then \
		echo "The database of vulnerabilities is unreachable, so no dependency was audited."; exit 2; \
	fi; \
	exit $$code

sbom: $(VENV)/.dev ## Write the bill of materials of the image in CycloneDX (build/sbom.cdx.json)
	@mkdir -p build
	PATH=$(BIN):$$PATH sh deploy/image/sbom.sh build/sbom.cdx.json

format: $(VENV)/.dev ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pictures: $(VENV)/.dev ## Take new screenshots for docs/console.md
	$(BIN)/python -m tests.browser.console_pictures

messages: $(VENV)/.dev ## Update the translation catalogues
	$(BIN)/pybabel -q extract -F pyproject.toml -k marked --add-location=file --sort-by-file \
		-o $(VENV)/messages.pot api core services
	for each in core/languages/catalogues/*.po; do \
		$(BIN)/pybabel -q update -i $(VENV)/messages.pot -o $$each -l $$(basename $$each .po) -w 110 \
			--ignore-obsolete --ignore-pot-creation-date || exit 1; \
	done

release-check: $(VENV)/.dev ## Build and check all files of a release (build/release); TAG=v… checks the tag
	.ci/release

SITE := build/site

site: $(VENV)/.dev ## Build the documentation site (build/site)
	rm -rf $(SITE)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --conf-dir docs/site . $(SITE)
	cp docs/site/redirect.html $(SITE)/index.html

# uv pins the newest compatible versions with their hashes. By default, uv writes no index address into the files.
COMPILE = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make requirements'

requirements: $(VENV)/.dev ## Update and pin all dependencies
	$(COMPILE) pyproject.toml --extra languages --extra devstack --group dev --output-file requirements-dev.txt
	$(COMPILE) pyproject.toml --extra languages --extra devstack --constraint requirements-dev.txt --output-file requirements-devstack.txt
	$(COMPILE) pyproject.toml --extra languages --constraint requirements-dev.txt --output-file requirements-languages.txt
	$(COMPILE) pyproject.toml --constraint requirements-dev.txt --output-file requirements.txt
	$(COMPILE) --group image --constraint requirements-dev.txt --output-file requirements-image.txt
	$(call beyond,requirements-dev.txt,requirements-devstack.txt)
	$(call beyond,requirements-devstack.txt,requirements-languages.txt)
	$(call beyond,requirements-languages.txt,requirements.txt)

# Removes the pins that the second file also contains from the first file, and adds a reference to the second file.
define beyond
	@{ echo "-r $(2)"; awk '/^#/ { next } /^[^ ]/ { pin = $$0 } NR == FNR { known[pin] = 1; next } \
		!(pin in known)' $(2) $(1); } > $(1).new
	@mv $(1).new $(1)
endef

# After `su`, the user may lack access to a parent folder of the checkout. Without this check, Python would only
# report "No module named …".
.PHONY: open
open:
	@closed=; folder="$(CURDIR)"; \
	while [ "$$folder" != / ]; do [ -x "$$folder" ] || closed="$$folder"; folder=$$(dirname "$$folder"); done; \
	[ -z "$$closed" ] || { \
		echo "User $$(id -un) cannot enter $$closed, a parent folder of this checkout ($(CURDIR))."; \
		echo "Clone Pressroom into a folder that this user can enter, or run make as the owner of $$closed."; exit 2; }

$(VENV)/bin/python: | open
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Pressroom needs Python 3.11 or newer. Set PYTHON=… to the path of a newer Python."; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.devstack: $(VENV)/bin/python requirements.txt requirements-languages.txt requirements-devstack.txt pyproject.toml
	@test -e $(VENV)/.dev || $(MAKE) --no-print-directory install REQUIREMENTS=requirements-devstack.txt
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python requirements.txt requirements-languages.txt requirements-devstack.txt requirements-dev.txt pyproject.toml
	@$(MAKE) --no-print-directory install REQUIREMENTS=requirements-dev.txt
	@touch $@

# To build the clients within seconds, install only Pressroom and the generators of the clients. uv
# checks the hashes in requirements-dev.txt, and installs the packages several times faster than pip.
$(VENV)/.clients: $(VENV)/bin/python requirements-dev.txt pyproject.toml
	@if test -e $(VENV)/.dev; then $(MAKE) --no-print-directory $(VENV)/.dev; else \
		echo "Installing the generators of the clients into $(VENV) …"; \
		awk '/^[^ ]/ { is_uv = /^uv==/ } is_uv' requirements-dev.txt > $(VENV)/uv.txt && \
		$(PIP) install --require-hashes -r $(VENV)/uv.txt && \
		$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint requirements-dev.txt \
			--build-constraint requirements-dev.txt --group clients --editable .; fi
	@touch $@

# The files that $(REQUIREMENTS) consists of.
PINS = requirements.txt requirements-languages.txt requirements-devstack.txt $(filter requirements-dev.txt,$(REQUIREMENTS))
# Prints every tenth package that pip downloads, because pip's own output has several lines per package.
COUNT_PACKAGES = awk '/^(Collecting|Requirement already satisfied:|Ignoring) / && ++count % 10 == 0 \
	{ print "  " count " of " total " packages"; fflush() } \
	/^Installing collected/ { print "  unpacking " count " packages …"; fflush() }' \
	total=$$(cat $(PINS) | grep -c ==)

.PHONY: install
install:
	@echo "Installing $(REQUIREMENTS) into $(VENV) …"
	@set -o pipefail; $(BIN)/python -m pip --disable-pip-version-check install --progress-bar off \
		--require-hashes -r $(REQUIREMENTS) | $(COUNT_PACKAGES)
	@PYTHONWARNINGS=ignore $(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q api cli core devstack integrations models services storage workers
