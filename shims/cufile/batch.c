// SPDX-License-Identifier: Apache-2.0
/*
 * Batches: a completion queue of libphoenix, and for each entry what its event
 * has to say again.
 *
 *   entry:  FREE -> submitted -> event taken -> FREE
 *
 * Lock: batch->lock protects the entries; the queue has its own. It is not
 * held while waiting.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cufile.h"

struct entry {
	bool used;
	bool write;
	void *cookie;
	struct cf_file *file; /* a reference */
};

struct batch {
	struct cf_object object; /* must be first */
	phxfs_queue_t *queue;
	pthread_mutex_t lock;
	unsigned int room;
	unsigned int free_count;
	unsigned int next;       /* where to look for a free entry first */
	struct entry entries[];
};

static void free_batch(struct cf_object *object)
{
	struct batch *batch = (struct batch *)object;

	phxfs_queue_destroy(batch->queue);
	for (unsigned int i = 0; i < batch->room; i++) {
		if (batch->entries[i].used)
			cf_file_put(batch->entries[i].file);
	}
	pthread_mutex_destroy(&batch->lock);
	free(batch);
}

static int set_up(CUfileBatchHandle_t *handle, unsigned int nr)
{
	struct batch *batch;
	int err;

	if (!handle || !nr || nr > cf_config_size(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE))
		return CU_FILE_INVALID_VALUE;
	cf_driver_use();
	batch = calloc(1, sizeof(*batch) + nr * sizeof(batch->entries[0]));
	if (!batch)
		return CU_FILE_NOMEM_ERROR;
	batch->object.kind = CF_BATCH;
	batch->object.refs = 1;
	batch->object.free = free_batch;
	batch->room = batch->free_count = nr;
	pthread_mutex_init(&batch->lock, NULL);
	err = phxfs_queue_create(nr, &batch->queue);
	if (err) {
		pthread_mutex_destroy(&batch->lock);
		free(batch);
		return CU_FILE_INTERNAL_BATCH_SETUP_ERROR;
	}
	*handle = cf_object_add(&batch->object);
	if (!*handle) {
		free_batch(&batch->object);
		return CU_FILE_NOMEM_ERROR;
	}
	return CU_FILE_SUCCESS;
}

CUfileError_t cuFileBatchIOSetUp(CUfileBatchHandle_t *batch_idp, unsigned int nr)
{
	return cf_count(CF_BATCH_SETUP, set_up(batch_idp, nr));
}

/* --------------------------------------------------------------- submitting */

/* The file of an entry that can be submitted, with a reference, or NULL. */
static struct cf_file *check(const CUfileIOParams_t *p)
{
	struct cf_file *file;

	if (p->mode != CUFILE_BATCH || !p->u.batch.devPtr_base || p->u.batch.file_offset < 0 ||
	    p->u.batch.devPtr_offset < 0 ||
	    (p->opcode != CUFILE_READ && p->opcode != CUFILE_WRITE))
		return NULL;
	file = cf_file_get(p->fh);
	if (file && (cf_file_refuses(file, p->opcode == CUFILE_WRITE) ||
		     !cf_buffer_holds(p->u.batch.devPtr_base, p->u.batch.devPtr_offset,
				      p->u.batch.size))) {
		cf_file_put(file);
		file = NULL;
	}
	return file;
}

/* With the lock held, and an entry free. */
static struct entry *take_entry(struct batch *batch)
{
	while (batch->entries[batch->next].used)
		batch->next = (batch->next + 1) % batch->room;
	batch->free_count--;
	return &batch->entries[batch->next];
}

static void put_entry(struct batch *batch, struct entry *entry)
{
	cf_file_put(entry->file);
	entry->used = false;
	batch->free_count++;
}

struct submission {
	phxfs_io_req_t *reqs;
	void **entries;       /* of the batch, as the queue's user data */
	struct cf_file **files;
};

