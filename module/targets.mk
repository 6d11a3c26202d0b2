# SPDX-License-Identifier: GPL-2.0-only
# make insmod [PARAMS="phxfs_map_mode=0 ..."], make rmmod: the modules that the build made.
# make dkms: a source tree for dkms in the build directory.
# make module-matrix: kernels 6.1, 6.12 and newest, W=1, dkms, sparse, checkpatch; no finding.
# make test-upgrade [KERNEL=6.1]: the library on older and newer modules.

insmod: all
	@PARAMS="$(PARAMS)" module/load $(BUILD)/module

rmmod:
	@module/unload

dkms:
	@module/make-dkms $(BUILD) $(shell sed -n 's/^project(phoenix VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

# The modules against the headers of each kernel, by each tool that finds fault.
module-matrix: setup
	@$(SETUP) matrix
	@module/matrix $(BUILD) 6.1 6.12 newest

# The library on modules of other releases.
test-upgrade: all
	@module/test/upgrade $(BUILD) $(KERNEL)

.PHONY: test-upgrade insmod rmmod dkms module-matrix
