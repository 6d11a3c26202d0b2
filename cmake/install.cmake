# SPDX-License-Identifier: Apache-2.0
# What `make install` lays down: headers, libraries, programs, and how to find
# them (pkg-config, CMake). Manual pages: man/CMakeLists.txt. The kernel module
# is installed by its own rules (module/).

include(CMakePackageConfigHelpers)

file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h
	${PROJECT_SOURCE_DIR}/include/*.hpp)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/uapi/*.h)
install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/uapi)

# Each library, its pkg-config name and description.
set(PC_phoenix "Files and accelerator memory, joined directly")
set(PC_fgds "The FGDS calls over libphoenix")
set(PC_phxfile "The phxfile calls over libphoenix")
set(PC_flagcx "One-sided transfers between accelerators of different hosts")

# pkg-config and CMake files name the prefix relative to themselves, so that
# an installed tree may be moved.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
	message(FATAL_ERROR "CMAKE_INSTALL_LIBDIR must be relative to the prefix")
endif()
string(REGEX REPLACE "[^/]+" ".." PC_UP "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

foreach(library IN ITEMS phoenix fgds phxfile flagcx)
	if(NOT TARGET ${library})
		continue()
	endif()
	set(PC_NAME ${library})
	set(PC_DESCRIPTION "${PC_${library}}")
	configure_file(${PROJECT_SOURCE_DIR}/cmake/library.pc.in
		${CMAKE_BINARY_DIR}/pkgconfig/${library}.pc @ONLY)
	install(FILES ${CMAKE_BINARY_DIR}/pkgconfig/${library}.pc
		DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
	target_include_directories(${library} INTERFACE
		$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
	install(TARGETS ${library} EXPORT phoenix-targets
		LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
		ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
	set(exports TRUE)
endforeach()

if(exports)
	set(package ${CMAKE_INSTALL_LIBDIR}/cmake/phoenix)
	install(EXPORT phoenix-targets FILE phoenix-config.cmake
		NAMESPACE phoenix:: DESTINATION ${package})
	write_basic_package_version_file(${CMAKE_BINARY_DIR}/phoenix-config-version.cmake
		COMPATIBILITY SameMinorVersion)
	install(FILES ${CMAKE_BINARY_DIR}/phoenix-config-version.cmake DESTINATION ${package})
endif()

# Programs find the libraries beside them, wherever the tree stands.
foreach(program IN ITEMS phx)
	if(TARGET ${program})
		set_target_properties(${program} PROPERTIES
			INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
		install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
	endif()
endforeach()
