# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# What the scripts of vm/suite/ share. They run in the source directory:
#	. vm/guest/lib.sh

fail() { echo "FAIL: $*"; exit 1; }
skip() { echo "SKIP: $*"; exit 77; }
