# The two commands of the README, and the checks they are made of.

# Targets of other areas that `make test` runs after the Rust tests.
TEST_EXTRA ?=

.PHONY: build test check test-rust words
build: packages ## build everything numaloc runs with (debug profile, as tests use it)
	$(CARGO) build --locked --workspace

check: packages words ## formatting, lints, documentation, words
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items --quiet

words: ## words that comments, help texts and documentation do not use (CONTRIBUTING.md)
	@make/words

test-rust: build workloads
	$(CARGO) test --locked --workspace --quiet

.PHONY: deny
deny: ## licences, duplicates and sources of third-party crates (cargo-deny, compiled once into target/tools: 5 minutes)
	@[ -x target/tools/bin/cargo-deny ] || $(CARGO) install --locked --quiet cargo-deny --root target/tools
	@PATH="$(CURDIR)/target/tools/bin:$$PATH" $(CARGO) deny --locked check bans licenses sources

test: packages check test-rust ## everything that must hold: lints, unit, property and end-to-end tests
	$(MAKE) --no-print-directory test-extra

.PHONY: test-extra
test-extra: build workloads
	@for target in $(TEST_EXTRA); do echo "== $$target"; $(MAKE) --no-print-directory $$target || exit 1; done
	@echo "all tests passed"
