# Every target sets up what it needs; `make demo` and `make test` are all a newcomer types.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .stamps

# The tests start hundreds of processes: without bytecode each compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo federated demo-federated test quick coverage softhsm prometheus chromium test-browser screenshots test-full test-repeats repeats test-capabilities check fmt benchmarks-ridge benchmarks-unlearning benchmarks-methods benchmarks-soundness benchmarks-families bench bench-check faults soak fuzz flower-check gpu-check demos-check alerts-check attacks-check witness-check red-team site sbom lock clean

demo: $(STAMPS)/demo ## the demonstration: every certificate is verified; options in ARGS
	$(BIN)/lethe demo $(ARGS)

# What `lethe demo` needs for networks: torch.
federated: $(STAMPS)/federated ## install what the demonstrations of networks need (torch)

demo-federated: $(STAMPS)/federated ## each unlearning method of networks beside retraining, on digits
	$(BIN)/lethe demo-federated $(ARGS)

# Compiling the forests takes a minute of a new clone, and their lines are seen to run only
# where nothing is compiled: `make test-full` runs their tests compiled.
test coverage: export NUMBA_DISABLE_JIT = 1

test: $(STAMPS)/dev ## quick tests, on two processes: five minutes; ARGS goes to pytest
	$(BIN)/python -m pytest -n 2 --dist worksteal -m quick $(ARGS)

