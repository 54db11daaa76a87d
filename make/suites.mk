# Other people's test suites, natively and under numaloc.

.PHONY: test-suites test-suites-short
test-suites: build ## others' suites natively, recorded, with a plan and online: same results (hours; SUITES="python go/sync", PROGRAMS=FOLDER of test programs, MODES=record)
	@NUMALOC=target/debug/numaloc make/suites/run $(if $(PROGRAMS),folder $(PROGRAMS),$(or $(SUITES),all))

TEST_EXTRA += test-suites-short

test-suites-short: build # a selection of them (a minute on two cores), and the comparison itself
	@make/suites/run check
	@NUMALOC=target/debug/numaloc make/suites/run short
