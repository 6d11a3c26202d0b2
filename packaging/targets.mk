# SPDX-License-Identifier: Apache-2.0
# Packages: a wheel for Python, packages for Debian. The tests of them want a
# package index, a Debian mirror and minutes, so they are no part of test.

# A build of its own: libraries that need nothing but glibc and find each other.
wheel: setup
	@cmake -S . -B $(BUILD)-wheel -DPHX_STATIC_DEPS=ON -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
		'-DCMAKE_INSTALL_RPATH=$$ORIGIN' >/dev/null
	@cmake --build $(BUILD)-wheel -j$(JOBS) --target phoenix flagcx phxfile fgds cufile >/dev/null
	@python3 packaging/wheel.py $(BUILD)-wheel $(BUILD)/wheel

# In a fresh virtual environment, without the source tree.
test-wheel: wheel
	@$(SETUP) package
	@packaging/test-wheel $(BUILD)

deb:
	@$(SETUP) build package
	@packaging/build-deb $(BUILD)/deb

# Installed in a clean root, and used there; as root.
test-deb: deb
	@packaging/test-deb $(BUILD)/deb

.PHONY: wheel test-wheel deb test-deb
