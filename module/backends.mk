# SPDX-License-Identifier: GPL-2.0-only
# Which backends there are, and how each reaches its vendor's driver; for Kbuild and Makefile.
#
# A backend is a file <vendor>-backend.c. Where a driver exports its functions as GPL they are
# looked up when the backend loads, and nothing of the driver is needed to build. Plain
# exports have to be linked, by the driver's Module.symvers (KBUILD_EXTRA_SYMBOLS): what a
# <vendor>-backend.mk says about that is
#
#   phxfs-symvers-<vendor> := PATTERN...	where the driver's Module.symvers may lie;
#						<VENDOR>_SYMVERS= names it
#   phxfs-needs-<vendor> := SYMBOL		it cannot be built unless that lists SYMBOL
#   CFLAGS_<vendor>-backend.o += ...		$(call phxfs-export,SYMBOL) is how it is
#						exported, or empty

phxfs-dir := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
phxfs-known := $(filter-out phxfs,$(patsubst $(phxfs-dir)/%-backend.c,%,$(wildcard $(phxfs-dir)/*-backend.c)))

phxfs-export = $(if $(strip $(KBUILD_EXTRA_SYMBOLS)),$(shell \
	awk '$$2 == "$(1)" { print $$4; exit }' $(KBUILD_EXTRA_SYMBOLS)))
# -DPHXFS_LINKED where SYMBOL is a plain export
phxfs-linked = $(if $(filter EXPORT_SYMBOL,$(call phxfs-export,$(1))),-DPHXFS_LINKED)

include $(wildcard $(phxfs-dir)/*-backend.mk)

# Those that can be built, of the list $(1).
phxfs-buildable = $(foreach v,$(1),$(if $(phxfs-needs-$(v)),$(if $(call phxfs-export,$(phxfs-needs-$(v))),$(v)),$(v)))
