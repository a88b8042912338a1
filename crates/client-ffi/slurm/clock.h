/*
 * clock.h - how late it is, on a clock that nobody sets.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef FAIRMESH_SLURM_CLOCK_H
#define FAIRMESH_SLURM_CLOCK_H

#include <time.h>

/* Microseconds since some moment before this machine's start; above 0. */
static inline long now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

#endif
