/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the three programs of the porting guide's checklist. They use
 * installed headers only and never touch device memory with the CPU, so that
 * they run on any vendor's device, in every mode.
 */
#ifndef GUIDE_H
#define GUIDE_H

#include <phoenix.h>
#include <stddef.h>
#include <stdint.h>

/* Ends the program with what failed, and why. */
#define MUST(call) must((long)(call), #call, __FILE__, __LINE__)
long must(long result, const char *call, const char *file, int line);

/* Ends the program unless @result is @wanted. */
#define EXPECT(wanted, call) expect(wanted, (long)(call), #call, __FILE__, __LINE__)
void expect(long wanted, long result, const char *call, const char *file, int line);

/* A number from the command line, or the end of the program. */
int argument(int argc, char **argv, const char *what);

/* A file of @size bytes under TMPDIR that is gone when closed. @direct: O_DIRECT. */
int make_file(size_t size, int direct);

/* Byte i of the stream that @seed names. */
void pattern(uint8_t *to, size_t n, uint64_t seed, uint64_t from);
/* Ends the program where @got is not that. */
void check_pattern(const uint8_t *got, size_t n, uint64_t seed, uint64_t from, const char *what);

/* Device memory from and to host memory. */
void put(int device, void *dst, const void *src, size_t n);
void get(int device, void *dst, const void *src, size_t n);

double now(void);
const char *mode_name(int device);

#endif
