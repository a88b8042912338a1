/*
 * people.h - the names of users, by uid.
 *
 * Slurm's job records hold a uid; a name service may take seconds to name it. So a uid is noted
 * under Slurm's locks, and named outside of them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef FAIRMESH_SLURM_PEOPLE_H
#define FAIRMESH_SLURM_PEOPLE_H

#include <stdbool.h>
#include <sys/types.h>

/* The name, good until people_forget(); NULL (and noted) where it is not known yet. Does no IO. */
const char *people_name(uid_t uid);

/* Whether somebody is noted and has no name yet. */
bool people_waiting(void);

/*
 * Names those who were noted; asks the name service. A uid that has no name is called by its
 * number, as Slurm does; where the name service failed, it is asked again the next time.
 */
void people_resolve(void);

/* Frees everything. Nobody may hold a name any more. */
void people_forget(void);

#endif
