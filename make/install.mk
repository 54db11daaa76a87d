# Installation: from the release build into a prefix. Downloads: a Debian package, a tarball and a wheel.

PREFIX ?= /usr/local
DESTDIR ?=
RELEASE := target/release
PACKAGES := target/package
PORTABLE := target/portable

.PHONY: build-release install uninstall
build-release: ## build what is installed (release profile, 10 minutes)
	@make/install-packages make/core.packages make/trace.packages make/tasks.packages
	$(CARGO) build --locked --release -p numaloc -p numaloc-native -p numaloc-qemu -p numaloc-instrument -p numaloc-lab-plugin -p numaloc-agent -p numaloc-deal \
		-p numaloc-ocr
	@make/third-party-licenses >$(RELEASE)/third-party-licenses.txt

install: $(if $(NO_BUILD),,build-release) ## install into PREFIX (/usr/local), below DESTDIR if given; NO_BUILD=1 takes what `make build-release` built
	@make/install $(RELEASE) $(DESTDIR)$(PREFIX)
	@echo "installed in $(DESTDIR)$(PREFIX); numaloc doctor checks what this machine supports"

uninstall: ## remove what `make install` installed in PREFIX
	@make/install --remove $(DESTDIR)$(PREFIX)

.PHONY: deb portable tarball wheel release
deb: $(if $(NO_BUILD),,build-release) ## make a Debian package of the release build in target/package
	@make/install-packages make/install.needs
	@make/deb $(RELEASE) $(PACKAGES)

portable: ## build what is installed for other distributions too: glibc 2.28 and later, no library but that (15 minutes)
	@make/install-packages make/core.packages make/trace.packages
	@make/portable $(PORTABLE)

tarball: $(if $(NO_BUILD),,portable) ## make a tarball of the portable build in target/package
	@make/tarball $(PORTABLE)/build $(PACKAGES)

wheel: $(if $(NO_BUILD),,portable) ## make a wheel of the Python package that contains the program, in target/package
	@make/wheel $(PORTABLE) $(PACKAGES)

# What an earlier release left in the folder would be summed as well.
release: ## make all downloads in target/package: Debian package, tarball, wheel, bill of materials, SHA256SUMS (half an hour)
	@rm -f $(PACKAGES)/numaloc[-_]* $(PACKAGES)/SHA256SUMS
	@$(MAKE) --no-print-directory deb tarball wheel
	@make/bill $(PORTABLE) $(PACKAGES)
	@cd $(PACKAGES) && sha256sum numaloc[-_]* >SHA256SUMS && cat SHA256SUMS

newest = $(shell ls -t $(PACKAGES)/$(1) 2>/dev/null | head -1)
.PHONY: test-package test-downloads
test-package: deb ## install the package in a fresh Debian system and use it there as an unprivileged user (root, 3 minutes)
	@make/test-package $(call newest,numaloc_*.deb) $(SUITE)

test-downloads: ## the same with tarball and wheel, on each of SUITES and WHEEL_SUITES: releases of Debian or Ubuntu (root, a minute each)
	@$(if $(NO_BUILD),,$(MAKE) --no-print-directory tarball wheel)
	@for suite in $(or $(SUITES),bullseye bookworm trixie); do make/test-package $(call newest,numaloc-*.tar.gz) $$suite || exit 1; done
	@for suite in $(or $(WHEEL_SUITES),bookworm trixie); do make/test-package $(call newest,numaloc-*.whl) $$suite || exit 1; done
