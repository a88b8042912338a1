/*
 * people.h - the names of users and groups, by uid and gid.
 *
 * Slurm's job records hold numbers; a name service may take seconds to name one. So a number is
 * noted under Slurm's locks, and named outside of them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef FAIRMESH_SLURM_PEOPLE_H
#define FAIRMESH_SLURM_PEOPLE_H

#include <stdbool.h>
#include <sys/types.h>

/* The name, good until people_forget(); NULL (and noted) where it is not known yet. Does no IO. */
const char *people_user(uid_t uid);
const char *people_group(gid_t gid);

/* Whether somebody is noted and has no name yet. */
bool people_waiting(void);

/*
 * Names those who were noted; asks the name service. Who has no name is called by the number, as
 * Slurm does; where the name service failed, it is asked again the next time.
 */
void people_resolve(void);

/* Frees everything. Nobody may hold a name any more. */
void people_forget(void);

#endif
