# SPDX-License-Identifier: GPL-2.0-only
# fio's engine, for the fio that is installed.

fio-engine: all
	@fio/build-engine $(BUILD)

.PHONY: fio-engine
