// SPDX-License-Identifier: Apache-2.0
/* What phoenix.h says of devices: finding, describing, opening, closing. */
#include "t_fuse.h"

static void host_devices_are_as_many_as_asked_for(void)
{
	T_EQ(phxfs_device_count(), 3);
	for (int i = 0; i < 3; i++) {
		T_EQ(phxfs_device_mode(i), PHXFS_MODE_HOST);
		T_EQ(phxfs_find_device("host", i), i);
	}
	T_EQ(phxfs_device_mode(3), -ENODEV);
	T_EQ(phxfs_device_mode(-1), -ENODEV);
	T_EQ(phxfs_device_mode(INT32_MAX), -ENODEV);
	T_EQ(phxfs_device_mode(INT32_MIN), -ENODEV);
	T_EQ(phxfs_get_map_mode(), PHXFS_MODE_HOST);
}

static void no_host_devices_is_a_valid_wish(void)
{
	void *p = (void *)1;

	T_EQ(phxfs_device_count(), 0);
	T_EQ(phxfs_device_mode(0), -ENODEV);
	T_EQ(phxfs_open(0), -ENODEV);
	T_EQ(phxfs_mem_alloc(0, 1, &p), -ENODEV);
	T_CHECK(p == (void *)1);
	/* host buffers need no device */
	T_EQ(phxfs_read(t_file("f", 100, 1, O_RDONLY), -1, (char[100]){ 0 }, 0, 100, 0), 100);
}

static void find_device_tells_bad_from_absent(void)
{
	T_EQ(phxfs_find_device("host", 0), 0);
	T_EQ(phxfs_find_device("host", 1), -ENODEV);
	T_EQ(phxfs_find_device("host", INT32_MAX), -ENODEV);
	T_EQ(phxfs_find_device("host", -1), -EINVAL);
	T_EQ(phxfs_find_device(NULL, 0), -EINVAL);
	T_EQ(phxfs_find_device("nvidia", 0), -ENODEV);
	T_EQ(phxfs_find_device("nobody", 0), -ENODEV);
	T_EQ(phxfs_find_device("", 0), -ENODEV);
	T_EQ(phxfs_find_device("hos", 0), -ENODEV);
	T_EQ(phxfs_find_device("hostt", 0), -ENODEV);
	T_CHECK(strstr(phxfs_last_error(), "ENODEV"));
}

static void find_device_bdf_parses_strictly(void)
{
	static const char *const good[] = { "0000:3b:00.0", "3b:00.0",	    "0000:3B:00.0",
					    "FFFF:ff:1f.7", "10000:e1:00.0" };
	static const char *const bad[] = {
		"", "3b", "3b:00", "3b:00.8", "3b:20.0", "0000:3b:00.0x", " 3b:00.0", "3b:00.0 ",
		"0000-3b-00.0", "zz:00.0", "0000:3b:00.", ":3b:00.0", "0000::00.0", "-1:3b:00.0",
		"+0:3b:00.0", "0x0:3b:00.0", "0000:3b:00:0", "3b.00.0", "0000:3b:00.00",
		"0000:3b: 0.0", "0000:100:00.0", "111111111111111111111:3b:00.0",
	};
	char *large = malloc(T_MIB);

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		t_context("\"%s\"", good[i]);
		T_EQ(phxfs_find_device_bdf(good[i]), -ENODEV);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		t_context("\"%s\"", bad[i]);
		T_EQ(phxfs_find_device_bdf(bad[i]), -EINVAL);
	}
	T_EQ(phxfs_find_device_bdf(NULL), -EINVAL);
	memset(large, '0', T_MIB - 1);
	large[T_MIB - 1] = '\0';
	T_EQ(phxfs_find_device_bdf(large), -EINVAL);
	free(large);
}

static void info_describes_a_host_device(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	T_EQ(phxfs_device_info(0, &info), 0);
	T_EQ(info.size, sizeof(info));
	T_EQ(info.mode, PHXFS_MODE_HOST);
	T_EQ(info.page_size, PHXFS_DEVICE_PAGE);
	T_EQ(info.staging_bytes, 7 * T_MIB);
	T_EQ(info.clients, 0);
	T_EQ(info.ordinal, 0);
	T_CHECK(!strcmp(info.vendor, "host"));
	T_CHECK(!strcmp(info.bdf, ""));
	T_CHECK(*info.name);
	T_EQ(phxfs_device_info(1, &info), -ENODEV);
	T_EQ(phxfs_device_info(-1, &info), -ENODEV);
	T_EQ(phxfs_device_info(0, NULL), -EINVAL);
}