/* Entries from @first on that go the same way, as far as the queue takes them. */
static int submit_run(struct batch *batch, const CUfileIOParams_t *p, struct submission *s,
		      unsigned int nr, unsigned int first)
{
	unsigned int n = 0;

	while (first + n < nr && p[first + n].opcode == p[first].opcode)
		n++;
	return phxfs_queue_submit(batch->queue,
				  p[first].opcode == CUFILE_WRITE ? PHXFS_OP_WRITE : PHXFS_OP_READ,
				  s->reqs + first, s->entries + first, (int)n);
}

/* With the lock held. All entries have been checked: what fails now fails in its event. */
static int submit_all(struct batch *batch, const CUfileIOParams_t *p, struct submission *s,
		      unsigned int nr)
{
	unsigned int first = 0;

	for (unsigned int i = 0; i < nr; i++) {
		struct entry *entry = take_entry(batch);

		*entry = (struct entry){ .used = true, .write = p[i].opcode == CUFILE_WRITE,
					 .cookie = p[i].cookie, .file = s->files[i] };
		s->entries[i] = entry;
		s->reqs[i] = (phxfs_io_req_t){ .fd = s->files[i]->fd,
					       .device_id = PHXFS_DEVICE_ANY,
					       .buf = p[i].u.batch.devPtr_base,
					       .buf_offset = p[i].u.batch.devPtr_offset,
					       .nbytes = p[i].u.batch.size,
					       .f_offset = p[i].u.batch.file_offset };
	}
	while (first < nr) {
		int n = submit_run(batch, p, s, nr, first);

		if (n < 0)
			break;
		first += (unsigned int)n;
	}
	for (unsigned int i = first; i < nr; i++) /* the queue has a place for each: not reached */
		put_entry(batch, s->entries[i]);
	return first < nr ? CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR : CU_FILE_SUCCESS;
}

/* All or nothing: an entry that cannot be is found before any is begun. */
static int check_and_submit(struct batch *batch, const CUfileIOParams_t *p, unsigned int nr,
			    struct submission *s)
{
	int number = CU_FILE_SUCCESS;
	unsigned int n;

	for (n = 0; n < nr; n++) {
		s->files[n] = check(&p[n]);
		if (!s->files[n]) {
			number = CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR;
			goto err_put_files;
		}
	}
	pthread_mutex_lock(&batch->lock);
	if (nr > batch->free_count)
		number = CU_FILE_BATCH_FULL;
	else
		number = submit_all(batch, p, s, nr);
	pthread_mutex_unlock(&batch->lock);
	if (number != CU_FILE_BATCH_FULL)
		return number; /* the files are the entries' */

err_put_files:
	while (n-- > 0)
		cf_file_put(s->files[n]);
	return number;
}

static int submit(CUfileBatchHandle_t handle, const CUfileIOParams_t *p, unsigned int nr,
		  unsigned int flags)
{
	struct batch *batch = (struct batch *)cf_object_get(handle, CF_BATCH);
	struct submission s = { NULL };
	int number = CU_FILE_NOMEM_ERROR;

	if (!batch)
		return CU_FILE_INTERNAL_BATCH_SUBMIT_ERROR;
	if (!nr || !p || flags || nr > batch->room) {
		cf_object_put(&batch->object);
		return nr > batch->room ? CU_FILE_BATCH_FULL : CU_FILE_INVALID_VALUE;
	}
	s.reqs = calloc(nr, sizeof(*s.reqs));
	s.entries = calloc(nr, sizeof(*s.entries));
	s.files = calloc(nr, sizeof(*s.files));
	if (s.reqs && s.entries && s.files)
		number = check_and_submit(batch, p, nr, &s);
	free(s.reqs);
	free(s.entries);
	free(s.files);
	cf_object_put(&batch->object);
	return number;
}

CUfileError_t cuFileBatchIOSubmit(CUfileBatchHandle_t batch_idp, unsigned int nr,
				  CUfileIOParams_t *iocbp, unsigned int flags)
{
	return cf_count(CF_BATCH_SUBMIT, submit(batch_idp, iocbp, nr, flags));
}

/* ------------------------------------------------------------------- events */

