/* SPDX-License-Identifier: Apache-2.0 */
/* The settings in force, read from the environment once. */
#ifndef PHX_CONFIG_H
#define PHX_CONFIG_H

#include <stddef.h>

enum phx_path_choice { PHX_PATH_AUTO, PHX_PATH_DIRECT, PHX_PATH_STAGING, PHX_PATH_BOUNCE };
enum phx_engine_choice { PHX_ENGINE_AUTO, PHX_ENGINE_IO_URING, PHX_ENGINE_SYNC };

struct phx_config {
	int path;            /* enum phx_path_choice */
	int engine;          /* enum phx_engine_choice */
	int connector;       /* 0 auto, else 1 + index into phx_connector_names */
	int log;             /* enum phxfs_log_level */
	int stats;           /* 0 off, 1 on */
	long staging_size_mb;
	long workers;        /* at least 1: 0 has been replaced */
	long poll_kb;        /* 0: nothing is polled for; below what calls for help */
	long host_devices;
	long nvtx;           /* 0 off, 1 on */
};

/* Valid once phx_init() ran; never changes after that. */
extern struct phx_config phx_config;

/* The names that PHX_CONNECTOR takes after "auto", NULL-terminated. */
extern const char *const phx_connector_names[];

/* Read the environment into phx_config; called once, from phx_init(). */
void phx_config_init(void);

#endif
