# SPDX-License-Identifier: Apache-2.0
# make test-vm [KERNEL=6.1] [TESTS="..."]: the guest suite on a real kernel.
#   With KERNEL=debug first that its instruments notice what they are there for.
# make test-storm [KERNEL=debug] [ROUNDS=200] [STORMS="killed ..."]: lifetime storms, as long
#   as they take; "registered" wants more rounds than the others.
# make fuzz-phxfs [KERNEL=debug] [SECONDS=1200] [SEED=N]: random calls to the module.
# make coverage-module: what the module's tests reach on 6.12, into docs/module-coverage.md.
# make test-porting [KERNEL=6.1]: the porting guide, followed, and its acceptance list.
# make reach-table: docs/reach.md, what storage reaches on which kernel; test-reach: seen again.

KERNEL ?= 6.1

# The whole of it also boots the guests that a table of the suite needs.
test-vm: all setup-reach
	@[ "$(KERNEL)$(TESTS)" != debug ] || vm/selftest $(BUILD) debug
	@vm/run --kernel $(KERNEL) --build $(BUILD) $(TESTS)
	@[ -n "$(TESTS)" ] || vm/reach $(BUILD) $(KERNEL) iommu swiotlb=force

test-reach: all setup-reach
	@vm/reach $(BUILD) $(KERNEL)

reach-table: all setup-reach
	@vm/reach --record $(BUILD) 6.1 6.12 newest

setup-reach:
	@$(SETUP) reach

ROUNDS ?= 200
STORMS ?=
SECONDS ?= 1200
SEED ?=
longer = vm/run --kernel $(KERNEL) --build $(BUILD) --accel 2 --disk 1 --verbose

test-storm: all
	@$(longer) --timeout 86400 --test-timeout 86400 --env PHX_STORM_ROUNDS=$(ROUNDS) \
		--env "PHX_STORMS=$(STORMS)" vm/suite/28-phxfs-storm

fuzz-phxfs: all
	@$(longer) --timeout $$(($(SECONDS) * 2 + 600)) --test-timeout $$(($(SECONDS) * 2 + 300)) \
		--append dma_debug=off --env PHX_FUZZ_SECONDS=$(SECONDS) --env PHX_FUZZ_SEED=$(SEED) vm/suite/29-phxfs-fuzz

coverage-module: all
	@KERNEL=6.12 vm/coverage $(BUILD) docs/module-coverage.md

test-porting: setup-test
	@vm/porting $(KERNEL)

.PHONY: test-vm test-reach reach-table setup-reach test-storm fuzz-phxfs coverage-module test-porting
