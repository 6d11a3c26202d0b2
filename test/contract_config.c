// SPDX-License-Identifier: Apache-2.0
/* What phoenix.h says of settings, engines and the log. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "t_file.h"

struct wanted {
	const char *name, *value, *source;
	int found;
};

static int match(void *arg, const struct phxfs_setting *s)
{
	struct wanted *w = arg;

	T_CHECK(s->name && s->value && s->source && s->help && *s->help);
	if (strcmp(s->name, w->name))
		return 0;
	w->found++;
	if (w->value && strcmp(s->value, w->value))
		T_FAIL("%s is \"%s\", not \"%s\"", w->name, s->value, w->value);
	if (strcmp(s->source, w->source))
		T_FAIL("%s comes from \"%s\", not \"%s\"", w->name, s->source, w->source);
	return 0;
}

static void in_force(const char *name, const char *value, const char *source)
{
	struct wanted w = { name, value, source, 0 };

	T_EQ(phxfs_config_each(match, &w), 0);
	if (w.found != 1)
		T_FAIL("%s is listed %d times", name, w.found);
}

#define BAD "environment, invalid: default used"

static void every_setting_has_its_default(void)
{
	in_force("PHX_PATH", "auto", "default");
	in_force("PHX_STAGING_SIZE_MB", "256", "default");
	in_force("PHX_IO_ENGINE", "auto", "default");
	in_force("PHX_IO_WORKERS", NULL, "default");
	in_force("PHX_POLL_KB", "0", "default");
	in_force("PHX_CONNECTOR", "host", "environment"); /* the harness's */
	in_force("PHX_HOST_DEVICES", "1", "default");
	in_force("PHX_STATS", "on", "default");
	in_force("PHX_LOG", "off", "default");
}

static void valid_values_hold(void)
{
	in_force("PHX_PATH", "bounce", "environment");
	in_force("PHX_STAGING_SIZE_MB", "17", "environment");
	in_force("PHX_IO_ENGINE", "sync", "environment");
	in_force("PHX_IO_WORKERS", "3", "environment");
	in_force("PHX_HOST_DEVICES", "5", "environment");
	in_force("PHX_STATS", "off", "environment");
	T_CHECK(!strcmp(phxfs_io_engine_name(), "sync"));
	T_EQ(phxfs_device_count(), 5);
}

static void invalid_values_are_reported_and_the_default_holds(void)
{
	char buf[100];

	in_force("PHX_PATH", "auto", BAD);
	in_force("PHX_STAGING_SIZE_MB", "256", BAD);
	in_force("PHX_IO_ENGINE", "auto", BAD);
	in_force("PHX_IO_WORKERS", NULL, BAD);
	in_force("PHX_HOST_DEVICES", "1", BAD);
	in_force("PHX_STATS", "on", BAD);
	in_force("PHX_LOG", "off", BAD);
	T_EQ(phxfs_read(t_file("f", 100, 1, O_RDONLY), -1, buf, 0, 100, 0), 100);
}

static void numbers_out_of_range_are_invalid(void)
{
	in_force("PHX_STAGING_SIZE_MB", "256", BAD);
	in_force("PHX_IO_WORKERS", NULL, BAD);
	in_force("PHX_POLL_KB", "0", BAD);
	in_force("PHX_HOST_DEVICES", "1", BAD);
}

static void the_other_spelling_of_the_engine_works(void)
{
	in_force("PHX_IO_ENGINE", "sync", "environment");
	T_CHECK(!strcmp(phxfs_io_engine_name(), "sync"));
}

static int stop_at_third(void *arg, const struct phxfs_setting *s)
{
	return ++*(int *)arg == 3 ? -42 : 0;
}

static void a_walk_ends_when_told(void)
{
	int n = 0;

	T_EQ(phxfs_config_each(stop_at_third, &n), -42);
	T_EQ(n, 3);
	T_EQ(phxfs_config_each(NULL, NULL), -EINVAL);
}

struct log {
	pthread_mutex_t lock;
	int lines;
	char text[64][300];
	int level[64];
};

static struct log seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep(void *arg, int level, const char *message)
{
	struct log *l = arg;

	pthread_mutex_lock(&l->lock);
	T_CHECK(!strchr(message, '\n') && *message);
	T_CHECK(level >= PHXFS_LOG_ERROR && level <= PHXFS_LOG_DEBUG);
	if (l->lines < 64) {
		l->level[l->lines] = level;
		snprintf(l->text[l->lines++], sizeof(l->text[0]), "%s", message);
	}
	pthread_mutex_unlock(&l->lock);
}

static int lines_with(const char *word)
{
	int n = 0;

	pthread_mutex_lock(&seen.lock);
	for (int i = 0; i < seen.lines; i++)
		n += strstr(seen.text[i], word) != NULL;
	pthread_mutex_unlock(&seen.lock);
	return n;
}

/* io_uring_setup fails, as where seccomp or a sysctl forbids it. */
static void forbid_io_uring(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		t_skip("no seccomp: %s", strerror(errno));
}

static void use_batches(void)
{
	phxfs_io_req_t reqs[16];
	struct t_region r;
	int fd = t_file("f", 16 * T_PAGE, 1, O_RDONLY);

	t_region(&r, 0, 16 * T_PAGE);
	for (int round = 0; round < 20; round++) {
		t_set(r.p, 0, r.len);
		for (size_t i = 0; i < 16; i++)
			reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p,
						    .buf_offset = (off_t)(i * T_PAGE),
						    .nbytes = T_PAGE,
						    .f_offset = (off_t)(i * T_PAGE) };
		T_EQ(phxfs_read_batch(reqs, 16), 0);
		T_PATTERN(r.p, r.len, 1, 0);
	}
	t_region_free(&r);
}

