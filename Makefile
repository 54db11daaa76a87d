# Two commands do everything: `make demo` (the main job on real programs) and `make test`.
# Areas add their own targets in make/NAME.mk and the Debian packages they need in make/NAME.packages.

CARGO ?= cargo

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sort | awk -F':.*## ' '{printf "  make %-18s %s\n", $$1, $$2}'

.PHONY: packages
packages: ## install the Debian packages that are missing (root or sudo)
	@make/install-packages make/*.packages

include $(wildcard make/*.mk)
