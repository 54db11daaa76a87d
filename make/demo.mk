# The main job on two real programs. Everything lands in demo-out/.

DEMO := demo-out
NUMALOC ?= target/debug/numaloc

.PHONY: demo demo-build
demo-build: # what the demo runs, with the packages that it needs
	@make/install-packages make/demo.packages
	@$(MAKE) --no-print-directory target/workloads/stencil2d
	$(CARGO) build --locked --workspace --bin numaloc --bin numaloc-native

demo: demo-build ## the main job on one of our kernels and on pigz: ends with two reports (installs 66 packages, 40 MB, next to a C compiler)
	@NUMALOC=$(NUMALOC) OUT=$(DEMO) make/demo
