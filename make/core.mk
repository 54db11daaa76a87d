# The two commands of the README, and the checks they are made of.

# Targets of other areas that `make test` runs after the Rust tests.
TEST_EXTRA ?=

# Those of them that need a processor at once: a browser counts time while it waits.
TEST_ALONE = test-ci-report-browser

# Checks that take minutes and find what changes rarely: every night, and before a release.
NIGHTLY ?=

# What `build` builds besides libraries and programs. `make test` builds all tests at once: dev-dependencies add features
# to other dependencies, and everything above these would be compiled once with and once without.
BUILD_TARGETS ?=
test test-rust test-full: export BUILD_TARGETS := --lib --bins --tests --examples
# Tests need not build the libraries that programs are linked with.
test test-rust test-full: export NUMALOC_BUILT := yes

# Tests of the whole workspace, of one binary with `--test NAME`. `-p CRATE` selects other features of dependencies and
# compiles them again.
TEST = $(CARGO) test --locked --quiet --workspace

GENERATE_PROFILE := target/debug/examples/generate-profile

.PHONY: generate-profile
generate-profile: # the example that makes profiles of any size
	@$(CARGO) build --locked -q --workspace --example generate-profile

.PHONY: build test check test-rust words
build: packages ## build everything numaloc runs with (debug profile, as tests use it)
	$(CARGO) build --locked --workspace $(BUILD_TARGETS)

check: packages words ## formatting, lints, documentation, words
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items --quiet

words: ## words that comments, help texts and documentation do not use (CONTRIBUTING.md)
	@make/words

test-rust: build workloads
	@make/run-tests

.PHONY: test-times
test-times: build workloads ## seconds of each test binary on its own ([NAMES="recording native"])
	@make/run-tests --alone $(NAMES)

.PHONY: mistaken
mistaken: build ## write the answers to mistaken command lines again (crates/numaloc/tests/reading/mistaken.txt)
	@NUMALOC_UPDATE=1 $(TEST) --test reading mistaken::mistaken

.PHONY: deny
deny: ## licences, duplicates and sources of third-party crates (cargo-deny, compiled once into target/tools: 5 minutes)
	@[ -x target/tools/bin/cargo-deny ] || $(CARGO) install --locked --quiet cargo-deny --root target/tools
	@PATH="$(CURDIR)/target/tools/bin:$$PATH" $(CARGO) deny --locked check bans licenses sources

test: packages check test-rust ## everything that must hold: lints, unit, property and end-to-end tests
	$(MAKE) --no-print-directory test-extra

.PHONY: test-extra test-nightly
test-extra: build workloads python-environment
	@$(MAKE) --no-print-directory -j$(shell nproc) --output-sync=target $(addprefix timed-,$(filter-out $(TEST_ALONE),$(TEST_EXTRA)))
	@for target in $(filter $(TEST_ALONE),$(TEST_EXTRA)); do $(MAKE) --no-print-directory timed-$$target || exit 1; done
	@echo "all tests passed"

# What `make test` tries a selection of: every program, compiler, library, seed.
.PHONY: test-full
test-full: build workloads ## the Rust tests with all their cases, those of the recorder also under the emulator (an hour)
	@NUMALOC_FULL_TESTS=1 make/run-tests
	@NUMALOC_FULL_TESTS=1 $(MAKE) --no-print-directory test-qemu
NIGHTLY += test-full

test-nightly: build ## what `make test` leaves out: all cases of the tests, ThreadSanitizer, the model checker
	@$(MAKE) --no-print-directory -j1 $(addprefix timed-,$(NIGHTLY))

# Makes a target, and says how many seconds that took.
timed-%:
	@begin=$$(date +%s); $(MAKE) --no-print-directory $* && echo "== $*: $$(($$(date +%s) - begin)) s"
