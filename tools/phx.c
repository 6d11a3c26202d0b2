// SPDX-License-Identifier: Apache-2.0
/*
 * phx: one command, one subcommand per job. Adding one: a file and a line here.
 */
#include "tool.h"

#include <phoenix.h>
#include <stdio.h>
#include <string.h>

static const struct subcommand *const subcommands[] = {
	&cmd_check,
	&cmd_bench,
	&cmd_cp,
	&cmd_peer,
	&cmd_run,
	&cmd_stat,
};

#define SUBCOMMANDS (sizeof(subcommands) / sizeof(*subcommands))

static const struct subcommand *find(const char *name)
{
	size_t i;

	for (i = 0; i < SUBCOMMANDS; i++)
		if (!strcmp(subcommands[i]->name, name))
			return subcommands[i];
	return NULL;
}

static void overview(FILE *to)
{
	size_t i;

	fputs("usage: phx SUBCOMMAND [OPTION...] [OPERAND...]\n"
	      "       phx help [SUBCOMMAND]\n"
	      "       phx --version\n\n",
	      to);
	for (i = 0; i < SUBCOMMANDS; i++)
		fprintf(to, "  %-8s %s\n", subcommands[i]->name, subcommands[i]->summary);
	fputs("\nexit status: 0 done, 1 failed, 2 wrong command line\n", to);
}

static int unknown(const char *name)
{
	fprintf(stderr, "phx: no subcommand '%s'\ntry 'phx help'\n", name);
	return EXIT_USAGE;
}

static int help(int argc, char **argv)
{
	const struct subcommand *cmd;

	if (argc < 2) {
		overview(stdout);
		return EXIT_OK;
	}
	cmd = find(argv[1]);
	if (!cmd)
		return unknown(argv[1]);
	fputs(cmd->help, stdout);
	return EXIT_OK;
}

static int version(void)
{
	printf("phx %d.%d.%d (libphoenix %s)\n", PHXFS_VERSION_MAJOR, PHXFS_VERSION_MINOR,
	       PHXFS_VERSION_PATCH, phxfs_version());
	return EXIT_OK;
}

int main(int argc, char **argv)
{
	const struct subcommand *cmd;
	int rc;

	if (argc < 2) {
		overview(stderr);
		return EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "version"))
		rc = version();
	else if (!strcmp(argv[1], "help") || !strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))
		rc = help(argc - 1, argv + 1);
	else if ((cmd = find(argv[1])))
		rc = cmd->run(argc - 1, argv + 1);
	else
		rc = unknown(argv[1]);
	/* a full disk or a closed pipe must not look like success */
	if (rc == EXIT_OK && (fflush(stdout) || ferror(stdout))) {
		fputs("phx: cannot write standard output\n", stderr);
		rc = EXIT_FAILED;
	}
	return rc;
}
