/*
 * parameters.h - PrioritySiteFactorParameters, read and checked.
 *
 * Pure: no Slurm, no clock, no IO. What a factor and a job's importance come to in points is
 * fairmesh_points(), so that `fairmesh slurm sync` gives the same.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef FAIRMESH_SLURM_PARAMETERS_H
#define FAIRMESH_SLURM_PARAMETERS_H

#include <fairmesh.h>
#include <stddef.h>
#include <stdint.h>

/* Longest path of a Unix socket, with its final zero. */
#define SOCKET_BYTES 108

/* Slurm keeps a site factor as a number around 2^31, so there is no room for much more. */
#define WEIGHT_MAX 2000000000
/* Above the highest factor there is its jobs' importance. */
#define POINTS_MAX (WEIGHT_MAX + (int64_t)FAIRMESH_IMPORTANCE_POINTS_MAX)

struct parameters {
	char socket[SOCKET_BYTES];
	int64_t weight; /* points of the highest factor */
	int64_t importance; /* points between one account's least and most important job */
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

/* What fairmesh_points() asks for. */
struct fairmesh_scale parameters_scale(const struct parameters *parameters);

#endif