static void info_describes_an_accelerator(void)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	if (t_on_host())
		t_skip("there is none");
	T_EQ(phxfs_device_info(0, &info), 0);
	T_EQ(info.mode, phxfs_device_mode(0));
	T_EQ(info.page_size, PHXFS_DEVICE_PAGE);
	T_CHECK(!strcmp(info.vendor, getenv("PHX_CONNECTOR")));
	T_EQ(phxfs_find_device(info.vendor, info.ordinal), 0);
	T_EQ(phxfs_find_device_bdf(info.bdf), 0);
	T_CHECK(*info.name && info.memory_bytes > T_MIB);
	T_EQ(phxfs_get_map_mode(), info.mode);
	/* anything less than FULL is explained */
	T_CHECK(info.mode == PHXFS_MODE_FULL || *info.reason);
}

static void info_writes_no_more_than_size(void)
{
	struct {
		struct phxfs_device_info info;
		uint8_t after[64];
	} dev;
	struct {
		struct phxfs_connector_info info;
		uint8_t after[64];
	} con;

	for (uint32_t size = 0; size < sizeof(dev.info); size++) {
		memset(&dev, T_GUARD, sizeof(dev));
		dev.info.size = size;
		T_EQ(phxfs_device_info(0, &dev.info), -EINVAL);
		dev.info.size = 0xa5a5a5a5;
		T_ALL(&dev, sizeof(dev), T_GUARD);
	}
	memset(&dev, T_GUARD, sizeof(dev));
	dev.info.size = sizeof(dev.info);
	T_EQ(phxfs_device_info(0, &dev.info), 0);
	T_ALL(dev.after, sizeof(dev.after), T_GUARD);
	/* a caller built against a later, larger struct */
	dev.info.size = sizeof(dev);
	T_EQ(phxfs_device_info(0, &dev.info), 0);
	T_EQ(dev.info.page_size, PHXFS_DEVICE_PAGE);

	memset(&con, T_GUARD, sizeof(con));
	con.info.size = 4;
	T_EQ(phxfs_connector_info(0, &con.info), -EINVAL);
	con.info.size = sizeof(con.info);
	T_EQ(phxfs_connector_info(0, &con.info), 0);
	T_ALL(con.after, sizeof(con.after), T_GUARD);
	T_EQ(phxfs_connector_info(0, NULL), -EINVAL);
}

static void connectors_are_listed_and_say_what_is_missing(void)
{
	struct phxfs_connector_info first = { .size = sizeof(first) };
	const char *mine = t_on_host() ? "host" : getenv("PHX_CONNECTOR");
	char names[16][16];
	bool found = false;
	int n = 0, devices = 0;

	for (;; n++) {
		struct phxfs_connector_info c = { .size = sizeof(c) };
		int rc = phxfs_connector_info(n, &c);

		if (rc == -ENOENT)
			break;
		T_EQ(rc, 0);
		T_CHECK(n < 16 && *c.name && *c.text);
		T_CHECK(memchr(c.name, 0, sizeof(c.name)) && memchr(c.text, 0, sizeof(c.text)));
		T_CHECK(c.status <= 0);
		if (c.status)
			T_EQ(c.devices, 0);
		memcpy(names[n], c.name, sizeof(names[n]));
		for (int i = 0; i < n; i++)
			T_CHECK(strcmp(names[i], c.name));
		found |= !strcmp(c.name, mine) && c.status == 0 && c.devices >= 1;
		devices += c.devices;
	}
	T_CHECK(found);
	T_EQ(devices, phxfs_device_count());
	T_CHECK(phxfs_connector_info(-1, &first) < 0);
}

static int clients(int device)
{
	struct phxfs_device_info info = { .size = sizeof(info) };

	T_EQ(phxfs_device_info(device, &info), 0);
	return info.clients;
}

static void opens_are_counted(void)
{
	T_EQ(phxfs_close(0), -ENODEV);
	for (int i = 1; i <= 3; i++) {
		T_EQ(phxfs_open(0), 0);
		T_EQ(clients(0), i);
	}
	T_EQ(clients(1), 0);
	T_EQ(phxfs_close(1), -ENODEV);
	for (int i = 2; i >= 0; i--) {
		T_EQ(phxfs_close(0), 0);
		T_EQ(clients(0), i);
	}
	T_EQ(phxfs_close(0), -ENODEV);
	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_close(0), 0);
}