static void io_uring_forbidden_falls_to_sync_and_says_so_once(void)
{
	forbid_io_uring();
	T_EQ(phxfs_set_log(keep, &seen, PHXFS_LOG_WARN), 0);
	use_batches();
	T_CHECK(!strcmp(phxfs_io_engine_name(), "sync"));
	T_EQ(lines_with("io_uring"), 1);
	T_EQ(lines_with("EPERM"), 1);
	use_batches();
	T_EQ(lines_with("io_uring"), 1);
}

static void asked_for_sync_there_is_nothing_to_say(void)
{
	forbid_io_uring();
	T_EQ(phxfs_set_log(keep, &seen, PHXFS_LOG_WARN), 0);
	use_batches();
	T_CHECK(!strcmp(phxfs_io_engine_name(), "sync"));
	T_EQ(seen.lines, 0);
}

static void io_uring_is_used_where_it_can_be_had(void)
{
	T_EQ(phxfs_set_log(keep, &seen, PHXFS_LOG_WARN), 0);
	use_batches();
	if (strcmp(phxfs_io_engine_name(), "io_uring"))
		t_skip("no io_uring here: %s", seen.lines ? seen.text[0] : "nothing was said");
	T_EQ(seen.lines, 0);
}

static void invalid_settings_are_logged_once(void)
{
	T_EQ(phxfs_set_log(keep, &seen, PHXFS_LOG_WARN), 0);
	use_batches();
	use_batches();
	T_CHECK(lines_with("PHX_PATH") <= 1 && lines_with("PHX_STAGING_SIZE_MB") <= 1);
}

static void log_levels_are_checked(void)
{
	T_EQ(phxfs_set_log(keep, &seen, -1), -EINVAL);
	T_EQ(phxfs_set_log(keep, &seen, PHXFS_LOG_DEBUG + 1), -EINVAL);
	T_EQ(phxfs_set_log(NULL, NULL, PHXFS_LOG_DEBUG), 0);
	T_EQ(phxfs_set_log(keep, &seen, PHXFS_LOG_OFF), 0);
	use_batches();
	T_EQ(seen.lines, 0);
	T_EQ(phxfs_set_log(keep, &seen, PHXFS_LOG_DEBUG), 0);
	use_batches();
	T_EQ(phxfs_set_log(NULL, NULL, PHXFS_LOG_OFF), 0);
}

static void quiet_child(void *arg)
{
	int fd = *(int *)arg;

	dup2(fd, 1);
	dup2(fd, 2);
	forbid_io_uring();
	use_batches();
	phxfs_open(99);
}

static void nothing_is_printed_unasked(void)
{
	int fd = t_open("output", O_RDWR | O_CREAT);

	T_EQ(t_in_child(quiet_child, &fd), 0);
	T_EQ(t_size(fd), 0);
}

static void phx_log_goes_to_standard_error(void)
{
	int fd = t_open("output", O_RDWR | O_CREAT);
	char text[4096] = "";

	T_EQ(t_in_child(quiet_child, &fd), 0);
	T_CHECK(pread(fd, text, sizeof(text) - 1, 0) > 0);
	T_CHECK(strstr(text, "io_uring"));
}

static long set_logs(void *arg)
{
	for (long i = t_scale(20000); i > 0; i--)
		T_EQ(phxfs_set_log(i % 2 ? keep : NULL, &seen, (int)(i % 5)), 0);
	return 0;
}

static void the_log_may_be_set_while_it_is_used(void)
{
	struct t_call c[3];

	for (int i = 0; i < 3; i++)
		t_call(&c[i], set_logs, NULL);
	use_batches();
	use_batches();
	for (int i = 0; i < 3; i++)
		T_EQ(t_join(&c[i]), 0);
}

static const struct t_case cases[] = {
	T_CASE(every_setting_has_its_default, .host = "the harness sets some for others"),
	T_CASE(valid_values_hold, .host = "counts HOST devices",
	       .env = "PHX_PATH=bounce PHX_STAGING_SIZE_MB=17 PHX_IO_ENGINE=sync PHX_IO_WORKERS=3 "
		      "PHX_HOST_DEVICES=5 PHX_STATS=off"),
	T_CASE(invalid_values_are_reported_and_the_default_holds,
	       .env = "PHX_PATH=fast PHX_STAGING_SIZE_MB=1x PHX_IO_ENGINE=uring "
		      "PHX_IO_WORKERS=many PHX_HOST_DEVICES=0x1 PHX_STATS=maybe PHX_LOG=5"),
	T_CASE(numbers_out_of_range_are_invalid,
	       .env = "PHX_STAGING_SIZE_MB=-1 PHX_IO_WORKERS=99999999999999999999 PHX_POLL_KB=513 "
		      "PHX_HOST_DEVICES=1000000"),
	T_CASE(the_other_spelling_of_the_engine_works, .env = "PHXFS_IO_ENGINE=sync"),
	T_CASE(a_walk_ends_when_told),
	T_CASE(io_uring_forbidden_falls_to_sync_and_says_so_once),
	T_CASE(asked_for_sync_there_is_nothing_to_say, .env = "PHX_IO_ENGINE=sync"),
	T_CASE(io_uring_is_used_where_it_can_be_had),
	T_CASE(invalid_settings_are_logged_once, .env = "PHX_PATH=fast PHX_STAGING_SIZE_MB=x"),
	T_CASE(log_levels_are_checked),
	T_CASE(nothing_is_printed_unasked),
	T_CASE(phx_log_goes_to_standard_error, .env = "PHX_LOG=warn"),
	T_CASE(the_log_may_be_set_while_it_is_used),
};

T_MAIN(cases)
