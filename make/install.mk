# Installation: from the release build into a prefix, or as a Debian package.

PREFIX ?= /usr/local
DESTDIR ?=
RELEASE := target/release

.PHONY: release install uninstall deb test-package
release: ## build what is installed (release profile, 10 minutes)
	@make/install-packages make/core.packages make/trace.packages make/tasks.packages
	$(CARGO) build --locked --release -p numaloc -p numaloc-native -p numaloc-qemu -p numaloc-instrument -p numaloc-lab-plugin -p numaloc-agent \
		-p numaloc-ocr
	@make/third-party-licenses >$(RELEASE)/third-party-licenses.txt

install: $(if $(NO_BUILD),,release) ## install into PREFIX (/usr/local), below DESTDIR if given; NO_BUILD=1 takes what `make release` built
	@make/install $(RELEASE) $(DESTDIR)$(PREFIX)
	@echo "installed in $(DESTDIR)$(PREFIX); numaloc doctor checks what this machine supports"

uninstall: ## remove what `make install` installed in PREFIX
	@make/install --remove $(DESTDIR)$(PREFIX)

deb: $(if $(NO_BUILD),,release) ## make a Debian package of the release build in target/package
	@make/install-packages make/install.needs
	@make/deb $(RELEASE) target/package

test-package: deb ## install the package in a fresh Debian system and use it there as an unprivileged user (root, 3 minutes)
	@make/test-package target/package $(SUITE)