static void unknown_devices_are_no_devices(void)
{
	static const int ids[] = { -1, 1, 2, 63, 64, 65, 1000, INT32_MAX, INT32_MIN };
	char buf[16];
	void *p;

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		if (!t_on_host() && ids[i] == 1)
			continue; /* it may be there */
		t_context("device %d", ids[i]);
		T_EQ(phxfs_open(ids[i]), -ENODEV);
		T_CHECK(strstr(phxfs_last_error(), "ENODEV"));
		T_EQ(phxfs_close(ids[i]), -ENODEV);
		T_EQ(phxfs_regmem(ids[i], (void *)T_PAGE, T_PAGE, NULL), -ENODEV);
		T_EQ(phxfs_deregmem(ids[i], (void *)T_PAGE, T_PAGE), -ENODEV);
		T_EQ(phxfs_mem_alloc(ids[i], 1, &p), -ENODEV);
		T_EQ(phxfs_mem_free(ids[i], (void *)T_PAGE), -ENODEV);
		T_EQ(phxfs_memcpy_to(ids[i], buf, buf + 8, 8), -ENODEV);
		T_EQ(phxfs_memcpy_from(ids[i], buf, buf + 8, 8), -ENODEV);
		if (ids[i] >= 0)
			T_EQ(phxfs_stats(ids[i], &(struct phxfs_stats){
				.size = sizeof(struct phxfs_stats) }), -ENODEV);
	}
}

static void the_last_close_removes_registrations(void)
{
	struct phxfs_stats s = { .size = sizeof(s) };
	int fd = t_file("f", T_PAGE, 1, O_RDONLY);
	struct t_region r;

	t_region(&r, 0, 4 * T_PAGE);
	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_close(0), 0);
	/* not the last: all as before */
	T_EQ(phxfs_read(fd, 0, r.p, 0, T_PAGE, 0), T_PAGE);
	T_EQ(phxfs_regmem(0, r.p, r.len, NULL), 0);
	T_EQ(phxfs_close(0), 0);
	T_EQ(phxfs_read(fd, 0, r.p, 0, T_PAGE, 0), -EFAULT);
	T_EQ(phxfs_deregmem(0, r.p, r.len), -ENODEV);
	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_read(fd, 0, r.p, 0, T_PAGE, 0), -EFAULT);
	T_EQ(phxfs_deregmem(0, r.p, r.len), -EINVAL);
	T_EQ(phxfs_stats(0, &s), 0);
	T_EQ(s.registrations, 0);
	T_EQ(s.registered_bytes, 0);
	/* what overlapped is free again */
	T_EQ(phxfs_regmem(0, r.p + T_PAGE, 2 * T_PAGE, NULL), 0);
	T_EQ(phxfs_read(fd, 0, r.p + T_PAGE, 0, T_PAGE, 0), T_PAGE);
	T_EQ(phxfs_close(0), 0);
}

static long close_0(void *arg)
{
	return phxfs_close(0);
}

static void a_draining_close_is_busy_and_can_be_retried(void)
{
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	struct t_transfer x = { .len = T_MIB };
	struct t_call transfer, closing;
	struct t_region r, more;
	int other = t_file("f", T_PAGE, 1, O_RDONLY), mode = phxfs_device_mode(0);

	x.fd = t_fuse_open(fs, O_RDONLY);
	t_region(&r, 0, T_MIB);
	t_map(&more, 0, T_PAGE);
	x.buf = r.p;
	t_fuse_hold(fs);
	t_call(&transfer, t_transfer, &x);
	t_fuse_held(fs, 1);
	t_call(&closing, close_0, NULL);
	T_WAIT(!t_registered(other, 0, r.p));
	T_STILL_RUNNING(&closing);

	T_EQ(phxfs_open(0), -EBUSY);
	T_CHECK(strstr(phxfs_last_error(), "EBUSY"));
	T_EQ(phxfs_close(0), -EBUSY);
	T_CHECK(phxfs_regmem(0, more.p, T_PAGE, NULL) < 0);
	T_CHECK(phxfs_read(other, 0, r.p, 0, T_PAGE, 0) < 0);
	T_EQ(phxfs_device_mode(0), mode);
	T_CHECK(!transfer.done && !closing.done);

	t_fuse_release(fs);
	T_EQ(t_join(&transfer), T_MIB);
	T_EQ(t_join(&closing), 0);
	T_PATTERN(r.p, T_MIB, 7, 0);
	T_EQ(phxfs_open(0), 0);
	T_EQ(phxfs_regmem(0, more.p, T_PAGE, NULL), 0);
	T_EQ(phxfs_close(0), 0);
}

