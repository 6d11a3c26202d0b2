/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A vendor driver's functions, which a backend either looks up when it loads (PHXFS_LINKED
 * undefined; kernels find only GPL exports that way) or is linked to (by the driver's
 * Module.symvers). Both keep the driver loaded. Linked to a driver that is not GPL, a module
 * may use no GPL-only symbol: so __symbol_get is not even named then.
 */
#ifndef PHXFS_SYMBOLS_H
#define PHXFS_SYMBOLS_H

#include <linux/module.h>

struct phxfs_symbol {
	const char *name;
	void **address;
	bool optional;
#ifdef PHXFS_LINKED
	void *linked;
#endif
};

#ifdef PHXFS_LINKED
#define PHXFS_SYMBOL(_name, _slot) \
	{ \
		.name = #_name, .address = (void **)&(_slot), .linked = _name \
	}

static inline void phxfs_symbols_put(const struct phxfs_symbol *symbols, unsigned int n)
{
}

static inline int phxfs_symbols_get(const struct phxfs_symbol *symbols, unsigned int n,
				    const char *driver)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		*symbols[i].address = symbols[i].linked;
	return 0;
}
#else
#define PHXFS_SYMBOL(_name, _slot) \
	{ \
		.name = #_name, .address = (void **)&(_slot) \
	}
#define PHXFS_SYMBOL_OPTIONAL(_name, _slot) \
	{ \
		.name = #_name, .address = (void **)&(_slot), .optional = true \
	}

static inline void phxfs_symbols_put(const struct phxfs_symbol *symbols, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		if (*symbols[i].address)
			__symbol_put(symbols[i].name);
		*symbols[i].address = NULL;
	}
}

/* -ENOSYS, and a line that says which one is missing. */
static inline int phxfs_symbols_get(const struct phxfs_symbol *symbols, unsigned int n,
				    const char *driver)
{
	unsigned int i;

	for (i = 0; i < n; i++) {
		*symbols[i].address = __symbol_get(symbols[i].name);
		if (*symbols[i].address || symbols[i].optional)
			continue;
		pr_err("no symbol %s: load %s first; if it is loaded, it is too old, or exports "
		       "it to be linked only (see the porting guide)\n",
		       symbols[i].name, driver);
		phxfs_symbols_put(symbols, i);
		return -ENOSYS;
	}
	return 0;
}
#endif

#endif /* PHXFS_SYMBOLS_H */
