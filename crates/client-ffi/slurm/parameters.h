/*
 * parameters.h - PrioritySiteFactorParameters, read and checked.
 *
 * Pure: no Slurm, no clock, no IO. What a factor comes to in site factor points is here too, so that
 * both have one meaning.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef FAIRMESH_SLURM_PARAMETERS_H
#define FAIRMESH_SLURM_PARAMETERS_H

#include <stddef.h>
#include <stdint.h>

/* Longest path of a Unix socket, with its final zero. */
#define SOCKET_BYTES 108

/* Slurm keeps a site factor as a number around 2^31, so there is no room for more. */
#define POINTS_MAX 2000000000

struct parameters {
	char socket[SOCKET_BYTES];
	int64_t weight; /* points of the highest factor */
	int64_t min; /* points are never below, */
	int64_t max; /* and never above */
	int64_t interval_s; /* between two questions to the node */
	int64_t old_s; /* answers and data older than this are complained of */
	int64_t batch; /* most jobs changed in one hold of Slurm's locks */
};

/*
 * Reads "key=value,key=value" (NULL is empty) over the defaults. Gives 0, or -1 and the reason in
 * `error`; `parameters` is then not to be used.
 */
int parameters_parse(const char *text, struct parameters *parameters, char *error, size_t size);

/* The points of a factor between 0 and FAIRMESH_FACTOR_MAX. */
int64_t parameters_points(const struct parameters *parameters, uint32_t factor);

#endif