static void fill_event(CUfileIOEvents_t *event, const struct phxfs_completion *done)
{
	const struct entry *entry = done->user_data;

	event->cookie = entry->cookie;
	event->ret = (size_t)done->result;
	event->status = CUFILE_COMPLETE;
	if (done->result == -ECANCELED) {
		event->status = CUFILE_CANCELED;
		event->ret = 0;
	} else if (done->result < 0) {
		event->status = CUFILE_FAILED;
	}
}

/*
 * There are programs that look at what this call returns and never at an
 * event's status; to them a failed transfer must not look like a done one.
 */
static bool events_fail_the_call(void)
{
	const char *text = getenv("PHX_CUFILE_BATCH_ERRORS");

	return !text || strcmp(text, "event");
}

static int take_events(struct batch *batch, unsigned int min_nr, unsigned int *nr,
		       CUfileIOEvents_t *events, const struct timespec *timeout)
{
	unsigned int max = *nr < batch->room ? *nr : batch->room;
	struct phxfs_completion *done = calloc(max, sizeof(*done));
	bool failed = false;
	int n;

	if (!done)
		return CU_FILE_NOMEM_ERROR;
	n = phxfs_queue_wait(batch->queue, done, (int)(min_nr < max ? min_nr : max), (int)max,
			     timeout);
	pthread_mutex_lock(&batch->lock);
	for (int i = 0; i < n; i++) {
		struct entry *entry = done[i].user_data;

		fill_event(&events[i], &done[i]);
		failed |= events[i].status == CUFILE_FAILED;
		cf_count(CF_BATCH_ENTRY, events[i].status == CUFILE_FAILED);
		cf_count_batch_io(entry->write, done[i].result);
		put_entry(batch, entry);
	}
	pthread_mutex_unlock(&batch->lock);
	free(done);
	*nr = n > 0 ? (unsigned int)n : 0;
	if (n < 0)
		return n == -EINVAL ? CU_FILE_INVALID_VALUE :
				      CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR;
	return failed && events_fail_the_call() ? CU_FILE_IO_ERROR : CU_FILE_SUCCESS;
}

CUfileError_t cuFileBatchIOGetStatus(CUfileBatchHandle_t batch_idp, unsigned int min_nr,
				     unsigned int *nr, CUfileIOEvents_t *iocbp,
				     struct timespec *timeout)
{
	struct batch *batch;
	int number;

	if (!nr || !*nr || !iocbp || min_nr > *nr)
		return cf_result(CU_FILE_INVALID_VALUE);
	batch = (struct batch *)cf_object_get(batch_idp, CF_BATCH);
	if (!batch)
		return cf_result(CU_FILE_INTERNAL_BATCH_GETSTATUS_ERROR);
	number = take_events(batch, min_nr, nr, iocbp, timeout);
	cf_object_put(&batch->object);
	return cf_count(CF_BATCH_COMPLETE, number);
}

/* Best effort: what runs goes on, and says so in its event. */
CUfileError_t cuFileBatchIOCancel(CUfileBatchHandle_t batch_idp)
{
	struct batch *batch = (struct batch *)cf_object_get(batch_idp, CF_BATCH);

	if (!batch)
		return cf_count(CF_BATCH_CANCEL, CU_FILE_INTERNAL_BATCH_CANCEL_ERROR);
	pthread_mutex_lock(&batch->lock);
	for (unsigned int i = 0; i < batch->room; i++) {
		if (batch->entries[i].used)
			phxfs_queue_cancel(batch->queue, &batch->entries[i]);
	}
	pthread_mutex_unlock(&batch->lock);
	cf_object_put(&batch->object);
	return cf_count(CF_BATCH_CANCEL, CU_FILE_SUCCESS);
}

void cuFileBatchIODestroy(CUfileBatchHandle_t batch_idp)
{
	struct cf_object *object = cf_object_remove(batch_idp, CF_BATCH);

	cf_count(CF_BATCH_DESTROY, object ? 0 : CU_FILE_INVALID_VALUE);
	if (object)
		cf_object_put(object);
}
