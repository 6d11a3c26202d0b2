// SPDX-License-Identifier: Apache-2.0
/*
 * phx bench: the command line. See bench.h for the parts.
 */
#include "bench.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: phx bench OP FILE [OPTION...]\n"
	"\n"
	"Measures read, write, randread or randwrite between FILE (or a block device)\n"
	"and device memory.\n"
	"\n"
	"  --bs SIZE        bytes of one I/O (default 1M)\n"
	"  --size SIZE      how much of the file takes part (default: all of it;\n"
	"                   a new file needs it)\n"
	"  --threads N      (default 1)\n"
	"  --depth N        I/Os in flight of each thread (default 1: one phxfs_read or\n"
	"                   phxfs_write after another; more: a completion queue)\n"
	"  --batch N        batches of N I/Os instead\n"
	"  --runtime S      seconds (default: one pass over the file)\n"
	"  --count N        I/Os of each thread\n"
	"  --direct MODE    on, off or auto (default): O_DIRECT where there is any\n"
	"  --engine NAME    auto, io_uring or sync\n"
	"  --path NAME      auto, direct, staging or bounce\n"
	"  --device N       device (default 0; -1: plain host memory)\n"
	"  --verify         write a pattern and read it back, or compare what is read\n"
	"                   with the pattern; compare with the same --seed\n"
	"  --seed N         of the pattern and of random offsets (default 1)\n"
	"  --sync           count fdatasync in\n"
	"  --overwrite      write into a file that has data\n"
	"  --json           one JSON object\n"
	"  --gdsio          one line as gdsio prints it\n"
	"\n"
	"SIZE takes K, M, G, T (powers of 1024).\n"
	"exit status: 0 done, 1 an I/O or a comparison failed, 2 wrong command line\n";

static const char *const switches[] = { "auto", "on", "off", NULL };
static const char *const engines[] = { "auto", "io_uring", "sync", NULL };
static const char *const paths[] = { "auto", "direct", "staging", "bounce", NULL };

static int take_operation(struct bench *b, const char *name)
{
	static const struct {
		const char *name;
		int op;
		bool random;
	} operations[] = {
		{ "read", PHXFS_OP_READ, false },
		{ "write", PHXFS_OP_WRITE, false },
		{ "randread", PHXFS_OP_READ, true },
		{ "randwrite", PHXFS_OP_WRITE, true },
	};
	size_t i;

	for (i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		if (strcmp(name, operations[i].name))
			continue;
		b->op_name = operations[i].name;
		b->op = operations[i].op;
		b->random = operations[i].random;
		return EXIT_OK;
	}
	return usage_error(&cmd_bench, "'%s' is none of read, write, randread, randwrite", name);
}

static int take_line(struct bench *b, int argc, char **argv)
{
	const struct opt opts[] = {
		{ "bs", OPT_SIZE, &b->bs, 1, UINT64_C(1) << 40, NULL },
		{ "size", OPT_SIZE, &b->size, 1, 0, NULL },
		{ "threads", OPT_UINT, &b->threads, 1, 1024, NULL },
		{ "depth", OPT_UINT, &b->depth, 1, 32768, NULL },
		{ "batch", OPT_UINT, &b->batch, 1, 1u << 20, NULL },
		{ "runtime", OPT_SECONDS, &b->runtime, 0, 0, NULL },
		{ "count", OPT_UINT, &b->count, 1, 0, NULL },
		{ "direct", OPT_CHOICE, &b->direct, 0, 0, switches },
		{ "engine", OPT_CHOICE, &b->engine, 0, 0, engines },
		{ "path", OPT_CHOICE, &b->path, 0, 0, paths },
		{ "device", OPT_INT, &b->device, 0, 0, NULL },
		{ "verify", OPT_FLAG, &b->verify, 0, 0, NULL },
		{ "seed", OPT_UINT, &b->seed, 0, 0, NULL },
		{ "sync", OPT_FLAG, &b->sync, 0, 0, NULL },
		{ "overwrite", OPT_FLAG, &b->overwrite, 0, 0, NULL },
		{ "json", OPT_FLAG, &b->json, 0, 0, NULL },
		{ "gdsio", OPT_FLAG, &b->gdsio, 0, 0, NULL },
		{ NULL, OPT_FLAG, NULL, 0, 0, NULL },
	};
	int first = 0;
	int rc = parse_options(&cmd_bench, opts, argc, argv, &first);

	if (rc)
		return rc;
	if (argc - first != 2)
		return usage_error(&cmd_bench, "an operation and one file are needed");
	b->file = argv[first + 1];
	if (b->batch && b->depth > 1)
		return usage_error(&cmd_bench, "--batch and --depth exclude each other");
	if (b->count && b->runtime > 0)
		return usage_error(&cmd_bench, "--count and --runtime exclude each other");
	if (b->json && b->gdsio)
		return usage_error(&cmd_bench, "--json and --gdsio exclude each other");
	return take_operation(b, argv[first]);
}

static void on_signal(int number)
{
	(void)number;
	bench_stop();
}

/* The first one ends the run and its figures are printed; the next one kills. */
static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESETHAND };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static int run(int argc, char **argv)
{
	struct bench b = {
		.bs = 1u << 20,
		.threads = 1,
		.depth = 1,
		.seed = 1,
		.direct = "auto",
	};
	static struct bench_result result;
	int rc = take_line(&b, argc, argv);

	if (rc)
		return rc == PARSED_HELP ? EXIT_OK : rc;
	if (b.engine && set_environment("PHX_IO_ENGINE", b.engine))
		return failed(&cmd_bench, "no memory");
	if (b.path && set_environment("PHX_PATH", b.path))
		return failed(&cmd_bench, "no memory");

	catch_signals();
	rc = bench_prepare(&b);
	if (rc)
		goto out;
	rc = bench_run(&b, &result);
	if (rc)
		goto out;
	if (result.error)
		rc = failed(&cmd_bench, "%s: %s", b.file, result.what);
	if ((result.ios || b.json) && !bench_report(&b, &result))
		rc = EXIT_FAILED;
out:
	free((void *)b.written);
	return rc;
}

const struct subcommand cmd_bench = {
	.name = "bench",
	.summary = "measure transfers between a file and device memory",
	.help = help,
	.run = run,
};