# tests/probes.py says how they are measured.
coverage: $(STAMPS)/dev ## all tests of one process, measured: fails below the floor in pyproject.toml
	@mkdir -p build/coverage && rm -f build/coverage/*
	$(BIN)/python -m coverage run -m pytest -n 2 --dist worksteal $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

# Which tests together reach nearly what all reach: tests/quick.py.
quick: $(STAMPS)/dev ## renew tests/quick.txt: which tests `make test` runs; half an hour
	rm -rf build/quick
	$(MAKE) coverage ARGS="-p tests.quick"
	$(BIN)/python -m tests.quick

# A file's tests share what is expensive: an installed image, a fitted installation, a finished
# demonstration. In the order of the folders, whose last files are short: no process waits.
BY_FILE := --dist loadfile --no-loadscope-reorder

# What `make coverage` leaves out (tests/sizes.py says what, and why), and what it runs smaller:
# fewer examples of the properties in tests/fuzz.py, forests without compiling. Three processes
# on two processors: a quarter of the time tests of processes wait for them (tests/conftest.py).
test-full: export LETHE_TEST_SIZE = full
test-full: $(STAMPS)/dev $(STAMPS)/forests softhsm prometheus ## what `make coverage` leaves out: the second database, processes, demonstrations
	$(BIN)/python -m pytest -n 3 $(BY_FILE) -m "(full or thorough) and not repeats and not slow and not redteam" $(ARGS)

# numba compiles the forests in half a minute: once here, or in each of the three processes at once.
$(STAMPS)/forests: $(STAMPS)/dev $(wildcard lethe/estimators/forest/*.py)
	$(BIN)/python -m pytest -q -n 0 -m "full or thorough" -k "row_by_row or sealed_state or read_back" tests/lethe/estimators/forest/test_forest.py
	@touch $@

# SoftHSM, the PKCS#11 tokens of tests/app/hsm, is Debian's: there is no wheel of it.
softhsm: ## SoftHSM by apt, as root, if there is none
	@command -v softhsm2-util > /dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq && apt-get install -qq -y softhsm2; } || \
	  { echo "install SoftHSM first: apt-get install softhsm2"; exit 1; }

# Prometheus and promtool, which judge deploy/monitoring. RUNLEVEL=1: Debian's scripts start no
# service of it, which would scrape this machine from then on.
prometheus: ## Prometheus and promtool by apt, as root, if there are none
	@{ command -v prometheus && command -v promtool; } > /dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq && RUNLEVEL=1 apt-get install -qq -y --no-install-recommends prometheus; } || \
	  { echo "install Prometheus first: apt-get install prometheus"; exit 1; }

# The console and the verification page in Chromium.
test-browser: $(STAMPS)/dev $(STAMPS)/browser chromium ## the pages in a browser, axe too; root gets Chromium by apt
	$(BIN)/python -m pytest -n 2 $(BY_FILE) -m "full or not full" tests/browser $(ARGS)

# Debian's own browser: playwright would download another one.
chromium: ## Chromium by apt, as root, if there is none
	@command -v chromium > /dev/null || command -v google-chrome > /dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq && apt-get install -qq -y chromium; } || \
	  { echo "install Chromium first: apt-get install chromium"; exit 1; }

screenshots: $(STAMPS)/dev $(STAMPS)/browser ## renew the pictures of pages in docs/images
	LETHE_TEST_SCREENSHOTS=docs/images $(BIN)/python -m pytest -n 0 -m "full or not full" tests/browser/test_desk.py tests/browser/test_decisions.py -k "files or curves"

test-repeats: $(STAMPS)/dev ## the cases on the second database that `make test-full` leaves out: an hour, not in .ci/run
	$(BIN)/python -m pytest -n 2 $(BY_FILE) -m "repeats and not slow and not redteam" $(ARGS)

# Without the rooms whose tests start processes: they run every case on both databases anyway.
repeats: export LETHE_TEST_SIZE = full
repeats: $(STAMPS)/dev ## renew tests/repeats.txt: tests that send PostgreSQL nothing new; up to an hour
	rm -rf build/repeats
	$(BIN)/python -m pytest -p tests.repeats -n 2 $(BY_FILE) -k postgresql -m "not repeats and not slow and not redteam" tests/app tests/faults tests/migrations tests/models tests/workers $(ARGS)
	$(BIN)/python -m tests.repeats

# The tests that train, with the vector instructions of other processors: the last bits of their
# sums differ, and no verdict may rest on them. What the machine uses anyway `make coverage` has run,
# the second database adds nothing to a sum, and faults, demonstrations, benchmarks, hostile
# programs, planted changes of rows, queues, rights and mending reach no verdict that the rooms' own
# tests do not. An export and an extractor are compared with the network and not judged; tables are
# not computed with torch; operations and an audit's pairs are counted, and messages, files and
# outputs are parsed.
JUDGE_NOTHING := tests/benchmarks tests/e2e tests/faults tests/workers/demo \
  $(addprefix tests/workers/data/extractors/,test_hostile_programs.py test_torch_module.py) \
  tests/workers/families/test_export.py \
  tests/workers/methods/network/hf_kcu/test_backdoor.py \
  $(addprefix tests/workers/training/,fedavg/test_cost_notes.py fedavg/test_messages.py \
    networks/test_files.py programs/test_outputs.py) \
  $(addprefix tests/workers/jobs/,attempts/test_attempt_numbers.py attempts/test_mend.py \
    attempts/test_refuted_groups.py cases/test_logged_counts.py \
    cases/test_planted_tables.py cases/test_rewound.py desk/test_entitlement.py \
    families/network/test_progress.py families/test_bad_input.py \
    families/test_forest_bins.py families/test_forest_family.py families/test_recipe_family.py \
    families/test_script_family.py families/test_shards_family.py families/test_sums_family.py \
    families/test_vectors_family.py \
    leases/test_routing.py leases/test_stalled.py lineage/test_changed_registration.py \
    lineage/test_kept_files.py method_audits/test_audit_citation.py \
    method_audits/test_audit_hidden.py method_audits/test_audits.py)
# .ci/run sets OTHERS=1: the nearest instructions alone, whose last bits differ as well, and of the
# tests those of `make coverage`, which have every judgement once (tests/sizes.py).
test-capabilities: $(STAMPS)/dev ## the tests that train, with other processors' instructions; OTHERS=1
	@own=$$($(BIN)/python -c "import torch; print(torch.backends.cpu.get_cpu_capability())"); \
	case "$$own" in AVX512*) others="AVX2 DEFAULT";; AVX2 | SVE*) others=DEFAULT;; *) others=;; esac; \
	for other in $$(echo $$others | cut -d ' ' -f "-$(or $(OTHERS),2)"); do \
	  ATEN_CPU_CAPABILITY=$$(echo $$other | tr A-Z a-z) \
	    $(BIN)/python -m pytest -n 2 --dist worksteal -m "trains and not slow and not redteam$(if $(OTHERS), and not full and not thorough and not repeats)" -k "not postgresql" tests/flower tests/redteam tests/workers $(JUDGE_NOTHING:%=--ignore=%) $(ARGS) || exit 1; \
	done

check: $(STAMPS)/dev ## ruff, formatting, import rules, mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

fmt: $(STAMPS)/dev ## fix and format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# Renews docs/benchmarks from DATA (an .npz or a directory of them; scikit-learn's digits
# without). FATS, Exact-Fun, ACU's baselines and colour images need torch.
benchmarks-ridge: $(STAMPS)/benchmarks $(STAMPS)/federated ## renew the tables and figures of the ridge paper and ACU
	$(BIN)/python -m benchmarks.ridge_paper --out docs/benchmarks $(if $(DATA),--data $(DATA)) $(ARGS)

# Renew docs/benchmarks/unlearning.* and soundness.*: hours. Without DATA, on digits and what needs
# no data; with it, on images too (unlearning: a folder of .npz files; soundness: files).
benchmarks-unlearning: $(STAMPS)/dev ## renew the tables of PUF and HF-KCU: hours
	$(BIN)/python -m benchmarks.unlearning --out docs/benchmarks $(if $(DATA),--data $(DATA)) $(ARGS)

# Each page says how to measure its other settings, which need images.
benchmarks-methods: $(STAMPS)/dev ## renew the figures of PUF and HF-KCU, earned certificates and noisy fine-tuning: hours
	$(BIN)/python -m benchmarks.puf_figures --setting digits --out docs/benchmarks $(ARGS)
	$(BIN)/python -m benchmarks.hf_kcu_figure --setting digits --out docs/benchmarks
	$(BIN)/python -m benchmarks.noisy_finetuning --out docs/benchmarks
	$(BIN)/python -m benchmarks.earned --seed 0 --seed 1 --seed 2 --out docs/benchmarks

benchmarks-soundness: $(STAMPS)/dev ## renew how often each verifier is fooled: an hour
	$(BIN)/python -m benchmarks.soundness --out docs/benchmarks $(DATA:%=--data %) $(ARGS)

# What each family of models costs, beside scikit-learn and FAISS: an hour or two on a quiet machine.
# Interrupted, ARGS=--continue keeps what was measured. DATA: .npz files, or tables with ARGS.
benchmarks-families: $(STAMPS)/dev ## renew docs/benchmarks/families.md: hours; ARGS=--continue
	$(BIN)/python -m benchmarks.families --json docs/benchmarks/families.json --page docs/benchmarks/families.md $(DATA:%=--data %) $(ARGS)

# The service under load and its start, beside floors of the same run. On a quiet machine.
bench: $(STAMPS)/dev ## renew docs/benchmarks/service.md: a quarter of an hour
	$(BIN)/python -m benchmarks.service --json docs/benchmarks/service.json --page docs/benchmarks/service.md $(ARGS)

# Not in .ci/run, which shares its machine with whatever else runs there.
bench-check: $(STAMPS)/dev ## fail if a ratio of a quick run is worse than docs/benchmarks/service.json
	@mkdir -p build/bench
	$(BIN)/python -m benchmarks.service --quick --json build/bench/fresh.json
	$(BIN)/python -m benchmarks.service.report check docs/benchmarks/service.json build/bench/fresh.json

# Thousands of planted faults, of which nothing may be lost, doubled, stuck or damaged. With
# ARGS=--quick 10 minutes, else an hour or two.
faults: $(STAMPS)/dev ## inject faults and count what was lost; ARGS=--quick
	@mkdir -p build/faults
	$(BIN)/python -m benchmarks.faults --json build/faults/faults.json $(ARGS)

soak: $(STAMPS)/dev ## two hours of load and kills: what is lost, and what grows; ARGS="--hours 0.1"
	@mkdir -p build/soak
	$(BIN)/python -m benchmarks.soak --json build/soak/soak.json $(ARGS)

fuzz: $(STAMPS)/dev ## fuzz every parser of others' bytes; ARGS="--runs 1000000 note"
	@mkdir -p build/fuzz
	$(BIN)/python -m benchmarks.fuzz --json build/fuzz/fuzz.json --corpus build/fuzz/corpus $(ARGS)

# On a machine with an NVIDIA GPU and torch's build for CUDA; DEVICE=cpu rehearses it elsewhere.
gpu-check: $(STAMPS)/benchmarks $(STAMPS)/federated ## self-test, training, unlearning and sums on a GPU; a record in build/gpu
	@mkdir -p build/gpu
	$(BIN)/python -m benchmarks.gpu_statistics --quick --json build/gpu/statistics.json
	$(BIN)/python -m benchmarks.gpu_training --device $(or $(DEVICE),cuda) --json build/gpu/training.json

# Runs the Flower adapter for real, in an environment of its own (docs/flower.md).
flower-check: ## run the Flower adapter for real: a quarter of an hour
	PYTHON=$(PYTHON) flower/check.sh $(ARGS)

# `lethe demo` of every method and family for real; `make test-full` runs one of each path.
demos-check: $(STAMPS)/dev ## `lethe demo` of every method and every family
	$(BIN)/python -m pytest -n 2 $(BY_FILE) -m "slow or not slow" tests/e2e/test_demo.py tests/e2e/test_demo_network.py tests/e2e/test_demo_tabular.py $(ARGS)

# A real Prometheus with deploy/monitoring's rules, and a fault for each of them. A fault that is not seen
# is not ended either: the first failure ends all.
alerts-check: export LETHE_TEST_ALERTS_RECORD = docs/monitoring.md
alerts-check: $(STAMPS)/dev prometheus ## plant a fault for each alert, and renew the table of docs/monitoring.md
	$(BIN)/python -m pytest -n 0 -x -m "slow or not slow" tests/e2e/alerts $(ARGS)

# Attacks a running installation, on SQLite with files and on PostgreSQL with Redis.
red-team: $(STAMPS)/dev ## attack a running installation
	$(BIN)/python -m pytest -n 2 $(BY_FILE) -m redteam tests/redteam/live $(ARGS)

# Compares the verifier's attacks and intervals with published implementations (scikit-learn,
# statsmodels, ART, TensorFlow Privacy, PrivacyGuard), in an environment of their own.
attacks-check: ## compare attacks and intervals with published implementations
	PYTHON=$(PYTHON) tests/interop/attacks/check.sh $(ARGS)

# Has aics-witness and aics-tlog, unmodified, witness and verify a running log, in an
# environment of their own.
witness-check: $(STAMPS)/dev ## witness and verify a running log with published implementations
	PYTHON=$(PYTHON) tests/interop/witness/check.sh $(ARGS)

# With the newest pip: that of Python 3.11 takes three times as long to find what to install.
$(BIN)/python:
	$(PYTHON) -m venv --upgrade-deps $(VENV)

# Several extras in one name, as dev,browser, are resolved once.
comma := ,
$(STAMPS)/%: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$*]'
	@mkdir -p $(STAMPS) && touch $(addprefix $(STAMPS)/,$(subst $(comma), ,$*))

# Its theme's authors move to another program in 2027: until then their notice is turned off.
site: export NO_MKDOCS_2_WARNING = 1
site: $(STAMPS)/docs ## the documentation as a site in build/site
	$(BIN)/python -m mkdocs build --quiet

# Rewrites the pinned set from what pyproject.toml allows today. On Linux: what torch's build for CUDA needs
# is asked of PyPI, and nothing of it is installed. `===` leaves out builds for processors, 2.13.0+cpu.
lock: ## rewrite constraints.txt and constraints-gpu.txt from what pyproject.toml allows today
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet '.[browser,dev,text,vision]'
	build/lock/bin/python -m pip freeze --exclude lethe-ledger | sed 's/+[a-z0-9.]*$$//' > constraints.txt
	build/lock/bin/python -m pip install --quiet --dry-run --ignore-installed --only-binary :all: --report build/lock/gpu.json \
	  -c constraints.txt "$$(sed -n 's/^torch==/torch===/p' constraints.txt)"
	build/lock/bin/python scripts/lock_gpu.py build/lock/gpu.json

# CycloneDX 1.6, of what the worker's image has installed: tests/packaging compares the extras with
# those of Dockerfile and compose.yaml. The tool is in an environment of its own: it is no part of
# what it lists. Files of others inside the wheel are added. What does not follow the official
# schema fails.
SBOM_EXTRAS := image,families
sbom: ## write build/sbom.json, the bill of materials (CycloneDX), and validate it
	rm -rf build/sbom && mkdir -p build/sbom
	$(PYTHON) -m venv build/sbom/product && $(PYTHON) -m venv build/sbom/tool
	build/sbom/product/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt '.[$(SBOM_EXTRAS)]'
	build/sbom/tool/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7.3,<8'
	build/sbom/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application \
	  --spec-version 1.6 --output-reproducible --output-file build/sbom.json build/sbom/product/bin/python
	build/sbom/tool/bin/python scripts/vendored.py build/sbom.json
	build/sbom/tool/bin/python scripts/validate_sbom.py build/sbom.json
	rm -rf build/sbom

help: ## list the targets
	@awk -F ':.* ## ' '/^[a-z-]+:.* ## / { printf "%-23s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

clean: ## remove the virtual environment, build output and demo-out
	rm -rf $(VENV) $(STAMPS) build demo-out
