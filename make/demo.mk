# The main job on two real programs. Everything lands in demo-out/.

DEMO := demo-out
NUMALOC ?= target/debug/numaloc

.PHONY: demo
demo: build workloads ## the main job on one of our kernels and on vips: ends with two reports
	@NUMALOC=$(NUMALOC) OUT=$(DEMO) make/demo