static void devices_drain_apart(void)
{
	struct t_fuse *fs = t_fuse_start(T_MIB, 7);
	struct t_transfer x = { .len = T_MIB };
	struct t_call transfer, closing;
	struct t_region a, b;

	x.fd = t_fuse_open(fs, O_RDONLY);
	t_region(&a, 0, T_MIB);
	t_region(&b, 1, T_MIB);
	x.buf = a.p;
	t_fuse_hold(fs);
	t_call(&transfer, t_transfer, &x);
	t_fuse_held(fs, 1);
	t_call(&closing, close_0, NULL);
	T_STILL_RUNNING(&closing);
	/* the other device lives on */
	T_EQ(phxfs_read(t_file("f", T_MIB, 3, O_RDONLY), 1, b.p, 0, T_MIB, 0), T_MIB);
	T_PATTERN(b.p, T_MIB, 3, 0);
	t_region_free(&b);
	t_fuse_release(fs);
	T_EQ(t_join(&transfer), T_MIB);
	T_EQ(t_join(&closing), 0);
}

/* A device's close waits for every kind of transfer. */
static void a_close_waits_for_batches_and_queues(void)
{
	struct t_fuse *fs = t_fuse_start(4 * T_MIB, 7);
	struct phxfs_completion out;
	struct t_call closing;
	struct t_region r;
	phxfs_io_req_t reqs[2], one;
	phxfs_batch_t *b;
	phxfs_queue_t *q;
	int fd = t_fuse_open(fs, O_RDONLY);

	t_region(&r, 0, 4 * T_MIB);
	for (int i = 0; i < 2; i++)
		reqs[i] = (phxfs_io_req_t){ .fd = fd, .buf = r.p, .buf_offset = i * (off_t)T_MIB,
					    .nbytes = T_MIB, .f_offset = i * (off_t)T_MIB };
	one = (phxfs_io_req_t){ .fd = fd, .buf = r.p + 2 * T_MIB, .nbytes = T_MIB,
				.f_offset = 2 * (off_t)T_MIB };
	t_fuse_hold(fs);
	b = phxfs_batch_submit_read(reqs, 2);
	T_CHECK(b);
	T_EQ(phxfs_queue_create(4, &q), 0);
	T_EQ(phxfs_queue_submit(q, PHXFS_OP_READ, &one, NULL, 1), 1);
	t_fuse_held(fs, 1);
	t_call(&closing, close_0, NULL);
	T_STILL_RUNNING(&closing);
	t_fuse_release(fs);
	T_EQ(t_join(&closing), 0);
	/* closed: all that was in flight had finished by then */
	T_PATTERN(r.p, 3 * T_MIB, 7, 0);
	T_EQ(phxfs_batch_wait(b), 0);
	T_EQ(phxfs_queue_wait(q, &out, 1, 1, NULL), 1);
	T_EQ(out.result, T_MIB);
	T_EQ(phxfs_queue_destroy(q), 0);
}

static void version_is_the_headers(void)
{
	char want[32];

	snprintf(want, sizeof(want), "%d.%d.%d", PHXFS_VERSION_MAJOR, PHXFS_VERSION_MINOR,
		 PHXFS_VERSION_PATCH);
	T_CHECK(!strcmp(phxfs_version(), want));
}

static const struct t_case cases[] = {
	T_CASE(host_devices_are_as_many_as_asked_for, .env = "PHX_HOST_DEVICES=3",
	       .host = "about HOST devices"),
	T_CASE(no_host_devices_is_a_valid_wish, .env = "PHX_HOST_DEVICES=0",
	       .host = "about HOST devices"),
	T_CASE(find_device_tells_bad_from_absent, .host = "finds HOST devices by name"),
	T_CASE(find_device_bdf_parses_strictly),
	T_CASE(info_describes_a_host_device, .env = "PHX_STAGING_SIZE_MB=7",
	       .host = "about HOST devices"),
	T_CASE(info_describes_an_accelerator),
	T_CASE(info_writes_no_more_than_size),
	T_CASE(connectors_are_listed_and_say_what_is_missing),
	T_CASE(opens_are_counted, .env = "PHX_HOST_DEVICES=2"),
	T_CASE(unknown_devices_are_no_devices),
	T_CASE(the_last_close_removes_registrations, .flags = T_PATHS),
	T_CASE(a_draining_close_is_busy_and_can_be_retried, .flags = T_PATHS | T_ENGINES),
	T_CASE(devices_drain_apart, .env = "PHX_HOST_DEVICES=2", .flags = T_PATHS),
	T_CASE(a_close_waits_for_batches_and_queues, .flags = T_PATHS | T_ENGINES),
	T_CASE(version_is_the_headers),
};

T_MAIN(cases)
