// SPDX-License-Identifier: GPL-2.0-only
/*
 * phxfs-coverage.ko: what gcc's --coverage counts in the project's modules, for gcov. The
 * kernel needs no GCOV_KERNEL.
 *
 * A module built with PHXFS_COVERAGE=1 names its counters by __gcov_init(), which its
 * constructors call before its own init: the kernel runs them if it is one with KASAN, else
 * we do. The counters die with it: when it goes, and when its init fails, they are added up.
 * debugfs phxfs-coverage/FILE.gcda has the sums, to be read when those modules are gone.
 *
 * The layout of the counters and of the file is gcc's.
 */
#include <linux/debugfs.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/string.h>

#if __GNUC__ < 12
#error "the file of an older gcc is laid out otherwise"
#endif
#define COUNTER_KINDS	(__GNUC__ >= 15 ? 10 : __GNUC__ >= 14 ? 9 : 8)

#define GCDA_MAGIC	0x67636461u
#define TAG_FUNCTION	0x01000000u
#define TAG_COUNTER(n)	(0x01a10000u + ((n) << 17))

struct gcov_ctr_info {
	u32 num;
	u64 *values;
};

struct gcov_fn_info {
	const struct gcov_info *key;
	u32 ident;
	u32 lineno_checksum;
	u32 cfg_checksum;
	struct gcov_ctr_info ctrs[];	/* of the kinds in use */
};

struct gcov_info {
	u32 version;
	struct gcov_info *next;
	u32 stamp;
	u32 checksum;
	const char *filename;

	void (*merge[COUNTER_KINDS])(u64 *, u32);	/* NULL: that kind is not in use */
	u32 n_functions;
	struct gcov_fn_info **functions;
};

/* A source file's sums: a .gcda. Never freed before this module is. */
struct sums {
	struct list_head node;
	u32 stamp;
	struct debugfs_blob_wrapper blob;
	char name[64];
};

static DEFINE_MUTEX(lock);
static struct gcov_info *running;	/* protected by: lock; of modules that are loaded */
static LIST_HEAD(all_sums);		/* protected by: lock */
static struct dentry *folder;

/* Writes the file at @out, or measures it; adds the counters of @old, the same file earlier. */
static size_t lay_out(const struct gcov_info *info, u32 *out, const u32 *old)
{
	u32 head[] = { GCDA_MAGIC, info->version, info->stamp, info->checksum };
	size_t at = ARRAY_SIZE(head);
	u32 f, kind, i;

	if (out)
		memcpy(out, head, sizeof(head));
	for (f = 0; f < info->n_functions; f++) {
		const struct gcov_fn_info *fn = info->functions[f];
		const struct gcov_ctr_info *ctr = fn->ctrs;
		u32 words[] = { TAG_FUNCTION, 12, fn->ident, fn->lineno_checksum,
				fn->cfg_checksum };

		if (out)
			memcpy(out + at, words, sizeof(words));
		at += ARRAY_SIZE(words);
		for (kind = 0; kind < COUNTER_KINDS; kind++) {
			if (!info->merge[kind])
				continue;
			if (out) {
				out[at] = TAG_COUNTER(kind);
				out[at + 1] = ctr->num * sizeof(u64);
			}
			at += 2;
			for (i = 0; out && i < ctr->num; i++) {
				u64 sum = READ_ONCE(ctr->values[i]), before = 0;

				if (old)
					memcpy(&before, old + at + 2 * i, sizeof(before));
				sum += before;
				memcpy(out + at + 2 * i, &sum, sizeof(sum));
			}
			at += 2 * ctr->num;
			ctr++;
		}
	}
	return at * sizeof(u32);
}

static struct sums *sums_of(const struct gcov_info *info)
{
	const char *name = kbasename(info->filename);
	struct sums *s;

	lockdep_assert_held(&lock);
	list_for_each_entry(s, &all_sums, node)
		if (s->stamp == info->stamp && !strcmp(s->name, name))
			return s;
	s = kzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return NULL;
	s->stamp = info->stamp;
	strscpy(s->name, name, sizeof(s->name));
	s->blob.size = lay_out(info, NULL, NULL);
	s->blob.data = kvzalloc(s->blob.size, GFP_KERNEL);
	if (!s->blob.data) {
		kfree(s);
		return NULL;
	}
	list_add_tail(&s->node, &all_sums);
	debugfs_create_blob(s->name, 0400, folder, &s->blob);
	return s;
}

static void add_up(const struct gcov_info *info)
{
	struct sums *s = sums_of(info);

	if (s)
		lay_out(info, s->blob.data, s->blob.data);
	else
		pr_err("%s: no memory for its sums\n", info->filename);
}

void __gcov_init(struct gcov_info *info);
void __gcov_init(struct gcov_info *info)
{
	mutex_lock(&lock);
	info->next = running;
	running = info;
	mutex_unlock(&lock);
}
EXPORT_SYMBOL(__gcov_init);

/* What the compiler names, and nobody calls in a kernel. */
void __gcov_exit(void);
void __gcov_exit(void)
{
}
EXPORT_SYMBOL(__gcov_exit);

void __gcov_merge_add(u64 *counters, u32 n);
void __gcov_merge_add(u64 *counters, u32 n)
{
}
EXPORT_SYMBOL(__gcov_merge_add);

/* One for each source file; the compiler's name for it. */
static void run_constructors(const struct module *mod)
{
	const struct mod_kallsyms *k = rcu_dereference_raw(mod->kallsyms);
	unsigned int i;

	for (i = 0; i < k->num_symtab; i++) {
		const Elf_Sym *sym = &k->symtab[i];

		if (str_has_prefix(k->strtab + sym->st_name, "_sub_I_00100_"))
			((void (*)(void))sym->st_value)();
	}
}

/* A module goes after its exit, or its init that failed; its memory is still there. */
static int module_event(struct notifier_block *nb, unsigned long event, void *data)
{
	const struct module *mod = data;
	struct gcov_info **link;

	if (event == MODULE_STATE_COMING && !IS_ENABLED(CONFIG_CONSTRUCTORS))
		run_constructors(mod);
	if (event != MODULE_STATE_GOING)
		return NOTIFY_DONE;
	mutex_lock(&lock);
	for (link = &running; *link;) {
		if (within_module((unsigned long)*link, mod)) {
			add_up(*link);
			*link = (*link)->next;
		} else {
			link = &(*link)->next;
		}
	}
	mutex_unlock(&lock);
	return NOTIFY_DONE;
}

static struct notifier_block notifier = { .notifier_call = module_event };

static int __init coverage_init(void)
{
	folder = debugfs_create_dir("phxfs-coverage", NULL);
	return register_module_notifier(&notifier);
}

static void __exit coverage_exit(void)
{
	struct sums *s, *next;

	unregister_module_notifier(&notifier);
	debugfs_remove_recursive(folder);
	list_for_each_entry_safe(s, next, &all_sums, node) {
		kvfree(s->blob.data);
		kfree(s);
	}
}

module_init(coverage_init);
module_exit(coverage_exit);

MODULE_DESCRIPTION("Sums of what --coverage counts in modules");
MODULE_LICENSE("GPL");
