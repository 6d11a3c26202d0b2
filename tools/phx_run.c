// SPDX-License-Identifier: Apache-2.0
/*
 * phx run: starts a program so that it finds Phoenix's libcufile before any
 * other, and libphxfile and libfgds too.
 *
 * LD_LIBRARY_PATH serves programs that open the library by either of its names;
 * LD_PRELOAD those that were linked with an rpath of their own, which the
 * loader prefers.
 */
#include "tool.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXIT_NOT_RUN 126
#define EXIT_NOT_FOUND 127

static int run(int argc, char **argv);

const struct subcommand cmd_run = {
	.name = "run",
	.summary = "run a program with cuFile served by Phoenix",
	.help = "usage: phx run [OPTION...] [--] PROGRAM [ARG...]\n\n"
		"Runs PROGRAM so that libcufile.so is Phoenix's, and libphxfile.so and\n"
		"libfgds.so are found.\n\n"
		"  --no-preload  leave LD_PRELOAD alone: programs that were linked with an\n"
		"                rpath may find another libcufile\n"
		"  --print       print the settings as shell assignments instead\n\n"
		"exit status: that of PROGRAM; 126 it cannot be run, 127 it is not there\n",
	.run = run,
	.operands_last = true,
};

/* @buf: PATH_MAX bytes. False: no such file, or the name is too long. */
static bool join(char *buf, const char *dir, const char *rest)
{
	int n = snprintf(buf, PATH_MAX, "%s/%s", dir, rest);

	return n > 0 && n < PATH_MAX && access(buf, R_OK) == 0;
}

/* The folder of the libraries, as it lies to the program's own. */
static bool find_libraries(char *dir, char *cufile)
{
	static const char *const places[] = { PHX_LIBDIR, "lib" };
	char self[PATH_MAX], root[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;
	size_t i;

	if (n <= 0)
		return false;
	self[n] = 0;
	for (i = 0; i < 2; i++) { /* bin/phx */
		slash = strrchr(self, '/');
		if (!slash)
			return false;
		*slash = 0;
	}
	memcpy(root, self, strlen(self) + 1);
	for (i = 0; i < sizeof(places) / sizeof(*places); i++) {
		if (join(dir, root, places[i]) &&
		    join(cufile, dir, "phoenix/cufile/libcufile.so.0"))
			return true;
	}
	return false;
}

/* "@first:what was there"; NULL: no memory. */
static char *put_before(const char *first, const char *variable)
{
	const char *old = getenv(variable);
	char *value;

	if (asprintf(&value, "%s%s%s", first, old && *old ? ":" : "", old && *old ? old : "") < 0)
		return NULL;
	return value;
}

/* Text within single quotes, as a shell reads it. */
static void print_quoted(const char *name, const char *value)
{
	printf("export %s='", name);
	for (; *value; value++) {
		if (*value == '\'')
			fputs("'\\''", stdout);
		else
			putchar(*value);
	}
	puts("'");
}

static int start(char **argv)
{
	execvp(argv[0], argv);
	fprintf(stderr, "phx run: %s: %s\n", argv[0], strerror(errno));
	return errno == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN;
}

static int run(int argc, char **argv)
{
	bool no_preload = false, print = false;
	const struct opt opts[] = {
		{ .name = "no-preload", .kind = OPT_FLAG, .out = &no_preload },
		{ .name = "print", .kind = OPT_FLAG, .out = &print },
		{ .name = NULL },
	};
	char dir[PATH_MAX], cufile[PATH_MAX], *own = NULL, *path, *preload;
	int first, rc;

	rc = parse_options(&cmd_run, opts, argc, argv, &first);
	if (rc != EXIT_OK)
		return rc == PARSED_HELP ? EXIT_OK : rc;
	if (first == argc && !print)
		return usage_error(&cmd_run, "a program is needed");
	if (!find_libraries(dir, cufile)) {
		fputs("phx run: no phoenix/cufile/libcufile.so.0 beside this program's libraries\n",
		      stderr);
		return EXIT_FAILED;
	}
	if (asprintf(&own, "%s/phoenix/cufile:%s", dir, dir) < 0)
		own = NULL;
	path = own ? put_before(own, "LD_LIBRARY_PATH") : NULL;
	preload = put_before(cufile, "LD_PRELOAD");
	rc = EXIT_FAILED;
	if (!path || !preload) {
		fputs("phx run: no memory\n", stderr);
	} else if (print) {
		print_quoted("LD_LIBRARY_PATH", path);
		if (!no_preload)
			print_quoted("LD_PRELOAD", preload);
		rc = EXIT_OK;
	} else if (setenv("LD_LIBRARY_PATH", path, 1) ||
		   (!no_preload && setenv("LD_PRELOAD", preload, 1))) {
		fprintf(stderr, "phx run: %s\n", strerror(errno));
	} else {
		rc = start(argv + first);
	}
	free(own);
	free(path);
	free(preload);
	return rc;
}
