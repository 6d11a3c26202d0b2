# SPDX-License-Identifier: Apache-2.0
# phx_add_test(NAME TIER unit|process|stress|vm SOURCES ... [LIBS ...] [ARGS ...] [TIMEOUT s] [ENV "A=B" ...])
#
# unit:    one source file's functions, milliseconds each
# process: real processes, files and threads against the built libraries
# stress:  races, storms and large counts
# vm:      on real kernels, in the guest of vm/run
# A test exits 0 (pass), 77 (skipped, with the reason on its output) or else (fail).
# phx_add_script(NAME TIER tier COMMAND ...) does the same for a script.

function(phx_add_test NAME)
	cmake_parse_arguments(T "" "TIER;TIMEOUT" "SOURCES;LIBS;ARGS;ENV" ${ARGN})
	add_executable(${NAME} ${T_SOURCES})
	target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/include
		${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/test)
	target_link_libraries(${NAME} PRIVATE ${T_LIBS} Threads::Threads)
	phx_add_script(${NAME} TIER ${T_TIER} TIMEOUT ${T_TIMEOUT} ENV ${T_ENV}
		COMMAND $<TARGET_FILE:${NAME}> ${T_ARGS})
endfunction()

function(phx_add_script NAME)
	cmake_parse_arguments(T "" "TIER;TIMEOUT" "COMMAND;ENV" ${ARGN})
	if(NOT T_TIER MATCHES "^(unit|process|stress|vm)$")
		message(FATAL_ERROR "${NAME}: TIER must be unit, process, stress or vm")
	endif()
	if(NOT T_TIMEOUT)
		set(T_TIMEOUT 120)
	endif()
	if(PHX_SANITIZE)
		math(EXPR T_TIMEOUT "${T_TIMEOUT} * 5")
		# children of a process with threads start threads of their own; and many
		# a test is thousands of processes, which would each end with a second of sleep
		list(APPEND T_ENV "TSAN_OPTIONS=die_after_fork=0:atexit_sleep_ms=20")
	endif()
	add_test(NAME ${NAME} COMMAND ${T_COMMAND})
	set_tests_properties(${NAME} PROPERTIES LABELS ${T_TIER}
		TIMEOUT ${T_TIMEOUT} SKIP_RETURN_CODE 77 ENVIRONMENT "${T_ENV}")
endfunction()
