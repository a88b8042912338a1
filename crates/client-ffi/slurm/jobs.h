/*
 * jobs.h - factors of the table, written into Slurm's pending jobs.
 *
 * Invariant: nothing here does IO while it holds a lock of Slurm's, a hold is bounded, and a job is
 * touched only where its site factor is to be another.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef FAIRMESH_SLURM_JOBS_H
#define FAIRMESH_SLURM_JOBS_H

#include "src/common/slurm_xlator.h"

#include "src/slurmctld/slurmctld.h"

#include <fairmesh.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "parameters.h"

/* What one pass did. */
struct tally {
	size_t pending; /* jobs looked at, */
	size_t differing; /* whose site factor was to be another, */
	size_t changed; /* and was changed */
	size_t holds; /* of the write lock */
	long scan_us; /* length of the hold of the read lock */
	long longest_us; /* of the longest hold of the write lock */
	bool is_broken; /* the job records are not of the shape that this was compiled for */
};

/*
 * The site factor that a job ought to have; false where the node has not said, and the job keeps
 * its own. Notes whom the table or people.h do not know. A job of whom the node knows no account has
 * the neutral one.
 */
bool job_site_factor(const fairmesh_table *table, const struct parameters *parameters,
		     const job_record_t *job, uint32_t *site_factor);

/* The site factor of the middle, with which no job comes before or after all others. */
uint32_t neutral_site_factor(const struct parameters *parameters);

/*
 * Brings all pending jobs that are not held up to date. Holds the job lock for reading once, and for
 * writing for `batch` jobs at a time, with a pause between; ends early once `*stopping`.
 */
void jobs_apply(const fairmesh_table *table, const struct parameters *parameters,
		const atomic_bool *stopping, struct tally *tally);

#endif
