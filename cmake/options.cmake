# SPDX-License-Identifier: Apache-2.0
# Options and compiler settings shared by every part.

set(vendors NVIDIA METAX AMD HUAWEI SIM)
list(JOIN vendors " " vendor_names)
set(PHXFS_VENDOR "ALL" CACHE STRING "Vendors to build: ALL, or one of ${vendor_names}")
set_property(CACHE PHXFS_VENDOR PROPERTY STRINGS ALL ${vendors})
if(NOT PHXFS_VENDOR IN_LIST vendors AND NOT PHXFS_VENDOR STREQUAL ALL)
	message(FATAL_ERROR "PHXFS_VENDOR=${PHXFS_VENDOR}: use ALL or one of ${vendor_names}")
endif()

option(PHX_WERROR "Treat compiler warnings as errors (CI does)" OFF)
set(PHX_SANITIZE "" CACHE STRING "Sanitizers: empty, address,undefined or thread")

option(PHX_STATIC_DEPS "Bring along the libraries that a machine may lack" OFF)

if(NOT CMAKE_BUILD_TYPE)
	set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_compile_definitions(_GNU_SOURCE _FILE_OFFSET_BITS=64)
add_compile_options(-Wall -Wextra -Wpointer-arith -Wformat=2
	-Wno-unused-parameter
	$<$<COMPILE_LANGUAGE:C>:-Wshadow>
	$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
	$<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
	$<$<COMPILE_LANGUAGE:C>:-Wvla>)
if(PHX_WERROR)
	add_compile_options(-Werror)
endif()
if(PHX_SANITIZE)
	add_compile_options(-fsanitize=${PHX_SANITIZE} -fno-omit-frame-pointer)
	add_link_options(-fsanitize=${PHX_SANITIZE})
endif()

find_package(Threads REQUIRED)
