// SPDX-License-Identifier: Apache-2.0
/* Calls and holds in the streams of the program. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "nvidia_card.h"

#define HOLD_US 20

/* A graph would run the call again and again; it is to happen once. */
static int refuse_capture(void *stream)
{
	int status = 0, result = nvidia_driver.is_capturing(stream, &status);

	if (result)
		return nvidia_fail(result, "cuStreamIsCapturing");
	return status ? devconn_fail(-EOPNOTSUPP, "the stream is being captured into a graph") : 0;
}

int nvidia_launch_host_func(void *stream, void (*fn)(void *arg), void *arg)
{
	int err = refuse_capture(stream), result;

	if (err)
		return err;
	result = nvidia_driver.launch_host_func(stream, fn, arg);
	return result ? nvidia_fail(result, "cuLaunchHostFunc") : 0;
}

struct hold {
	uint64_t *word, value;
};

static void hold(void *arg)
{
	struct hold *h = arg;

	while ((int64_t)(__atomic_load_n(h->word, __ATOMIC_ACQUIRE) - h->value) < 0)
		usleep(HOLD_US);
	free(h);
}

/* Where streams have no memory operations (virtual GPUs), a function waits. */
static int hold_by_function(void *stream, uint64_t *word, uint64_t value)
{
	struct hold *h = malloc(sizeof(*h));
	int err;

	if (!h)
		return -ENOMEM;
	*h = (struct hold){ word, value };
	err = nvidia_launch_host_func(stream, hold, h);
	if (err)
		free(h);
	return err;
}

int nvidia_stream_wait(void *stream, uint64_t *word, uint64_t value)
{
	int err = refuse_capture(stream), result;

	if (err)
		return err;
	result = nvidia_driver.wait_value(stream, (uintptr_t)word, value, CU_WAIT_VALUE_GEQ);
	if (result == CU_NOT_SUPPORTED)
		return hold_by_function(stream, word, value);
	return result ? nvidia_fail(result, "cuStreamWaitValue64") : 0;
}

int nvidia_stream_signal(void *stream, uint64_t *word, uint64_t value)
{
	int err = refuse_capture(stream), result;

	if (err)
		return err;
	result = nvidia_driver.write_value(stream, (uintptr_t)word, value, CU_WRITE_VALUE_DEFAULT);
	return result ? nvidia_fail(result, "cuStreamWriteValue64") : 0;
}
