/*
 * jobs.c - factors of the table, written into Slurm's pending jobs. See jobs.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "jobs.h"

#include "src/common/assoc_mgr.h"
#include "src/common/xstring.h"
#include "src/slurmctld/locks.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "people.h"

/* The shortest pause between two holds of the write lock, so that others get at it. */
#define PAUSE_US_MIN 1000

/* Jobs to change, found under the read lock. Ids, because a record may go between two locks. */
struct found {
	const fairmesh_table *table;
	const struct parameters *parameters;
	struct tally *tally;
	uint32_t *ids;
	size_t count;
	size_t room;
	/* The last job, and the factor of its words: the next is often of the same. */
	const job_record_t *last;
	bool has_factor;
	uint32_t factor;
};

/* Takes the name of the job's quality of service, or "" where it has none or one that does not fit. */
static void take_qos(const job_record_t *job, char *name, size_t size)
{
	assoc_mgr_lock_t reading = { .qos = READ_LOCK };
	name[0] = '\0';
	assoc_mgr_lock(&reading);
	if (job->qos_ptr && job->qos_ptr->name && strlen(job->qos_ptr->name) < size)
		strcpy(name, job->qos_ptr->name);
	assoc_mgr_unlock(&reading);
}

/* The factor of the job's account, or FAIRMESH_UNKNOWN; false where the node has not said. */
static bool account_factor(const fairmesh_table *table, const job_record_t *job, uint32_t *factor)
{
	char queue[FAIRMESH_NAME_MAX + 1], qos[FAIRMESH_NAME_MAX + 1];
	struct fairmesh_name name = {
		.user = people_user(job->user_id),
		.group = people_group(job->group_id),
		/* What Slurm prints where there is none: in its records nobody can tell them apart. */
		.account = xstrcmp(job->account, "(null)") ? job->account : NULL,
		.queue = queue,
		.qos = qos,
	};
	if (!name.user || !name.group)
		return false;
	/* A job of several partitions stands where it would be charged in the first. */
	size_t length = job->partition ? strcspn(job->partition, ",") : 0;
	snprintf(queue, sizeof(queue), "%.*s", length < sizeof(queue) ? (int)length : 0,
		 job->partition ? job->partition : "");
	take_qos(job, qos, sizeof(qos));
	switch (fairmesh_table_factor(table, &name, factor, NULL)) {
	case FAIRMESH_OK:
	case FAIRMESH_NOT_KNOWN:
		return true;
	default:
		return false;
	}
}

/* Slurm subtracts the job's nice from its priority, behind the site factor. */
static uint32_t site_factor_of(const fairmesh_table *table, const struct parameters *parameters,
			       const job_record_t *job, uint32_t factor)
{
	struct fairmesh_scale scale = parameters_scale(parameters);
	int64_t nice = job->details ? (int64_t)job->details->nice - NICE_OFFSET : 0;
	return (uint32_t)(NICE_OFFSET + fairmesh_points(&scale, factor, fairmesh_table_step(table),
							job->comment, nice));
}

bool job_site_factor(const fairmesh_table *table, const struct parameters *parameters,
		     const job_record_t *job, uint32_t *site_factor)
{
	uint32_t factor;
	if (!account_factor(table, job, &factor))
		return false;
	*site_factor = site_factor_of(table, parameters, job, factor);
	return true;
}

uint32_t neutral_site_factor(const struct parameters *parameters)
{
	struct fairmesh_scale scale = parameters_scale(parameters);
	return (uint32_t)(NICE_OFFSET + fairmesh_points(&scale, FAIRMESH_UNKNOWN, 0, NULL, 0));
}

/* A held job's priority is zero; one that an administrator has set is not recomputed by Slurm. */
static bool may_change(const job_record_t *job)
{
	return IS_JOB_PENDING(job) && job->priority && !job->direct_set_prio && job->details;
}

static void keep(struct found *found, uint32_t id)
{
	if (found->count == found->room) {
		size_t room = found->room ? 2 * found->room : 1024;
		uint32_t *larger = realloc(found->ids, room * sizeof(*larger));
		if (!larger)
			return; /* the next pass finds it again */
		found->ids = larger;
		found->room = room;
	}
	found->ids[found->count++] = id;
}

/* As job_site_factor(), within one hold of a lock. */
static bool wanted(struct found *found, const job_record_t *job, uint32_t *site_factor)
{
	const job_record_t *last = found->last;
	if (!last || last->user_id != job->user_id || last->group_id != job->group_id ||
	    last->qos_ptr != job->qos_ptr || xstrcmp(last->account, job->account) ||
	    xstrcmp(last->partition, job->partition))
		found->has_factor = account_factor(found->table, job, &found->factor);
	found->last = job;
	if (found->has_factor)
		*site_factor = site_factor_of(found->table, found->parameters, job, found->factor);
	return found->has_factor;
}

static int look_at(void *record, void *argument)
{
	const job_record_t *job = record;
	struct found *found = argument;
	uint32_t site_factor;
	if (job->magic != JOB_MAGIC) {
		found->tally->is_broken = true;
		return SLURM_ERROR;
	}
	if (!may_change(job))
		return SLURM_SUCCESS;
	found->tally->pending++;
	if (wanted(found, job, &site_factor) && site_factor != job->site_factor)
		keep(found, job->job_id);
	return SLURM_SUCCESS;
}

static void find(struct found *found)
{
	slurmctld_lock_t reading = { .conf = READ_LOCK, .job = READ_LOCK };
	lock_slurmctld(reading);
	long began = now_us();
	if (job_list)
		list_for_each_ro(job_list, look_at, found);
	found->tally->scan_us = now_us() - began;
	unlock_slurmctld(reading);
}

/* Changes some jobs in one hold; gives its length. */
static long change(struct found *found, size_t first, size_t end)
{
	slurmctld_lock_t writing = { .conf = READ_LOCK, .job = WRITE_LOCK, .node = READ_LOCK,
				     .part = READ_LOCK, .fed = READ_LOCK };
	size_t changed = 0;
	uint32_t site_factor;
	lock_slurmctld(writing);
	long began = now_us();
	found->last = NULL;
	for (size_t i = first; i < end; i++) {
		job_record_t *job = find_job_record(found->ids[i]);
		if (!job || !may_change(job) || !wanted(found, job, &site_factor) ||
		    job->site_factor == site_factor)
			continue;
		job->site_factor = site_factor;
		set_job_prio(job);
		changed++;
	}
	/* Without it clients go on with the list of jobs that they hold. */
	if (changed)
		last_job_update = time(NULL);
	long held_us = now_us() - began;
	unlock_slurmctld(writing);
	found->tally->changed += changed;
	return held_us;
}

void jobs_apply(const fairmesh_table *table, const struct parameters *parameters,
		const atomic_bool *stopping, struct tally *tally)
{
	struct found found = { .table = table, .parameters = parameters, .tally = tally };
	*tally = (struct tally){ 0 };
	find(&found);
	tally->differing = found.count;
	size_t batch = parameters->batch;
	for (size_t first = 0; first < found.count && !*stopping && !tally->is_broken;
	     first += batch) {
		size_t end = first + batch < found.count ? first + batch : found.count;
		long held_us = change(&found, first, end);
		tally->holds++;
		if (held_us > tally->longest_us)
			tally->longest_us = held_us;
		if (end < found.count)
			usleep(held_us > PAUSE_US_MIN ? held_us : PAUSE_US_MIN);
	}
	free(found.ids);
}
