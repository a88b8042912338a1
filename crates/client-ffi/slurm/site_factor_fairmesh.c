/*
 * site_factor_fairmesh.c - Slurm's site factor from a Fairmesh node.
 *
 * Slurm calls site_factor_p_set() under its job lock at every submission: it answers from a table in
 * memory. Slurm calls site_factor_p_update() only where slurmdbd runs, so a thread of our own
 * keeps the pending jobs up to date: it asks the node without any lock (the table does), then
 * changes the jobs that are to change in short holds (jobs.c).
 *
 * It fails open: with wrong parameters, or while the node is away, Slurm schedules on with the site
 * factors that the jobs have, and its log says so.
 *
 * Copyright (C) the Fairmesh authors
 *
 * This program is free software; you can redistribute it and/or modify it under the terms of the GNU
 * General Public License as published by the Free Software Foundation; either version 2 of the
 * License, or (at your option) any later version. It is distributed in the hope that it will be
 * useful, but WITHOUT ANY WARRANTY; without even the implied warranty of MERCHANTABILITY or FITNESS
 * FOR A PARTICULAR PURPOSE. See the file LICENSE beside this one.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "jobs.h"

#include "src/common/log.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "clock.h"
#include "people.h"
#include "report.h"

/* How long the node may take for an answer. The table's thread waits for it, nobody else. */
#define TIMEOUT_MS 2000

/* How long the thread rests before it looks whether there is something to say. */
#define REST_MS 1000

/* How long slurmctld waits for the thread when it stops: a name service may keep it. */
#define END_S 10

#define EXPORTED __attribute__((visibility("default")))

EXPORTED const char plugin_name[] = "Fairmesh site factor plugin";
EXPORTED const char plugin_type[] = "site_factor/fairmesh";
EXPORTED const uint32_t plugin_version = SLURM_VERSION_NUMBER;

/* What slurm.conf says, until the thread has taken it. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct parameters parameters;
	char error[256]; /* empty where the parameters are good */
	bool is_new;
} order = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* What jobs get their site factors from. Only the thread writes it. */
static struct {
	pthread_rwlock_t lock;
	fairmesh_table *table; /* NULL while disabled */
	struct parameters parameters;
} desk = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static pthread_t thread;
static bool has_thread;
static atomic_bool stopping;

/* Ends the thread's rest. */
static void wake(void)
{
	pthread_rwlock_rdlock(&desk.lock);
	if (desk.table)
		fairmesh_table_wake(desk.table);
	pthread_rwlock_unlock(&desk.lock);
	pthread_mutex_lock(&order.lock);
	pthread_cond_signal(&order.changed);
	pthread_mutex_unlock(&order.lock);
}

/* Slurm holds the lock of its configuration, or has no other thread yet. */
static void read_order(void)
{
	pthread_mutex_lock(&order.lock);
	order.error[0] = '\0';
	parameters_parse(slurm_conf.site_factor_params, &order.parameters, order.error,
			 sizeof(order.error));
	order.is_new = true;
	pthread_mutex_unlock(&order.lock);
}

/* Takes what slurm.conf says, and begins anew with it. Opening and closing may take seconds. */
static void take_order(const char *error, const struct parameters *parameters)
{
	fairmesh_table *table = NULL;
	if (!error[0]) {
		table = fairmesh_table_open(parameters->socket, parameters->interval_s * 1000,
					    parameters->old_s * 1000, TIMEOUT_MS);
		if (!table)
			error = "the system gives no thread";
	}
	if (table)
		report_enabled(parameters);
	else
		report_disabled(error);
	pthread_rwlock_wrlock(&desk.lock);
	fairmesh_table *before = desk.table;
	desk.table = table;
	desk.parameters = *parameters;
	pthread_rwlock_unlock(&desk.lock);
	fairmesh_table_close(before);
}

