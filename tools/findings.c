// SPDX-License-Identifier: Apache-2.0
#include "findings.h"

#include <phoenix.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const verdict_names[VERDICTS] = {
	[VERDICT_INFO] = "INFO",
	[VERDICT_PASS] = "PASS",
	[VERDICT_WARN] = "WARN",
	[VERDICT_FAIL] = "FAIL",
};

static struct finding *next_slot(struct findings *f)
{
	static struct finding spare;
	struct finding *list;
	size_t room;

	if (f->n == f->room) {
		room = f->room ? 2 * f->room : 32;
		list = realloc(f->list, room * sizeof(*list));
		if (!list) {
			f->lost = true;
			cJSON_Delete(spare.data);
			return &spare;
		}
		f->list = list;
		f->room = room;
	}
	return &f->list[f->n++];
}

struct finding *find_add(struct findings *f, enum verdict verdict, const char *check,
			 const char *object, const char *text, ...)
{
	struct finding *x = next_slot(f);
	va_list ap;

	*x = (struct finding){ .verdict = verdict };
	snprintf(x->check, sizeof(x->check), "%s", check);
	snprintf(x->object, sizeof(x->object), "%s", object);
	va_start(ap, text);
	vsnprintf(x->text, sizeof(x->text), text, ap);
	va_end(ap);
	return x;
}

void find_cure(struct finding *finding, const char *cure, ...)
{
	va_list ap;

	va_start(ap, cure);
	vsnprintf(finding->cure, sizeof(finding->cure), cure, ap);
	va_end(ap);
}

cJSON *find_data(struct finding *finding)
{
	if (!finding->data)
		finding->data = cJSON_CreateObject();
	return finding->data;
}

enum verdict findings_worst(const struct findings *f)
{
	enum verdict worst = f->lost ? VERDICT_FAIL : VERDICT_PASS;
	size_t i;

	for (i = 0; i < f->n; i++)
		if (f->list[i].verdict > worst)
			worst = f->list[i].verdict;
	return worst;
}

static bool print_text(const struct findings *f)
{
	unsigned int count[VERDICTS] = { 0 };
	const struct finding *x;
	size_t i;

	for (i = 0; i < f->n; i++) {
		x = &f->list[i];
		count[x->verdict]++;
		printf("%s  %-9s  %s%s%s%s%s\n", verdict_names[x->verdict], x->check, x->object,
		       *x->object ? ": " : "", x->text, *x->cure ? "; cure: " : "", x->cure);
	}
	printf("%u failed, %u warnings, %u passed\n", count[VERDICT_FAIL], count[VERDICT_WARN],
	       count[VERDICT_PASS]);
	return !ferror(stdout);
}

static bool add_json(cJSON *checks, const struct finding *x)
{
	cJSON *item = cJSON_CreateObject();

	if (!item || !cJSON_AddItemToArray(checks, item))
		return false;
	cJSON_AddStringToObject(item, "status", verdict_names[x->verdict]);
	cJSON_AddStringToObject(item, "check", x->check);
	cJSON_AddStringToObject(item, "object", x->object);
	cJSON_AddStringToObject(item, "text", x->text);
	cJSON_AddStringToObject(item, "cure", x->cure);
	if (x->data)
		cJSON_AddItemReferenceToObject(item, "data", x->data);
	return true;
}

static bool print_json(const struct findings *f)
{
	cJSON *root = cJSON_CreateObject();
	cJSON *checks;
	bool ok = true;
	size_t i;

	cJSON_AddStringToObject(root, "version", phxfs_version());
	cJSON_AddStringToObject(root, "result", verdict_names[findings_worst(f)]);
	checks = cJSON_AddArrayToObject(root, "checks");
	for (i = 0; i < f->n && ok; i++)
		ok = add_json(checks, &f->list[i]);
	return json_print(root) && ok;
}

bool findings_print(const struct findings *f, bool json)
{
	return json ? print_json(f) : print_text(f);
}

void findings_free(struct findings *f)
{
	size_t i;

	for (i = 0; i < f->n; i++)
		cJSON_Delete(f->list[i].data);
	free(f->list);
	*f = (struct findings){ 0 };
}

bool read_line(char *buf, size_t size, const char *format, ...)
{
	char path[512];
	va_list ap;
	FILE *file;
	bool ok;
	int n;

	va_start(ap, format);
	n = vsnprintf(path, sizeof(path), format, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(path))
		return false;
	file = fopen(path, "re");
	if (!file)
		return false;
	ok = fgets(buf, (int)size, file) != NULL;
	fclose(file);
	if (ok)
		buf[strcspn(buf, "\n")] = '\0';
	return ok;
}
