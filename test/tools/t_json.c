// SPDX-License-Identifier: Apache-2.0
/*
 * t_json [PATH]: each line of standard input must be one JSON object. Prints
 * the value at PATH ("checks/0/status") of each; exits 1 where a line does not
 * parse or has no such value.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cJSON *walk(const cJSON *item, char *path)
{
	char *name, *end;
	long index;

	for (name = strtok(path, "/"); name && item; name = strtok(NULL, "/")) {
		index = strtol(name, &end, 10);
		item = cJSON_IsArray(item) && !*end ?
			       cJSON_GetArrayItem(item, (int)index) :
			       cJSON_GetObjectItemCaseSensitive(item, name);
	}
	return item;
}

static int print(const cJSON *item)
{
	char *text;

	if (cJSON_IsString(item))
		return puts(item->valuestring) < 0;
	text = cJSON_PrintUnformatted(item);
	if (!text)
		return 1;
	puts(text);
	free(text);
	return 0;
}

int main(int argc, char **argv)
{
	char *line = NULL, *path;
	size_t room = 0;
	int lines = 0, bad = 0;
	const cJSON *item;
	cJSON *root;

	for (; !bad && getline(&line, &room, stdin) > 0; lines++) {
		line[strcspn(line, "\n")] = '\0';
		root = cJSON_ParseWithOpts(line, NULL, 1);
		bad = !cJSON_IsObject(root);
		if (!bad && argc > 1) {
			path = strdup(argv[1]);
			item = path ? walk(root, path) : NULL;
			bad = !item || print(item);
			free(path);
		}
		cJSON_Delete(root);
	}
	free(line);
	return bad || !lines;
}