/* Waits for an order while there is no table to wait on; says whether one was taken. */
static bool await_order(void)
{
	struct parameters parameters;
	char error[sizeof(order.error)];
	pthread_mutex_lock(&order.lock);
	while (!order.is_new && !desk.table && !stopping)
		pthread_cond_wait(&order.changed, &order.lock);
	bool is_new = order.is_new && !stopping;
	order.is_new = false;
	parameters = order.parameters;
	memcpy(error, order.error, sizeof(error));
	pthread_mutex_unlock(&order.lock);
	if (is_new)
		take_order(error, &parameters);
	return is_new;
}

static void apply(void)
{
	struct tally tally;
	jobs_apply(desk.table, &desk.parameters, &stopping, &tally);
	if (tally.is_broken) {
		take_order("a job record has another shape than this plug-in was compiled for: "
			   "compile it against the source of this Slurm",
			   &desk.parameters);
		return;
	}
	if (tally.differing)
		debug("site_factor/fairmesh: changed %zu of %zu pending jobs in %zu lock holds, the "
		      "longest %ld us; read lock held %ld us",
		      tally.changed, tally.pending, tally.holds, tally.longest_us, tally.scan_us);
}

static void *run(void *unused)
{
	uint64_t seen = 0;
	long due_us = 0;
	(void)unused;
	while (!stopping) {
		if (await_order()) {
			seen = 0;
			due_us = 0;
		}
		if (stopping || !desk.table)
			continue;
		/* A change, somebody without a name, or an order ends the rest. */
		uint64_t revision = fairmesh_table_wait(desk.table, seen, REST_MS);
		bool is_due = now_us() >= due_us;
		report_freshness(desk.table, &desk.parameters);
		if (revision == seen && !is_due && !people_waiting())
			continue;
		people_resolve();
		seen = revision;
		due_us = now_us() + desk.parameters.interval_s * 1000000;
		apply();
	}
	return NULL;
}

/* Waits for the thread until then. Where it has ended, so has all that it worked with. */
static bool has_ended(const struct timespec *end)
{
	if (has_thread && pthread_timedjoin_np(thread, NULL, end))
		return false;
	has_thread = false;
	fairmesh_table_close(desk.table);
	desk.table = NULL;
	people_forget();
	return true;
}

EXPORTED int init(void)
{
	static const struct timespec long_ago;
	sigset_t all, before;
	if (!has_ended(&long_ago)) {
		report_disabled("the thread of the last start has not ended");
		return SLURM_SUCCESS;
	}
	stopping = false;
	read_order();
	/* Slurm's signals are for its own threads, and a broken socket is not to signal at all. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	has_thread = !pthread_create(&thread, NULL, run, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!has_thread)
		report_disabled("the system gives no thread");
	return SLURM_SUCCESS;
}

EXPORTED int fini(void)
{
	struct timespec end;
	if (!has_thread)
		return SLURM_SUCCESS;
	stopping = true;
	wake();
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += END_S;
	/* It may still use the table; we are linked not to be unloaded. */
	if (!has_ended(&end))
		error("site_factor/fairmesh: the thread does not end; going on without");
	return SLURM_SUCCESS;
}

EXPORTED void site_factor_p_reconfig(void)
{
	read_order();
	wake();
}

EXPORTED void site_factor_p_set(job_record_t *job)
{
	uint32_t site_factor;
	bool somebody_waits = false;
	pthread_rwlock_rdlock(&desk.lock);
	if (desk.table && job->magic == JOB_MAGIC) {
		if (job_site_factor(desk.table, &desk.parameters, job, &site_factor))
			job->site_factor = site_factor;
		else {
			/* Until the node has said, a new job waits in the middle and not after all others. */
			if (job->site_factor == NICE_OFFSET)
				job->site_factor = neutral_site_factor(&desk.parameters);
			somebody_waits = people_waiting();
		}
		if (somebody_waits)
			fairmesh_table_wake(desk.table);
	}
	pthread_rwlock_unlock(&desk.lock);
}

/* Called by Slurm's decay thread, where slurmdbd runs. Our thread has done it already. */
EXPORTED void site_factor_p_update(void)
{
}
