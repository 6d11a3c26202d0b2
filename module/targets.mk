# SPDX-License-Identifier: GPL-2.0-only
# make insmod [PARAMS="phxfs_map_mode=0 ..."], make rmmod: the modules that the build made.
# make dkms: a source tree for dkms in the build directory.

insmod: all
	@PARAMS="$(PARAMS)" module/load $(BUILD)/module

rmmod:
	@module/unload

dkms:
	@module/make-dkms $(BUILD) $(shell sed -n 's/^project(phoenix VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)

.PHONY: insmod rmmod dkms
